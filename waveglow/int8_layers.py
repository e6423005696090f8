"""WN's dilated gated layers for inference, with every product in 8 bits (common/kernels/int8.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.kernels.int8 import LARGEST, Convolution, Levels, Product, even_parts, in_levels, write_levels
from waveglow.gated_layers import Inputs, Layer

BLOCK = 8192  # groups whose gates are made at once: fewer are slower, more take more memory
# B batch, G groups, R rows (some of G), C channels of WN, I those that a layer hears, S of a skip, k kernel size
# N channels of the condition, P groups that a row of it is for


class Heard(NamedTuple):
    """What a layer hears, (G + 2 padding, I), and the step of its levels, NaN where it is no number."""

    padded: Tensor
    step: float


class Int8Layer:
    """One layer's products; weights are rounded by row.

    As tanh(a) is 2 sigmoid(2a) - 1, a gate is one sigmoid: the weights of its signal are doubled, and those of what comes after it.
    """

    def __init__(self, layer: Layer, dilation: int, n_skip: int, centre: float) -> None:
        channels, self.size = layer.res_skip.shape[1], layer.dilated.shape[2]
        self.dilation, self.padding = dilation, dilation * (self.size - 1) // 2
        doubled = torch.ones(2 * channels, 1, dtype=layer.bias.dtype)
        doubled[:channels] = 2
        self.set_dilated(doubled[:, :, None] * layer.dilated.transpose(1, 2), doubled[:, 0] * layer.bias)
        of_condition = doubled.repeat(layer.groups(), 1) * layer.condition
        self.condition = Product(of_condition, centre * of_condition.sum(dim=1))
        self.skip = Product(2 * layer.res_skip[-n_skip:], layer.res_skip_bias[-n_skip:])
        residual = layer.res_skip[:-n_skip]
        self.residual = Product(2 * residual, layer.res_skip_bias[:-n_skip]) if len(residual) else None

    def set_dilated(self, weight: Tensor, bias: Tensor) -> None:
        """Keep the dilated weight (2C, k, I) and bias (2C,)."""
        self.dilated = Convolution(weight, bias, self.dilation)

    def hear(self, heard: Tensor, x: Tensor) -> Heard:
        """What the layer hears of what the first one hears (G, I) and of today's x (G, C)."""
        return Heard(*in_levels(x, padding=self.padding))

    def gate(self, seen: Tensor, step: float, dtype: torch.dtype) -> Tensor:
        """seen (R + 2 padding, I) in levels of such a step -> the dilated convolution (R, 2C)."""
        return self.dilated(Levels(seen, step), dtype)

    def __call__(self, heard: Heard, condition: Levels, start: int, x: Tensor, skips: Tensor) -> None:
        """Add what the layer makes of what it hears and of condition (R / P, N) to x (R, C) and skips (R, S).

        The rows R are those from start on. The last layer adds nothing to x.
        """
        gate = self.gate(heard.padded[start : start + len(x) + 2 * self.padding], heard.step, x.dtype)
        self.condition.add_to(gate.view(len(condition.levels), -1), condition)
        half = _half_gated(gate)
        self.skip.add_to(skips, half)
        if self.residual is not None:
            self.residual.add_to(x, half)


class Int8FirstLayer(Int8Layer):
    """The first layer, whose dilated convolution hears so few channels that there is nothing to gain by rounding them."""

    def set_dilated(self, weight: Tensor, bias: Tensor) -> None:
        """Keep the dilated weight (2C, k, I) and bias (2C,) as they are."""
        self.weight, self.bias = weight.flatten(1), bias

    def hear(self, heard: Tensor, x: Tensor) -> Heard:
        """What the first layer hears (G, I), and a step of 1, or NaN where it is no number."""
        padded = F.pad(heard, (0, 0, self.padding, self.padding))
        return Heard(padded, 1.0 if heard.isfinite().all() else torch.nan)

    def gate(self, seen: Tensor, step: float, dtype: torch.dtype) -> Tensor:
        """seen (R + 2 padding, I) -> the dilated convolution (R, 2C)."""
        rows = len(seen) - 2 * self.padding
        taps = [seen[i * self.dilation :][:rows] for i in range(self.size)]
        return F.linear(torch.cat(taps, dim=1), self.weight.to(dtype), self.bias.to(dtype))


class Int8Layers:
    """All layers of a WN, from their weights; the condition is heard as what is above the centre, or below it."""

    def __init__(self, layers: Iterable[Layer], dilations: Sequence[int], n_skip: int, centre: float = 0.0) -> None:
        self.layers: list[Int8Layer] = []
        self.centre, self.n_skip = centre, n_skip
        for layer, dilation in zip(layers, dilations, strict=True):
            self.groups = layer.groups()
            kind = Int8Layer if self.layers else Int8FirstLayer
            self.layers.append(kind(layer, dilation, n_skip, centre))

    def __call__(self, inputs: Inputs, steps: Tensor) -> Tensor:
        """Inputs whose condition (B, G / P, N) is in levels of such steps (B) -> the sum of all skip outputs (B, G, S), in float32.

        What each layer hears is rounded by 1/254 of its largest in the item: the others of the batch do not change it.
        """
        x = inputs.x.clone(memory_format=torch.contiguous_format)  # channels innermost in memory too
        items = zip(inputs.heard, x, map(Levels, inputs.condition, steps.tolist()), strict=True)
        return torch.stack([self._of_one(*item) for item in items])

    def _of_one(self, first: Tensor, x: Tensor, condition: Levels) -> Tensor:
        """What the first layer hears (G, I), x (G, C), becoming what the last one hears, and the condition (G / P, N) -> (G, S)."""
        skips = torch.zeros(len(x), self.n_skip)
        n_blocks = min(math.ceil(len(x) / BLOCK), len(condition.levels))
        for layer in self.layers:
            heard, start = layer.hear(first, x), 0
            if math.isnan(heard.step + condition.step):  # levels are numbers always
                return torch.full_like(skips, torch.nan)
            for levels in condition.levels.tensor_split(n_blocks):  # even: a short block would be slow
                rows = slice(start, start + len(levels) * self.groups)
                layer(heard, Levels(levels, condition.step), start, x[rows], skips[rows])
                start = rows.stop
        return skips


def _half_gated(gate: Tensor) -> Levels:
    """Gates (R, 2C) before their sigmoid, those of the signal doubled -> half of the gated signal (R, C), within 0.5."""
    half = Levels(torch.empty(len(gate), gate.shape[1] // 2, dtype=torch.uint8), 0.5 / LARGEST)
    parts = even_parts(gate)
    scratch = torch.empty(parts[0].shape)
    for part, levels in zip(parts, even_parts(half.levels), strict=True):
        # Each step in bfloat16 would take longer, and so would a new scratch for each part.
        signal, opening = scratch[: len(part)].copy_(part).sigmoid_().chunk(2, dim=1)
        write_levels(signal.sub_(0.5), half.step, levels, signal, times=opening)
    return half


def items_in_levels(condition: Tensor, centre: float) -> tuple[Tensor, Tensor]:
    """(B, R, N) -> its items in levels, each of its own step, uint8 (B, R, N), and the steps (B), NaN of what is no number.

    Levels are of what is above the centre, or below it.
    """
    levels, steps = zip(*map(in_levels, (condition - centre).contiguous()), strict=True)
    return torch.stack(levels), torch.tensor(steps)
