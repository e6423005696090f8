"""Dropout masks for many steps at once, from few random draws."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def draw_keep_mask(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """True for each number that dropout keeps, with probability 1 - p; on a CPU p is rounded to the nearest 1/65536.

    On a CPU four numbers share one 64-bit random draw: uniform floats take three times as long, Bernoulli's generator nine times.
    """
    if device.type != "cpu":
        return torch.rand(shape, device=device) >= p
    count = math.prod(shape)
    levels = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    return levels[:count].view(shape) >= min(round(p * 2**16), 2**16 - 1) - 2**15


def dropout_mask(like: Tensor, shape: tuple[int, ...], p: float, training: bool) -> Tensor | None:
    """A mask of 0 and 1 / (1 - p) in `like`'s dtype and device, drawn for all steps at once; None without dropout."""
    if not training or p == 0:
        return None
    return draw_keep_mask(shape, p, like.device).to(like.dtype).div_(1 - p)
