"""Streaming: audio in parts, with a short first part. Each part is vocoded with the frames around it that affect it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from waveglow.model import WaveGlow

# M mels, T frames, N samples

FIRST_FRAMES = (
    8  # of the first part; lengths double from part to part, so that a smaller share of frames is computed twice
)
MOST_FRAMES = 256
N_REACHES = 2  # frames around a part, in half receptive fields of one flow; the receptive field of all flows is larger


def stream(model: WaveGlow, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Vocode mels (1, M, T) into parts (1, n) of audio. They approximate `model.infer` with the same seed: far frames are left out.

    Args:
        model: plain or prepared.
        mels: log-mel frames.
        sigma: standard deviation of the noise.
        finish: a function that postprocesses a part (1, n) with the audio around it and keeps its length.
    """
    config, frames = model.config, mels.shape[2]
    unit = config.n_group // math.gcd(config.hop_length, config.n_group)  # number of frames that make whole groups
    around = _round_up(N_REACHES * config.reach + math.ceil(config.upsample_kernel_size / config.hop_length), unit)
    n_groups = frames * config.hop_length // config.n_group
    z = torch.randn(1, config.n_group, n_groups, dtype=model.flow_dtype(), device=mels.device)
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
