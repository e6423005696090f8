"""Vocoding with noise drawn item by item, all at once, or in parts of which the first comes soon.

A part is vocoded together with the neighbouring frames that affect it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from common.draws import Draws
from waveglow.model import WaveGlow

# B batch, M mels, T frames, N samples, g samples in a group, G groups

# Frames of the first part; lengths double from part to part, so that a smaller share of frames is computed twice.
FIRST_FRAMES = 8
MOST_FRAMES = 256
N_REACHES = 2  # context around a part, in half receptive fields of one flow; that of all flows together is larger


def draw_noise(model: WaveGlow, mels: Tensor, draws: Draws | None) -> Tensor:
    """Draw the noise z (B, g, G) for mels (B, M, T), item by item; without draws from PyTorch's generator."""
    config = model.config
    n_groups = mels.shape[2] * config.hop_length // config.n_group
    if draws is None:
        return torch.randn(len(mels), config.n_group, n_groups, dtype=model.flow_dtype(), device=mels.device)
    return draws.normal(n_groups, config.n_group).transpose(1, 2).to(model.flow_dtype())


def vocode(model: WaveGlow, mels: Tensor, sigma: float, draws: Draws | None) -> Tensor:
    """Vocode mels (B, M, T) into audio (B, N); the model is plain or prepared."""
    return model.infer(mels, sigma, draw_noise(model, mels, draws))


def stream(
    model: WaveGlow, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor], draws: Draws | None = None
) -> Iterator[Tensor]:
    """Vocode mels (1, M, T) into parts that join to nearly the audio (1, N) of `vocode` with the same draws.

    Args:
        model: plain or prepared.
        mels: log-mel frames.
        sigma: standard deviation of the noise.
        finish: postprocesses a part (1, n) together with the audio around it and keeps its length.
        draws: random numbers of the item, or None for PyTorch's generator.
    """
    config, frames = model.config, mels.shape[2]
    unit = config.n_group // math.gcd(config.hop_length, config.n_group)  # fewest frames that are whole groups
    around = _round_up(N_REACHES * config.reach + math.ceil(config.upsample_kernel_size / config.hop_length), unit)
    z = draw_noise(model, mels, draws)
    start, n_frames = 0, _round_up(FIRST_FRAMES, unit)
    while start < frames:
        end = min(start + n_frames, frames)
        first, last = max(start - around, 0), min(end + around, frames)
        groups = slice(*(frame * config.hop_length // config.n_group for frame in (first, last)))
        audio = finish(model.infer(mels[:, :, first:last], sigma, z[:, :, groups]))
        yield audio[:, (start - first) * config.hop_length : (end - first) * config.hop_length]
        start, n_frames = end, min(2 * n_frames, _round_up(MOST_FRAMES, unit))


def _round_up(number: int, unit: int) -> int:
    """Round up to a multiple of unit."""
    return math.ceil(number / unit) * unit
