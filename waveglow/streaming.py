"""Sound in parts, the first one soon: each part of a clip is made together with the frames around it that it hears."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from waveglow.model import WaveGlow

# M mels, T frames, N samples

FIRST_FRAMES = 8  # of the first part; each one after it is twice as long, so that less and less is made twice
MOST_FRAMES = 256
N_REACHES = 2  # how far a part listens to both sides, in lengths that one flow's layers see; all flows see more


def stream(model: WaveGlow, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
    """Mels (1, M, T) -> what `model.infer` makes of them with the same seed (1, N), in parts, but for what is not listened to.

    Args:
        sigma: standard deviation of the noise.
        finish: what is to be done to a part (1, n) with the sound around it; keeps its length.
    """
    config, frames = model.config, mels.shape[2]
    unit = config.n_group // math.gcd(config.hop_length, config.n_group)  # frames that are whole groups
    around = _up(N_REACHES * config.reach + math.ceil(config.upsample_kernel_size / config.hop_length), unit)
    n_groups = frames * config.hop_length // config.n_group
    z = torch.randn(1, config.n_group, n_groups, dtype=model.flow_dtype(), device=mels.device)
    start, n_frames = 0, _up(FIRST_FRAMES, unit)
    while start < frames:
        end = min(start + n_frames, frames)
        first, last = max(start - around, 0), min(end + around, frames)
        groups = slice(*(frame * config.hop_length // config.n_group for frame in (first, last)))
        sound = finish(model.infer(mels[:, :, first:last], sigma, z[:, :, groups]))
        yield sound[:, (start - first) * config.hop_length : (end - first) * config.hop_length]
        start, n_frames = end, min(2 * n_frames, _up(MOST_FRAMES, unit))


def _up(number: int, unit: int) -> int:
    """The next multiple of unit."""
    return math.ceil(number / unit) * unit
