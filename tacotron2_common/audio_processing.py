"""Griffin-Lim and the logarithm of mels as functions of magnitudes, as published."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from librosa import filters
from torch import Tensor

from common.audio.audio_processing import retrieve_phases
from common.audio.stft import STFT


def window_sumsquare(
    window: Any, n_frames: int, hop_length: int = 200, win_length: int = 800, n_fft: int = 800, **options: Any
) -> np.ndarray:
    """The sum of the squares of windows that overlap, for n_frames frames; `options` are librosa's dtype and norm."""
    lengths: dict[str, Any] = {"hop_length": hop_length, "win_length": win_length, "n_fft": n_fft}
    return filters.window_sumsquare(window=window, n_frames=n_frames, **lengths, **options)


def griffin_lim(magnitudes: Tensor, stft_fn: STFT, n_iters: int = 30) -> Tensor:
    """Audio (B, N) with about the magnitudes (B, F, T), from random phases (Griffin and Lim, 1984)."""
    phases = 2 * torch.pi * torch.rand_like(magnitudes)
    return retrieve_phases(magnitudes, torch.polar(magnitudes, phases), stft_fn, n_iters, momentum=0)


def dynamic_range_compression(x: Tensor, C: float = 1, clip_val: float = 1e-5) -> Tensor:
    """The logarithm of C times a magnitude, which counts as at least clip_val."""
    return torch.log(x.clamp(min=clip_val) * C)


def dynamic_range_decompression(x: Tensor, C: float = 1) -> Tensor:
    """The inverse of dynamic_range_compression."""
    return torch.exp(x) / C
