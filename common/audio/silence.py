"""Silence in audio: the ends of a clip, and clips that hold nothing else."""

# N samples

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FRAME = 0.01  # seconds over which a level is measured
DEPTH = 40.0  # dB; a frame of a lower RMS than the loudest frame's by more than this is silence
ROUNDS_TO_ZERO = 0.5 / 32768  # samples below this amplitude are zeros in 16 bits


def is_silent(samples: npt.NDArray[np.floating]) -> bool:
    """Return True if all samples (N,) in [-1, 1] are zeros in 16 bits."""
    return not len(samples) or bool(np.abs(samples).max() < ROUNDS_TO_ZERO)


def sound_bounds(samples: npt.NDArray[np.floating], sampling_rate: int) -> tuple[int, int]:
    """Return the first sample, and the last + 1, of the frames that are not silence; (0, 0) for zeros alone.

    Frames follow each other without overlap from the first sample; the last may be shorter. The threshold is relative to the
    loudest frame, so that a clip's level has no effect.

    Args:
        samples: audio (N,), N at least 1.
        sampling_rate: in Hz.
    """
    starts = np.arange(0, len(samples), max(1, round(FRAME * sampling_rate)))
    ends = np.append(starts[1:], len(samples))
    powers = np.add.reduceat(np.square(samples, dtype=np.float64), starts) / (ends - starts)
    (sounding,) = np.nonzero((powers >= powers.max() * 10 ** (-DEPTH / 10)) & (powers > 0))
    return (int(starts[sounding[0]]), int(ends[sounding[-1]])) if len(sounding) else (0, 0)
