"""WN's dilated gated layers for inference, with every product in 8 bits (common/sound/int8.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from common.sound.int8 import Levels, Product, in_levels
from common.sound.recurrence import tanh_
from waveglow.gated_layers import BLOCK, Layer

# G groups, R rows (some of G), C channels of WN, N channels of the condition, k kernel size


class Int8Layer:
    """One layer's products; weights are rounded by row."""

    def __init__(self, layer: Layer, dilation: int) -> None:
        self.size, self.dilation = layer.dilated.shape[1], dilation
        self.padding = dilation * (self.size - 1) // 2
        self.dilated = Product(layer.dilated.flatten(1), layer.bias, BLOCK)
        self.condition = Product(layer.condition, None, BLOCK)
        self.res_skip = Product(layer.res_skip, layer.res_skip_bias, BLOCK)
        self.has_residual = len(layer.res_skip) > layer.res_skip.shape[1]

    def __call__(self, padded: Levels, condition: Levels, start: int, dtype: torch.dtype) -> Tensor:
        """padded (G + 2 padding, C), condition (R, N) of the rows from start on -> residual and skip (R, 2C or C)."""
        rows, shifts = len(condition.levels), range(start, start + self.size * self.dilation, self.dilation)
        seen = torch.cat([padded.levels[shift : shift + rows] for shift in shifts], dim=1)
        gate = self.dilated(Levels(seen, padded.step), dtype)
        self.condition.add_to(gate, condition)
        signal, opening = gate.chunk(2, dim=1)
        return self.res_skip(in_levels(tanh_(signal) * opening.sigmoid_(), largest=1.0), dtype)


def int8_layers(x: Tensor, condition: Tensor, layers: Sequence[Int8Layer]) -> Tensor:
    """x (B, G, C), condition (B, G, N) -> the sum of all layers' skip outputs (B, G, C), in x's dtype.

    What each layer hears is rounded by 1/254 of its largest in the item: the others of the batch do not change it.
    """
    items = zip(x.contiguous(), condition.contiguous(), strict=True)  # channels innermost in memory too
    return torch.stack([_of_one(*item, layers) for item in items])


def _of_one(x: Tensor, condition: Tensor, layers: Sequence[Int8Layer]) -> Tensor:
    """x (G, C), condition (G, N) -> (G, C)."""
    channels, skips = x.shape[1], torch.zeros_like(x)
    heard = in_levels(condition)
    for layer in layers:
        padded = in_levels(x, padding=layer.padding)
        if math.isnan(padded.step + heard.step):  # levels are numbers always
            return torch.full_like(x, torch.nan)
        deeper = torch.empty_like(x)
        for start in range(0, len(x), BLOCK):
            rows = slice(start, start + BLOCK)
            res_skip = layer(padded, Levels(heard.levels[rows], heard.step), start, x.dtype)
            skips[rows] += res_skip[:, -channels:]
            if layer.has_residual:  # the last has none
                torch.add(x[rows], res_skip[:, :channels], out=deeper[rows])
        x = deeper
    return skips
