"""Silence in audio: at the ends of a clip, and clips that are nothing else."""

# N samples

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FRAME = 0.01  # seconds over which the level is measured
DEPTH = 40.0  # dB; frames whose RMS is further than this below the loudest frame's are silence
ROUNDS_TO_ZERO = 0.5 / 32768  # samples below this amplitude are zero in 16 bits


def is_silent(samples: npt.NDArray[np.floating]) -> bool:
    """Return True if all samples (N,) in [-1, 1] are zero in 16 bits."""
    return not len(samples) or bool(np.abs(samples).max() < ROUNDS_TO_ZERO)


def sound_bounds(samples: npt.NDArray[np.floating], sampling_rate: int) -> tuple[int, int]:
    """Return the sample range [start, end) of the frames that are not silence; (0, 0) for pure zeros.

    Frames do not overlap and start at the first sample; the last one may be shorter. The threshold is relative to the loudest
    frame, so a clip's level has no effect.

    Args:
        samples: audio (N,), N at least 1.
        sampling_rate: in Hz.
    """
    starts = np.arange(0, len(samples), max(1, round(FRAME * sampling_rate)))
    ends = np.append(starts[1:], len(samples))
    powers = np.add.reduceat(np.square(samples, dtype=np.float64), starts) / (ends - starts)
    (sounding,) = np.nonzero((powers >= powers.max() * 10 ** (-DEPTH / 10)) & (powers > 0))
    return (int(starts[sounding[0]]), int(ends[sounding[-1]])) if len(sounding) else (0, 0)
