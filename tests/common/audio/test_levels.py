"""Levels: the silence detector against frames of known levels, and normalisation computed again with NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from common.audio.audio_processing import NORMALIZATIONS, normalize
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


def speech_like(level: float) -> torch.Tensor:
    """Noise whose level falls along the clip: a peak about seven times the root mean square."""
    noise = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    return level * noise * torch.linspace(1, 0.01, 20_000) ** 2 / 4


@pytest.mark.parametrize("level", [0.01, 0.3, 5.0])
def test_peak_scales_the_largest_magnitude_to_full_scale(level: float) -> None:
    audio = speech_like(level)
    scaled = normalize(audio, "peak")
    assert scaled.abs().max() == pytest.approx(1.0, abs=1e-6) and scaled.abs().max() <= 1
    np.testing.assert_allclose(scaled.numpy(), audio.numpy() / np.abs(audio.numpy()).max(), atol=1e-6)


@pytest.mark.parametrize("level", [0.01, 0.3, 5.0])
def test_loudness_gives_every_sound_the_same_root_mean_square(level: float) -> None:
    audio = speech_like(level)
    scaled = normalize(audio, "loudness").double().numpy()
    assert 20 * math.log10(np.sqrt((scaled**2).mean())) == pytest.approx(-20, abs=0.01)
    assert np.corrcoef(scaled, audio.numpy())[0, 1] == pytest.approx(1)


def test_loudness_clips_no_sample() -> None:
    audio = torch.zeros(22050)
    audio[100] = -0.02  # one click: its root mean square would need a gain of 740
    assert normalize(audio, "loudness").min() == -1 and normalize(audio, "loudness").count_nonzero() == 1


def test_loudness_scales_no_sample_beyond_full_scale() -> None:
    """Two clicks would need a gain of hundreds: the larger one is at full scale, and the smaller one keeps its share."""
    audio = torch.zeros(22050)
    audio[100], audio[200] = -0.02, 0.01
    scaled = normalize(audio, "loudness")
    assert scaled[100].item() == -1 and scaled[200].item() == pytest.approx(0.5)


@pytest.mark.parametrize("mode", NORMALIZATIONS)
def test_silence_and_broken_audio_stay(mode: str) -> None:
    for audio in (torch.zeros(0), torch.zeros(5), torch.tensor([0.1, math.nan]), torch.tensor([0.1, math.inf])):
        assert torch.equal(normalize(audio, mode), audio) or audio.isnan().any()
    assert normalize(torch.tensor([0.1, math.nan]), mode)[0] == pytest.approx(0.1)
    audio = speech_like(0.3)
    assert (normalize(audio, mode) is audio) == (mode == "none")
