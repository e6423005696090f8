"""The only file that names operators which PyTorch does not document.

Each group has a probe that tries it once. Callers ask the probe, and take a documented operator where it says no.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

# R rows, I inputs, O outputs

# --- instructions of the CPU ---


@cache
def has_bfloat16() -> bool:
    """True on a CPU where oneDNN computes in bfloat16 without emulation (x86: from AVX-512 on)."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


@cache
def has_amx() -> bool:
    """True on a CPU with Intel's matrix tiles (AMX)."""
    try:
        return bool(torch.cpu._is_amx_tile_supported())
    except (AttributeError, RuntimeError):
        return False


# --- linear layers with a weight that oneDNN arranges once ---


@cache
def has_packed_linear(dtype: torch.dtype) -> bool:
    """True where oneDNN takes packed weights of this dtype; each dtype has its own conditions on the CPU."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    try:
        weight = torch.eye(2, dtype=dtype)
        return torch.equal(packed_linear(weight, pack_linear(weight, 1), None), weight)
    except (AttributeError, RuntimeError):
        return False


def pack_linear(weight: Tensor, rows: int) -> Tensor:
    """Arrange a weight (O, I), for inputs of so many rows, for packed_linear."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """x (R, I) -> x @ weight.T + bias (R, O)."""
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


# --- linear layers with a weight in float16, multiplied in float32 (FBGEMM) ---


@cache
def has_float16_linear() -> bool:
    """True on an x86 CPU, for which PyTorch has FBGEMM."""
    if torch.backends.quantized.engine not in ("x86", "fbgemm"):
        return False
    try:
        weight = torch.eye(2)
        return torch.equal(float16_linear(weight, pack_float16_linear(weight, None)), weight)
    except (AttributeError, RuntimeError):
        return False


def pack_float16_linear(weight: Tensor, bias: Tensor | None) -> Any:
    """Round a float32 weight (O, I) to float16 and arrange it, with its bias (O,), for float16_linear."""
    return torch.ops.quantized.linear_prepack_fp16(weight, bias)


def float16_linear(x: Tensor, packed: Any) -> Tensor:
    """x (R, I) in float32 -> x @ weight.T + bias (R, O) in float32."""
    return torch.ops.quantized.linear_dynamic_fp16(x, packed)
