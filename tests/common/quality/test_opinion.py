"""Predicted opinions: recordings before what was done to them, and no length that fails."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from common.audio.audio_processing import read_audio
from common.quality.opinion import OpinionScore
from tests.recipe import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def score() -> OpinionScore:
    pytest.importorskip("xls_r_sqa", reason="bash scripts/evaluation.sh installs it")  # the part that wants no stand-in
    return OpinionScore()


@pytest.fixture(scope="module")
def clip() -> tuple[np.ndarray, int]:
    audio = read_audio(ROOT / "corpus" / "sentences" / "sentence_0219.ogg", None)
    return audio.samples.numpy(), audio.rate


def test_noise_and_missing_treble_cost_points(score: OpinionScore, clip: tuple[np.ndarray, int]) -> None:
    samples, rate = clip
    noise = np.random.default_rng(0).normal(size=len(samples))
    noisy = samples + 0.1 * samples.std() / noise.std() * noise  # 20 dB below the speech
    spectrum = np.fft.rfft(samples)
    spectrum[round(1500 / rate * len(samples)) :] = 0
    muffled = np.fft.irfft(spectrum, len(samples))
    clean = score(samples, rate)
    assert 3 < clean <= 5
    assert 1 <= score(noisy, rate) < clean - 0.3
    assert 1 <= score(muffled, rate) < clean - 0.3


def test_the_level_does_not_matter(score: OpinionScore, clip: tuple[np.ndarray, int]) -> None:
    samples, rate = clip
    assert score(0.1 * samples, rate) == pytest.approx(score(samples, rate), abs=1e-3)


def test_it_is_the_packages_own_score(score: OpinionScore, clip: tuple[np.ndarray, int]) -> None:
    """Samples at 16 kHz stay as they are; the score of a clip longer than a window is the mean over its windows."""
    samples = np.resize(clip[0], 122880 + 16000)
    windows = torch.from_numpy(np.stack([samples[:122880], samples[16000:]]))
    with torch.no_grad():
        expected = score.model(windows).mean().item()
    assert score(samples, 16000) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("count", [0, 1, 7, 400])
def test_any_length_has_a_score(score: OpinionScore, clip: tuple[np.ndarray, int], count: int) -> None:
    assert 1 <= score(clip[0][5000 : 5000 + count], clip[1]) <= 5


def test_nothing_takes_the_stand_in_for_torchaudio(score: OpinionScore, capsys) -> None:
    assert getattr(sys.modules.get("torchaudio"), "__file__", "real") is not None
    OpinionScore()
    assert capsys.readouterr().out == ""
