"""Products of many rows with a weight, both in 8 bits: twice bfloat16's rate on an x86 CPU with VNNI instructions.

oneDNN takes unsigned levels times signed weights, sums them exactly, and writes the sums in a float type.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# R rows, I inputs, O outputs, k rows that one of the result hears
FEWEST = 64  # rows that a Convolution makes at once: for fewer oneDNN arranges the weight anew in each call
IN_CACHE = 2304  # rows whose float32 numbers stay in the CPU's cache while they are rounded
LARGEST = 127  # levels on either side of 0, of a weight and of x alike
ZERO = 128  # the level of x = 0
# Next to 1.5 * 2^23 a float32 number has no fraction: its last bits are the nearest integer's.
TO_LEVEL = torch.tensor([1.5 * 2**23 + ZERO])


class Levels(NamedTuple):
    """Numbers as (levels - ZERO) * step, levels uint8 of any shape."""

    levels: Tensor
    step: float


def in_levels(x: Tensor, padding: int = 0) -> Levels:
    """x (R, C), rounded to the nearest level of as many as its largest has; rows of 0 before and after.

    NaN or inf in it give a step of NaN.
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
    for part, made in zip(parts, even_parts(inner), strict=True):
        write_levels(part, step, made, scratch[: len(part)])
    return Levels(levels, step if step < torch.inf else torch.nan)


def even_parts(rows: Tensor) -> tuple[Tensor, ...]:
    """Rows in parts that a cache holds, about as many in each, the first the longest; a short one would cost as many calls."""
    return rows.tensor_split(max(math.ceil(len(rows) / IN_CACHE), 1))


def write_levels(x: Tensor, step: float, levels: Tensor, scratch: Tensor, times: Tensor | None = None) -> None:
    """Round x, or x * times, float32 or bfloat16 and within LARGEST steps of 0, to the nearest levels, uint8 of its shape.

    Writes over the scratch, float32 of its shape too, which may be x itself.
    """
    if times is None:  # copied first, as a sum of two types would make a copy of its own
        torch.add(TO_LEVEL, scratch.copy_(x), alpha=1 / step, out=scratch)
    else:
        torch.addcmul(TO_LEVEL, x, times, value=1 / step, out=scratch)
    levels.copy_(scratch.view(torch.int32))


def can_multiply(device: torch.device) -> bool:
    """Whether Product and Convolution work there, and fast: without VNNI their sums of two products would saturate."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available() and _has_instructions()


def _rounded_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (O, ...) -> its levels, int8 of its shape, and the step of each row (O,): 1/127 of its largest."""
    weight = weight.detach().float()
    steps = (weight.flatten(1).abs().amax(dim=1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / steps.view(-1, *[1] * (weight.dim() - 1))).round().to(torch.int8), steps


class Product:
    """x (R, I) in levels -> x @ weight.T + bias (R, O), for a weight (O, I), rounded by 1/254 of the largest of its row."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        levels, steps = _rounded_rows(weight)
        packed = torch.ops.onednn.qlinear_prepack(levels, None)  # for any number of rows
        self.weight = packed, steps, torch.zeros(len(weight), dtype=torch.int64)
        self.bias = bias.detach().float()

    def add_to(self, total: Tensor, x: Levels) -> None:
        """Add the product to total (R, O), contiguous, in float32 or bfloat16."""
        how: Any = (self.bias, 1.0, 0, total.dtype, 1.0, 0, "sum", 1.0, "none", [], "")
        torch.ops.onednn.qlinear_pointwise.binary(x.levels, x.step, ZERO, *self.weight, total, *how)


class Convolution:
    """x (R, I) in levels -> sums of k rows, `dilation` apart, each times a weight (O, k, I), and bias (R - (k - 1) * dilation, O).

    A row of the result hears its own row of x and later ones. Weights are rounded by 1/254 of the largest of their row.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dilation: int) -> None:
        levels, steps = _rounded_rows(weight.transpose(1, 2)[:, :, None])  # (O, I, 1, k)
        self.span = (weight.shape[1] - 1) * dilation
        self.how: Any = ([1, 1], [0, 0], [1, dilation], 1)  # stride, padding, dilation, groups
        shape = [1, weight.shape[2], 1, FEWEST + self.span]  # with more rows the weight is arranged the same way
        packed = torch.ops.onednn.qconv_prepack(levels.contiguous(), steps, 1.0, ZERO, *self.how, shape)
        self.weight = packed, steps, torch.zeros(len(weight), dtype=torch.int64)
        self.bias = bias.detach().float()

    def __call__(self, x: Levels, dtype: torch.dtype) -> Tensor:
        """The result, in float32 or bfloat16."""
        image, n_rows = self._image(x.levels)
        how: Any = (self.bias, *self.how, 1.0, 0, dtype, "none", [], "")
        return torch.ops.onednn.qconv_pointwise(image, x.step, ZERO, *self.weight, *how)[0, :, 0].t()[:n_rows]

    def _image(self, levels: Tensor) -> tuple[Tensor, int]:
        """(R, I) -> (1, I, 1, R), channels innermost, for FEWEST results or more, and how many of them count."""
        n_rows = len(levels) - self.span
        if n_rows < FEWEST:
            levels = F.pad(levels, (0, 0, 0, FEWEST - n_rows))
        return levels.t()[None, :, None], n_rows


@cache
def _has_instructions() -> bool:
    """Asked, and tried: the operators are for PyTorch's own compiler, and may change."""
    if not torch.cpu._is_vnni_supported():
        return False
    x, weight = torch.tensor([[1.0, -1.0]]), torch.tensor([[127.0, 127.0], [127.0, -127.0]])
    try:
        made = Convolution(weight[:, None], torch.ones(2), 1)(heard := in_levels(x), torch.float32).contiguous()
        Product(weight, torch.ones(2)).add_to(made, heard)
    except (RuntimeError, AttributeError, TypeError):
        return False
    return bool(torch.allclose(made, 2 * (x @ weight.t() + 1)))
