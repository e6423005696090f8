"""Levels of sounds, computed again with NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from common.audio.loudness import NORMALIZATIONS, normalize


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
