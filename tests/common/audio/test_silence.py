"""The silence detector against frames whose level has a closed form."""

from __future__ import annotations

import numpy as np
import pytest

from common.audio.silence import DEPTH, FRAME, is_silent, sound_bounds

RATE = 8000
SIZE = 80  # samples of a frame of 10 ms


def frames(*decibels: float) -> np.ndarray:
    """Frames of a square wave at these levels: the RMS of a square wave is its amplitude."""
    wave = np.where(np.arange(SIZE) % 8 < 4, 1.0, -1.0)
    return np.concatenate([10 ** (level / 20) * wave for level in decibels]).astype(np.float32)


@pytest.mark.parametrize("level", [0.0, -30.0])
@pytest.mark.parametrize(
    ("decibels", "first", "last"),
    [
        ((0, 0, 0), 0, 3),
        ((-np.inf, 0, -np.inf), 1, 2),
        ((-40.1, -40.1, 0, -39.9, -40.1), 2, 4),  # 40 dB below the loudest is the limit
        ((-39.9, -60, 0, -60, -39.9, -50), 0, 5),  # silence between sounds is inside
        ((-20, 0, -6, -45), 0, 3),
    ],
)
def test_bounds_are_those_of_frames_above_the_threshold(decibels, first: int, last: int, level: float) -> None:
    assert (FRAME, DEPTH) == (0.01, 40.0)
    assert sound_bounds(frames(*(level + each for each in decibels)), RATE) == (first * SIZE, last * SIZE)


def test_a_last_frame_that_is_shorter_counts_by_its_own_level() -> None:
    samples = np.concatenate([frames(0, -50), frames(-39)[:7]])
    assert sound_bounds(samples, RATE) == (0, 2 * SIZE + 7)
    assert sound_bounds(np.array([0.5], np.float32), RATE) == (0, 1)


def test_zeros_have_no_sound() -> None:
    assert sound_bounds(np.zeros(500, np.float32), RATE) == (0, 0)


def test_a_clip_is_silent_if_16_bits_hold_zeros_alone() -> None:
    for amplitude, expected in ((0.0, True), (0.49 / 32768, True), (0.51 / 32768, False)):
        samples = np.array([0.0, -amplitude], np.float32)
        assert is_silent(samples) == (not np.rint(samples * 32768).any()) == expected
    assert is_silent(np.zeros(0, np.float32))
