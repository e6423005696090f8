"""The only file that uses operators which PyTorch does not document.

A group that some CPUs or versions lack has a probe, which tries it once; where it is False, callers use documented operators.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

# R rows, I inputs, O outputs, k kernel size

# --- the CPU and its instructions ---


class Processor(NamedTuple):
    """A CPU as Linux's /proc/cpuinfo describes it; empty and 0 where unknown."""

    vendor: str = ""
    family: int = 0
    name: str = ""

    @property
    def is_zen_5(self) -> bool:
        """True for AMD's Zen 5, where oneDNN's convolutions in float32 outrun matrix products."""
        return (self.vendor, self.family) == ("AuthenticAMD", 26)


@cache
def processor() -> Processor:
    """Return the CPU of this machine."""
    try:
        return parse_processor(Path("/proc/cpuinfo").read_text())
    except OSError:  # a system without this file
        return Processor()


def parse_processor(listing: str) -> Processor:
    """Parse the first CPU in the text of /proc/cpuinfo."""
    lines = (line.partition(":") for line in listing.partition("\n\n")[0].splitlines())
    values = {key.strip(): value.strip() for key, _, value in lines}
    family = values.get("cpu family", "")
    return Processor(
        values.get("vendor_id", ""), int(family) if family.isdecimal() else 0, values.get("model name", "")
    )


@cache
def has_bfloat16() -> bool:
    """True on a CPU where oneDNN computes faster in bfloat16 than in float32.

    oneDNN supports it on x86 from AVX-512 on. Intel's cores take twice as long as in float32 where a virtual machine hides AMX.
    """
    try:
        supported = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False
    return supported and (has_amx() or processor().vendor != "GenuineIntel")


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
    """True where oneDNN takes packed weights of this dtype; each dtype needs other instructions."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    try:
        weight = torch.eye(2, dtype=dtype)
        return torch.equal(packed_linear(weight, pack_linear(weight, 1), None), weight)
    except (AttributeError, RuntimeError):
        return False


def pack_linear(weight: Tensor, rows: int) -> Tensor:
    """Arrange a weight (O, I) for packed_linear with inputs of this many rows."""
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


@cache
def float16_rows_agree() -> bool:
    """True where a row of float16_linear has the same bits beside others: FBGEMM's kernels for AVX2 sum by the number of rows."""
    x = torch.linspace(-1, 1, 3 * 192).view(3, 192).sin()
    packed = pack_float16_linear(torch.linspace(-3, 3, 192 * 64).view(64, 192).cos(), None)
    return torch.equal(float16_linear(x, packed), torch.cat([float16_linear(row, packed) for row in x.split(1)]))


# --- weight normalisation, in one fused kernel forward and one backward ---


def weight_norm(v: Tensor, g: Tensor) -> Tensor:
    """g * v / |v| with one norm per output channel: v (O, I, k) and g (O, 1, 1) -> (O, I, k)."""
    return torch._weight_norm(v, g, 0) if has_weight_norm() else weight_norm_formula(v, g)


def weight_norm_formula(v: Tensor, g: Tensor) -> Tensor:
    """The same in public PyTorch."""
    return g * v / torch.linalg.vector_norm(v, dim=(1, 2), keepdim=True)


@cache
def has_weight_norm() -> bool:
    """True where the fused kernel exists and agrees with the formula."""
    v, g = torch.tensor([[[3.0, 4.0]], [[5.0, 12.0]]]), torch.tensor([[[10.0]], [[26.0]]])
    try:
        return torch.allclose(torch._weight_norm(v, g, 0), weight_norm_formula(v, g))
    except (RuntimeError, AttributeError, TypeError):
        return False


# --- lists of tensors in one kernel, by operators that every supported version has ---


