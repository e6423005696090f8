"""Products of a few rows with a large weight, which a recurrence takes at every step, near the machine's rate.

With few rows a BLAS spends its time on arranging the weight anew in each call. oneDNN can be given it arranged once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# R rows, I inputs, O outputs


def packed(weight: Tensor, rows: int) -> Callable[[Tensor], Tensor]:
    """x (R, I) -> x @ weight.T (R, O) without gradients, for a weight (O, I) that does not change and so many rows."""
    if weight.device.type != "cpu" or weight.dtype not in _packable():
        return lambda x: F.linear(x, weight)
    arranged = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), rows)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda x: multiply(x, arranged, None, "none", [], "")


def _packable() -> set[torch.dtype]:
    """What oneDNN multiplies here, and may: torch.backends.mkldnn.enabled is PyTorch's own switch."""
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return set()
    return {torch.float32} | ({torch.bfloat16} if torch.ops.mkldnn._is_mkldnn_bf16_supported() else set())
