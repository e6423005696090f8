"""Products of a few rows with a large weight, which a recurrence takes at every step, near the machine's rate.

With few rows a BLAS spends its time on arranging the weight anew in each call. oneDNN can be given it arranged once. FBGEMM takes
it in float16 as well, multiplies in float32, and so reads half the bytes, which is what a single row costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

# R rows, I inputs, O outputs


def packed(weight: Tensor, rows: int, bias: Tensor | None = None, float16: bool = False) -> Callable[[Tensor], Tensor]:
    """x (R, I) -> x @ weight.T + bias (R, O) without gradients, for a weight (O, I) that does not change and so many rows.

    With float16 a CPU may round a float32 weight to it: by 2^-11 of each number.
    """
    weight = weight.detach()
    if weight.device.type == "cpu" and float16 and weight.dtype == torch.float32 and _has_fbgemm():
        halved = torch.ops.quantized.linear_prepack_fp16(weight, bias)
        return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, halved)
    if weight.device.type == "cpu" and _can_arrange(weight.dtype):
        arranged = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
        return lambda x: torch.ops.mkldnn._linear_pointwise(x, arranged, bias, "none", [], "")
    return lambda x: F.linear(x, weight, bias)


def _has_fbgemm() -> bool:
    return "fbgemm" in torch.backends.quantized.supported_engines


def _can_arrange(dtype: torch.dtype) -> bool:
    """Whether oneDNN takes such weights here, and may: torch.backends.mkldnn.enabled is PyTorch's own switch."""
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled) and _arranges(dtype)


@cache
def _arranges(dtype: torch.dtype) -> bool:
    """Found by trying: each type has its own conditions on the CPU's instructions."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros(2, 2, dtype=dtype), 1)
    except RuntimeError:
        return False
    return True