def move_towards(tensors: list[Tensor], targets: list[Tensor], share: Tensor) -> None:
    """Move each tensor, in place, towards its target by a share of the difference."""
    differences = torch._foreach_sub(targets, tensors)
    torch._foreach_mul_(differences, share.to(differences[0].dtype))
    torch._foreach_add_(tensors, differences)


# --- 8-bit products on a CPU: unsigned levels around a zero point times signed levels of a weight, a step for each output ---


class Int8Weight(NamedTuple):
    """A weight in oneDNN's arrangement, the step of each output (O,), and their zero points (O,), all 0."""

    packed: Tensor
    steps: Tensor
    zeros: Tensor


class Int8Input(NamedTuple):
    """Numbers as (levels - zero) * step; levels uint8."""

    levels: Tensor
    step: float
    zero: int


def pack_int8_linear(levels: Tensor, steps: Tensor) -> Int8Weight:
    """Arrange a linear layer's weight (O, I), int8 levels with a step (O,) for each row, for inputs of any number of rows."""
    packed = torch.ops.onednn.qlinear_prepack(levels, None)
    return Int8Weight(packed, steps, torch.zeros(len(steps), dtype=torch.int64))


def add_int8_linear(x: Int8Input, weight: Int8Weight, bias: Tensor, total: Tensor) -> None:
    """Add x (R, I) @ weight.T + bias to total (R, O), contiguous, float32 or bfloat16."""
    output: Any = (bias, 1.0, 0, total.dtype, 1.0, 0, "sum", 1.0, "none", [], "")
    torch.ops.onednn.qlinear_pointwise.binary(*x, *weight, total, *output)


def pack_int8_convolution(levels: Tensor, steps: Tensor, dilation: int, x_shape: list[int], zero: int) -> Int8Weight:
    """Arrange a convolution's weight (O, I, 1, k), int8 levels with a step (O,) an output, for inputs of x_shape (1, I, 1, R)."""
    geometry: Any = _geometry(dilation)
    packed = torch.ops.onednn.qconv_prepack(levels.contiguous(), steps, 1.0, zero, *geometry, x_shape)
    return Int8Weight(packed, steps, torch.zeros(len(steps), dtype=torch.int64))


def int8_convolution(x: Int8Input, weight: Int8Weight, bias: Tensor, dilation: int, dtype: torch.dtype) -> Tensor:
    """Convolve x (1, I, 1, R), channels innermost in memory, without padding, into (1, O, 1, R - (k - 1) * dilation)."""
    output: Any = (bias, *_geometry(dilation), 1.0, 0, dtype, "none", [], "")
    return torch.ops.onednn.qconv_pointwise(*x, *weight, *output)


def _geometry(dilation: int) -> tuple[list[int], list[int], list[int], int]:
    """Stride, padding, dilation, groups."""
    return [1, 1], [0, 0], [1, dilation], 1


@cache
def has_int8_products() -> bool:
    """True where both operators exist, give right results, and the CPU has VNNI: without it sums of two products saturate."""
    x, levels = (
        Int8Input(torch.tensor([[129, 127], [130, 128]], dtype=torch.uint8), 0.5, 128),
        [[127, 127], [127, -127]],
    )
    weight, steps, bias = torch.tensor(levels, dtype=torch.int8), torch.tensor([1.0, 2.0]), torch.ones(2)
    total, want = torch.ones(2, 2), torch.tensor([[1.0, 255.0], [128.0, 255.0]])
    try:
        if not torch.cpu._is_vnni_supported():
            return False
        add_int8_linear(x, pack_int8_linear(weight, steps), bias, total)
        image = x._replace(levels=x.levels.t()[None, :, None])
        packed = pack_int8_convolution(weight[:, :, None, None], steps, 1, [1, 2, 1, 2], x.zero)
        convolved = int8_convolution(image, packed, bias, 1, torch.float32)[0, :, 0].t()
    except (RuntimeError, AttributeError, TypeError):
        return False
    return torch.equal(total, want + 1) and torch.equal(convolved, want)
