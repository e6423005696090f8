"""WN's dilated gated layers for inference, with every product in 8 bits (common/sound/int8.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from common.sound.int8 import Levels, Product, in_levels
from waveglow.gated_layers import Layer

BLOCK = 8192  # groups whose gates are made at once: fewer are slower, more take more memory
# G groups, R rows (some of G), C channels of WN, N channels of the condition, P groups it is for, S skip channels, k kernel size


class Int8Layer:
    """One layer's products; weights are rounded by row.

    As tanh(a) is 2 sigmoid(2a) - 1, a gate is one sigmoid: the weights of its signal are doubled, and those of what comes after it.
    """

    def __init__(self, layer: Layer, dilation: int, n_skip: int) -> None:
        channels, self.size = layer.res_skip.shape[1], layer.dilated.shape[1]
        self.dilation, self.padding = dilation, dilation * (self.size - 1) // 2
        doubled = torch.ones(2 * channels, 1, dtype=layer.bias.dtype)
        doubled[:channels] = 2
        self.dilated = Product(doubled * layer.dilated.flatten(1), doubled[:, 0] * layer.bias, BLOCK)
        self.groups = layer.groups()
        self.condition = Product(doubled.repeat(self.groups, 1) * layer.condition, None, BLOCK // self.groups)
        self.n_skip = n_skip
        self.skip = Product(2 * layer.res_skip[-n_skip:], layer.res_skip_bias[-n_skip:], BLOCK)
        residual = layer.res_skip[:-n_skip]
        self.residual = Product(2 * residual, layer.res_skip_bias[:-n_skip], BLOCK) if len(residual) else None

    def __call__(self, padded: Levels, condition: Levels, start: int, x: Tensor, skips: Tensor) -> None:
        """Add what the layer makes of padded (G + 2 padding, C) and condition (R / P, N) to x (R, C) and skips (R, S).

        The rows R are those from start on. The last layer adds nothing to x.
        """
        shifts = range(start, start + self.size * self.dilation, self.dilation)
        seen = torch.cat([padded.levels[shift : shift + len(x)] for shift in shifts], dim=1)
        gate = self.dilated(Levels(seen, padded.step), x.dtype)
        self.condition.add_to(gate.view(len(condition.levels), -1), condition)
        signal, opening = gate.sigmoid_().chunk(2, dim=1)
        half = in_levels(signal.sub_(0.5) * opening, largest=0.5)  # of the gated signal
        self.skip.add_to(skips, half)
        if self.residual is not None:
            self.residual.add_to(x, half)


def int8_layers(x: Tensor, condition: Tensor, steps: Tensor, layers: Sequence[Int8Layer]) -> Tensor:
    """x (B, G, C), condition (B, G / P, N) in levels of such steps (B) -> the sum of all skip outputs (B, G, S), in float32.

    What each layer hears is rounded by 1/254 of its largest in the item: the others of the batch do not change it.
    """
    x = x.clone(memory_format=torch.contiguous_format)  # channels innermost in memory too
    items = zip(x, map(Levels, condition, steps.tolist()), strict=True)
    return torch.stack([_of_one(*item, layers) for item in items])


def items_in_levels(condition: Tensor) -> tuple[Tensor, Tensor]:
    """(B, R, N) -> its items in levels, each of its own step, uint8 (B, R, N), and the steps (B), NaN of what is no number."""
    levels, steps = zip(*map(in_levels, condition.contiguous()), strict=True)
    return torch.stack(levels), torch.tensor(steps)


def _of_one(x: Tensor, heard: Levels, layers: Sequence[Int8Layer]) -> Tensor:
    """x (G, C), which becomes what the last layer hears, and the condition (G / P, N) -> (G, S)."""
    skips = torch.zeros(len(x), layers[-1].n_skip)
    for layer in layers:
        padded = in_levels(x, padding=layer.padding)
        if math.isnan(padded.step + heard.step):  # levels are numbers always
            return torch.full_like(skips, torch.nan)
        block = max(BLOCK // layer.groups, 1)
        for first in range(0, len(heard.levels), block):
            some = Levels(heard.levels[first : first + block], heard.step)
            rows = slice(first * layer.groups, (first + block) * layer.groups)
            layer(padded, some, rows.start, x[rows], skips[rows])
    return skips
