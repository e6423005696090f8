"""Products of many rows with a weight, both in 8 bits: twice bfloat16's rate on an x86 CPU with VNNI instructions.

oneDNN multiplies unsigned levels with signed weights, adds the products exactly, and writes the sums in a float type.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.kernels import private_ops
from common.kernels.private_ops import Int8Input

# R rows, I inputs, O outputs, k kernel size
MIN_ROWS = 64  # outputs of a Convolution at once: with fewer, oneDNN rearranges the weight in each call
CACHE_ROWS = 2304  # rows whose float32 numbers stay in the CPU's cache while they are rounded
LARGEST = 127  # levels on either side of 0, of weights and inputs alike
ZERO = 128  # the level of x = 0
# Next to 1.5 * 2^23 a float32 number has no fraction: its last bits are the nearest integer's.
TO_LEVEL = torch.tensor([1.5 * 2**23 + ZERO])


class Levels(NamedTuple):
    """Numbers as (levels - ZERO) * step, levels uint8 of any shape."""

    levels: Tensor
    step: float


def quantise(x: Tensor, padding: int = 0) -> Levels:
    """Round x (R, C) to levels, its largest number at the last one; `padding` rows of 0 stand before and after.

    NaN or inf in x give a step of NaN.
    """
    lowest, highest = x.aminmax()
    largest = max(float(highest), -float(lowest))
    step = largest / LARGEST or 1.0
    levels = torch.empty(len(x) + 2 * padding, x.shape[1], dtype=torch.uint8)
    before, inner, after = levels.tensor_split([padding, padding + len(x)])
    before.fill_(ZERO)
    after.fill_(ZERO)
    parts = even_parts(x)
    scratch = torch.empty(parts[0].shape)
    for part, target in zip(parts, even_parts(inner), strict=True):
        write_levels(part, step, target, scratch[: len(part)])
    return Levels(levels, step if step < torch.inf else torch.nan)


def even_parts(rows: Tensor) -> tuple[Tensor, ...]:
    """Split rows into parts of about equal size that fit a cache, the longest first; short parts would cost as many calls."""
    return rows.tensor_split(max(math.ceil(len(rows) / CACHE_ROWS), 1))


def write_levels(x: Tensor, step: float, levels: Tensor, scratch: Tensor, times: Tensor | None = None) -> None:
    """Round x, or x * times, float32 or bfloat16 and within LARGEST steps of 0, to the nearest levels, uint8 of its shape.

    Overwrites the scratch, float32 of the same shape, which may be x itself.
    """
    if times is None:  # copied first: a sum of two types would allocate a copy
        torch.add(TO_LEVEL, scratch.copy_(x), alpha=1 / step, out=scratch)
    else:
        torch.addcmul(TO_LEVEL, x, times, value=1 / step, out=scratch)
    levels.copy_(scratch.view(torch.int32))


def can_multiply(device: torch.device) -> bool:
    """True where Product and Convolution run at full rate."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available() and private_ops.has_int8_products()


def _round_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (O, ...) -> its levels, int8 of its shape, and the step of each row (O,): 1/127 of the row's largest number."""
    weight = weight.detach().float()
    steps = (weight.flatten(1).abs().amax(dim=1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / steps.view(-1, *[1] * (weight.dim() - 1))).round().to(torch.int8), steps


class Product:
    """x (R, I) in levels -> x @ weight.T + bias (R, O), for a weight (O, I) rounded by at most 1/254 of each row's largest."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = private_ops.pack_int8_linear(*_round_rows(weight))
        self.bias = bias.detach().float()

    def add_to(self, total: Tensor, x: Levels) -> None:
        """Add the product to total (R, O), contiguous, in float32 or bfloat16."""
        private_ops.add_int8_linear(Int8Input(*x, ZERO), self.weight, self.bias, total)


class Convolution:
    """x (R, I) in levels -> the convolution with a weight (O, k, I), and bias: (R - (k - 1) * dilation, O), without padding.

    An output row r reads the input rows r, r + dilation, … Weights are rounded by at most 1/254 of their output's largest.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dilation: int) -> None:
        levels, steps = _round_rows(weight.transpose(1, 2)[:, :, None])  # (O, I, 1, k)
        self.dilation, self.span = dilation, (weight.shape[1] - 1) * dilation
        shape = [1, weight.shape[2], 1, MIN_ROWS + self.span]  # with more rows oneDNN arranges the weight the same way
        self.weight = private_ops.pack_int8_convolution(levels, steps, dilation, shape, ZERO)
        self.bias = bias.detach().float()

    def __call__(self, x: Levels, dtype: torch.dtype) -> Tensor:
        """The result, in float32 or bfloat16."""
        image, n_rows = self._image(x.levels)
        inputs = Int8Input(image, x.step, ZERO)
        outputs = private_ops.int8_convolution(inputs, self.weight, self.bias, self.dilation, dtype)
        return outputs[0, :, 0].t()[:n_rows]

    def _image(self, levels: Tensor) -> tuple[Tensor, int]:
        """(R, I) -> (1, I, 1, R), channels innermost, for MIN_ROWS outputs or more, and how many of the outputs count."""
        n_rows = len(levels) - self.span
        if n_rows < MIN_ROWS:
            levels = F.pad(levels, (0, 0, 0, MIN_ROWS - n_rows))
        return levels.t()[None, :, None], n_rows
