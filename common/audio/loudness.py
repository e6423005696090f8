"""Levels of a whole sound: to full scale, as the published recipe writes its files, or to one loudness for all sounds."""

from __future__ import annotations

import torch
from torch import Tensor

# N samples

NORMALIZATIONS = ("none", "peak", "loudness")
FULL_SCALE = 1.0
TARGET_RMS = 0.1  # -20 dB relative to full scale


def normalize(audio: Tensor, mode: str) -> Tensor:
    """Scale audio (N,) by one factor; silence and audio that is not finite stay as they are.

    Args:
        audio: float, in [-1, 1] or a little out of it.
        mode: "none"; "peak": the largest magnitude becomes full scale; "loudness": the root mean square becomes
            TARGET_RMS, or less where the largest magnitude would exceed full scale.
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
