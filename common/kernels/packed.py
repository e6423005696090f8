"""Products of a few rows with a large weight, which a recurrence takes at every step, near the machine's rate.

With few rows a BLAS spends its time on arranging the weight anew in each call. oneDNN can be given it arranged once. FBGEMM takes
it in float16 as well, multiplies in float32, and so reads half the bytes, which is what a single row costs; or in 8 bits, a quarter
of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

# R rows, I inputs, O outputs

Kept = Literal["full", "float16", "int8"]  # what a CPU may round a float32 weight to
LEVELS = 127  # of a weight in 8 bits on either side of 0
# of x in [-1, 1]: steps of 1/63 around 64, all within 7 bits, since without AVX-512's VNNI sums of two products in 8 bits saturate
X_STEP, X_ZERO = 1 / 63, 64


def packed(weight: Tensor, rows: int, bias: Tensor | None = None, kept: Kept = "full") -> Callable[[Tensor], Tensor]:
    """x (R, I) -> x @ weight.T + bias (R, O) without gradients, for a weight (O, I) that does not change and so many rows.

    With kept="float16" a CPU may round a float32 weight by 2^-11 of each number. With "int8", for x in [-1, 1] only, it may round
    a weight by 1/254 of the largest of its row, and x by 1/126.
    """
    weight = weight.detach()
    if kept != "full" and weight.dtype == torch.float32 and can_round(weight.device):
        return _rounded(weight, bias, kept)
    if weight.device.type == "cpu" and _can_arrange(weight.dtype):
        arranged = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
        return lambda x: torch.ops.mkldnn._linear_pointwise(x, arranged, bias, "none", [], "")
    return lambda x: F.linear(x, weight, bias)


def can_round(device: torch.device) -> bool:
    """Whether packed may keep a float32 weight in fewer bits there: an x86 CPU, for which PyTorch has FBGEMM."""
    return device.type == "cpu" and torch.backends.quantized.engine in ("x86", "fbgemm")


def _rounded(weight: Tensor, bias: Tensor | None, kept: Kept) -> Callable[[Tensor], Tensor]:
    quantized = torch.ops.quantized
    if kept == "float16":
        halved = quantized.linear_prepack_fp16(weight, bias)
        return lambda x: quantized.linear_dynamic_fp16(x, halved)
    scales = (weight.abs().amax(dim=1) / LEVELS).clamp(min=torch.finfo(weight.dtype).tiny)
    zeros = torch.zeros(len(weight), dtype=torch.int64)  # in any float type they would mean something else
    with warnings.catch_warnings():  # PyTorch will do without this type some day, but has no other way to FBGEMM
        warnings.filterwarnings("ignore", message="torch.quantize_per_tensor", category=UserWarning)
        levels = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    eighths = quantized.linear_prepack(levels, bias)
    multiply = quantized.linear_with_input_q_dq_qweight_dq_output_fp32  # a scale for all x: rows do not hear each other
    return lambda x: multiply(x.contiguous(), X_STEP, X_ZERO, eighths)  # it would read past gaps


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
