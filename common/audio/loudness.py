"""Level normalisation of whole sounds: to full scale, as the published recipe does, or to a common loudness."""

from __future__ import annotations

import torch
from torch import Tensor

# N samples

NORMALIZATIONS = ("none", "peak", "loudness")
FULL_SCALE = 1.0
TARGET_RMS = 0.1  # -20 dB relative to full scale


def normalize(audio: Tensor, mode: str) -> Tensor:
    """Scale audio (N,) by a single factor; silence and audio that is not finite are returned unchanged.

    Args:
        audio: float, in or slightly beyond [-1, 1].
        mode: "none"; "peak": the largest magnitude becomes full scale; "loudness": the root mean square becomes
            TARGET_RMS, or less if the largest magnitude would exceed full scale.
    """
    if mode == "none" or not audio.numel():
        return audio
    peak = audio.abs().max()
    if not 0 < peak < torch.inf:
        return audio
    gain = FULL_SCALE / peak
    if mode == "loudness":
        gain = torch.minimum(gain, TARGET_RMS / audio.square().mean().sqrt())
    return (gain * audio).clamp(-FULL_SCALE, FULL_SCALE)  # rounding may exceed full scale by one step
