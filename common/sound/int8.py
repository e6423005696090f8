"""Products of many rows with a weight, both in 8 bits: twice bfloat16's rate on an x86 CPU with VNNI instructions.

oneDNN takes unsigned levels times signed weights, sums them exactly, and writes the sums in a float type.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# R rows, I inputs, O outputs, k rows that one of the result hears
FEWEST = 64  # rows that a Product multiplies at once: for fewer oneDNN arranges the weight anew in each call
BLOCK = 2048  # rows whose float32 numbers stay in the CPU's cache while they are rounded
LARGEST = 127  # levels on either side of 0, of a weight and of x alike
ZERO = 128  # the level of x = 0
TO_INTEGER = 1.5 * 2**23  # a float32 number next to it has no fraction: its last bits are the nearest integer's


class Levels(NamedTuple):
    """Numbers as (levels - ZERO) * step, levels uint8 of any shape."""

    levels: Tensor
    step: float


def in_levels(x: Tensor, largest: float | None = None, padding: int = 0) -> Levels:
    """x (R, C), nowhere beyond `largest` (by default its own largest), rounded to the nearest level; rows of 0 before and after.

    NaN or inf in it give a step of NaN.
    """
    if largest is None:
        lowest, highest = x.aminmax()
        largest = max(float(highest), -float(lowest))
    step = largest / LARGEST or 1.0
    levels = torch.empty(len(x) + 2 * padding, x.shape[1], dtype=torch.uint8)
    before, inner, after = levels.tensor_split([padding, padding + len(x)])
    before.fill_(ZERO)
    after.fill_(ZERO)
    for part, made in zip(x.split(BLOCK), inner.split(BLOCK), strict=True):
        write_levels(part, step, made)
    return Levels(levels, step if step < torch.inf else torch.nan)


def write_levels(x: Tensor, step: float, levels: Tensor, times: Tensor | None = None) -> None:
    """Round x, or x * times, float32 or bfloat16 and within LARGEST steps of 0, to the nearest levels, uint8 of its shape."""
    zero = torch.tensor([TO_INTEGER + ZERO])  # not a number: with a tensor the sum of bfloat16 numbers is in float32
    made = torch.add(zero, x, alpha=1 / step) if times is None else torch.addcmul(zero, x, times, value=1 / step)
    levels.copy_(made.view(torch.int32))


def can_multiply(device: torch.device) -> bool:
    """Whether Product works there, and fast: without VNNI its sums of two products would saturate."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available() and _has_instructions()


class Product:
    """x (R, I) in levels -> x @ weight.T + bias (R, O), for a weight (O, I), rounded by 1/254 of the largest of its row.

    A weight (O, k, I) is that of a convolution: each row of the result hears k rows of x, `dilation` apart, its own and later ones.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dilation: int = 1) -> None:
        weight = weight.detach().float()
        self.steps = (weight.flatten(1).abs().amax(dim=1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
        taps = weight.reshape(len(weight), -1, weight.shape[-1]) / self.steps[:, None, None]
        levels = taps.round().to(torch.int8).transpose(1, 2)[:, :, None].contiguous()  # (O, I, 1, k)
        self.span = (levels.shape[3] - 1) * dilation
        self.how: Any = ([1, 1], [0, 0], [1, dilation], 1)  # stride, padding, dilation, groups
        shape = [1, levels.shape[1], 1, FEWEST + self.span]  # with more rows the weight is arranged the same way
        self.weight = torch.ops.onednn.qconv_prepack(levels, self.steps, 1.0, ZERO, *self.how, shape)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = None if bias is None else bias.detach().float()

    def __call__(self, x: Levels, dtype: torch.dtype) -> Tensor:
        """The product (R, O), or (R - (k - 1) * dilation, O), in float32 or bfloat16."""
        image, n_rows = self._image(x.levels)
        how: Any = (self.weight, self.steps, self.zeros, self.bias, *self.how, 1.0, 0, dtype, "none", [], "")
        return torch.ops.onednn.qconv_pointwise(image, x.step, ZERO, *how)[0, :, 0].t()[:n_rows]

    def add_to(self, total: Tensor, x: Levels) -> None:
        """Add the product to total (R, O), contiguous, in float32 or bfloat16."""
        if len(total) < FEWEST:
            total += self(x, torch.float32)
            return
        how: Any = (self.bias, *self.how, 1.0, 0, total.dtype, 1.0, 0, "sum", 1.0, None, [], None)
        weight = (self.weight, self.steps, self.zeros)
        image, _ = self._image(x.levels)
        torch.ops.onednn.qconv2d_pointwise.binary(image, x.step, ZERO, *weight, total.t()[None, :, None], *how)

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
    x = torch.tensor([[1.0, -1.0]]).repeat(FEWEST, 1)  # so many that add_to does not go around its operator
    weight = torch.tensor([[127.0, 127.0], [127.0, -127.0]])
    try:
        made = (product := Product(weight, torch.ones(2)))(in_levels(x), torch.float32)
        product.add_to(made, in_levels(x))
    except (RuntimeError, AttributeError, TypeError):
        return False
    return bool(torch.allclose(made, 2 * (x @ weight.t() + 1)))
