"""Digital silence: stretches of a clip without sound, not even a room's, and low noise in their place.

Noise gates and editors leave such stretches. Their log-mels lie at the lower bound, log(1e-5), far below those of room noise.
A model that was trained on recordings with noise predicts them badly; docs/own-voice.md has the figures.
"""

# N samples

from __future__ import annotations

import hashlib
import math

import numpy as np

from studio.prepare.levels import frame_size

STEP = 1 / 32768  # of 16 bits
SHORTEST = 0.03  # seconds; from half a window of the mels on, 0.023, a frame at an end of a clip is silent as a whole
BELOW_SPEECH = 50.0  # dB, of the noise that fills a stretch
LOWEST_NOISE = 2 * STEP  # root mean square; less would be digital silence again


def find_silence(audio: np.ndarray, rate: int) -> np.ndarray:
    """Return for each sample (N,) True within digital silence.

    That is a stretch of at least SHORTEST in which each frame of 10 ms has a standard deviation below one step of 16 bits:
    zeros, any other constant, and dither. A room at -70 dBFS has ten steps.

    Args:
        audio: a clip as it is written, (N,) in [-1, 1], N at least 1.
        rate: in Hz.
    """
    starts = np.arange(0, len(audio), frame_size(rate))
    lengths = np.diff(starts, append=len(audio))
    exact = audio.astype(np.float64)
    means, powers = (np.add.reduceat(values, starts) / lengths for values in (exact, np.square(exact)))
    silent = np.repeat(powers - np.square(means) < STEP**2, lengths)
    edges = np.flatnonzero(np.diff(silent, prepend=False, append=False))
    for start, end in edges.reshape(-1, 2):
        silent[start:end] = end - start >= round(SHORTEST * rate)
    return silent


def fill_silence(audio: np.ndarray, silent: np.ndarray) -> np.ndarray:
    """Add white noise, BELOW_SPEECH below the other samples' root mean square, to the silent samples; no other sample changes.

    The clip itself is the seed of the noise: copies of a clip stay copies.

    Args:
        audio: a clip, (N,) in [-1, 1].
        silent: (N,), of find_silence.
    """
    power = float(np.mean(np.square(audio[~silent], dtype=np.float64))) if not silent.all() else 0.0
    level = max(math.sqrt(power) * 10 ** (-BELOW_SPEECH / 20), LOWEST_NOISE)
    seed = list(hashlib.sha256(audio.tobytes()).digest())
    filled = audio.copy()
    filled[silent] += np.random.default_rng(seed).normal(0.0, level, int(silent.sum()))
    return filled
