"""Silence in audio, at the ends of a clip.

Every level is measured about the mean: microphones and sound cards add a constant offset, which is no sound.
"""

# N samples, T frames

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FRAME = 0.01  # seconds over which the level is measured
DEPTH = 40.0  # dB; frames whose RMS is further than this below the loudest frame's are silence
NO_POWER = 1e-12  # mean squares below are rounding errors


def without_offset(samples: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return samples (N,) about their mean."""
    exact = samples.astype(np.float64)
    return exact - exact.mean() if len(exact) else exact


def frame_powers(samples: npt.NDArray[np.floating], size: int) -> npt.NDArray[np.float64]:
    """Return the mean square (T,) of each frame of `size` samples about the frame's own mean; the last one may be shorter.

    An offset may begin within a clip, after digital silence, and drift; within a frame it is constant.
    """
    starts = np.arange(0, len(samples), size)
    lengths = np.diff(starts, append=len(samples))
    exact = samples.astype(np.float64)
    means, squares = (np.add.reduceat(values, starts) / lengths for values in (exact, np.square(exact)))
    powers: npt.NDArray[np.float64] = squares - np.square(means)
    return np.where(powers < NO_POWER, 0.0, powers)


def sound_bounds(samples: npt.NDArray[np.floating], sampling_rate: int) -> tuple[int, int]:
    """Return the sample range [start, end) of the frames that are not silence; (0, 0) if there are none.

    Frames do not overlap and start at the first sample; the last one may be shorter. The threshold is relative to the loudest
    frame, so a clip's level has no effect.

    Args:
        samples: audio (N,), N at least 1.
        sampling_rate: in Hz.
    """
    size = max(1, round(FRAME * sampling_rate))
    powers = frame_powers(samples, size)
    (sounding,) = np.nonzero((powers >= powers.max() * 10 ** (-DEPTH / 10)) & (powers > 0))
    return (int(sounding[0]) * size, min(len(samples), (int(sounding[-1]) + 1) * size)) if len(sounding) else (0, 0)
