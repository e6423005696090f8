"""Mel-cepstra against closed forms, distortion against a known filter's, pitch against pulses of known rate."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from common.audio.audio_processing import griffin_lim, read_audio
from common.audio.stft import AudioConfig, TacotronSTFT
from common.quality.likeness import Likeness, aligned_likeness, analyse, likeness, mel_cepstra, mel_warping
from tests.recipe import ROOT

RATE = 22050
FILES = [ROOT / "corpus" / "sentences" / f"sentence_{number:04d}.ogg" for number in (219, 220)]


@pytest.fixture
def world() -> None:
    if find_spec("pyworld") is None:  # importorskip would also skip where it wants a stand-in for a module
        pytest.skip("pyworld, of requirements/eval.txt, is not installed")


def clips() -> list[np.ndarray]:
    return [read_audio(path, RATE).samples.numpy() for path in FILES]


def pulses(pitch: float, seconds: float = 1.5) -> np.ndarray:
    """Cosines in phase at all multiples of the pitch up to 8 kHz."""
    time = np.arange(round(seconds * RATE)) / RATE
    count = int(8000 / pitch)
    return sum(np.cos(2 * np.pi * number * pitch * time) for number in range(1, count + 1)) / (2 * count)


@pytest.mark.parametrize("alpha", [0.0, 0.41, 0.6])
def test_cosines_on_the_warped_axis_are_one_coefficient_each(alpha: float) -> None:
    omega = np.linspace(0, np.pi, 513)
    warped = np.angle((np.exp(1j * omega) - alpha) / (1 - alpha * np.exp(1j * omega)))  # of the all-pass itself
    log_magnitude = 1.5 - 0.7 * np.cos(3 * np.abs(warped)) + 0.2 * np.cos(24 * np.abs(warped))
    expected = np.zeros(25)
    expected[[0, 3, 24]] = 1.5, -0.7, 0.2
    assert np.allclose(mel_cepstra(np.exp(2 * log_magnitude)[None], alpha)[0], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("rate", "alpha"), [(8000, 0.312), (16000, 0.41), (22050, 0.455), (44100, 0.544), (48000, 0.554)]
)
def test_warping_that_is_nearest_to_the_mel_scale(rate: int, alpha: float) -> None:
    """The values that pysptk.util.mcepalpha gives."""
    assert mel_warping(rate) == pytest.approx(alpha, abs=0.0015)


def test_a_clip_is_like_itself_at_any_level_and_a_band_that_no_mel_has_does_not_outweigh_all_others(world) -> None:
    audio = AudioConfig()
    clip = torch.from_numpy(clips()[0]).float()
    stft = TacotronSTFT.from_config(audio)
    copy = griffin_lim(stft.mel_spectrogram(clip[None]), stft)[0].numpy()  # silent above 8 kHz
    assert likeness(copy, clip.numpy(), RATE).mcd < 6  # 22 dB where that band counts
    clip = clip.numpy()
    assert likeness(clip, clip, RATE) == (0, 0, 0)
    softer = likeness(0.5 * clip, clip, RATE)  # the level is in c0 alone
    assert softer.mcd < 0.01
    assert softer.f0_rmse < 1e-6


def test_distortion_of_a_known_filter(world) -> None:
    """A filter adds its own mel-cepstrum to every frame's: (1 - 0.5/z) is -sum of 0.5^m/m cos(mw) in log magnitude."""
    noise = np.random.default_rng(0).normal(size=RATE) * 0.1
    filtered = noise - 0.5 * np.concatenate([[0], noise[:-1]])
    plain, changed = analyse(noise, RATE), analyse(filtered, RATE)
    omega = np.linspace(0, np.pi, 2049)
    expected = mel_cepstra(np.abs(1 - 0.5 * np.exp(-1j * omega))[None] ** 2, mel_warping(RATE))[0]
    found = (changed.cepstra - plain.cepstra).mean(axis=0)
    assert np.allclose(found, expected, atol=0.03)
    assert abs(expected[1]) > 0.3


@pytest.mark.parametrize(("pitch", "other"), [(200, 210), (120, 100)])
def test_pitch_of_pulses(world, pitch: float, other: float) -> None:
    found = likeness(pulses(pitch), pulses(other), RATE)
    assert found.f0_rmse == pytest.approx(abs(pitch - other), rel=0.02)
    assert found.voicing_error < 0.05


def test_voiced_against_unvoiced_and_a_stretched_clip_is_warped_back(world) -> None:
    noise = np.random.default_rng(0).normal(size=RATE) * 0.1
    found = likeness(pulses(200, 1.0), noise, RATE)
    assert found.voicing_error > 0.8
    assert math.isnan(likeness(noise, np.zeros(RATE), RATE).f0_rmse)
    steps = np.concatenate([pulses(150, 0.6), pulses(250, 0.6)])
    longer = np.concatenate([pulses(150, 1.2), pulses(250, 0.6)])
    warped = likeness(longer, steps, RATE)
    assert warped.f0_rmse < 2
    assert warped.voicing_error < 0.05


@pytest.mark.parametrize("count", [0, 1, 50, 2204])
def test_any_length_can_be_compared(world, count: int) -> None:
    found = likeness(clips()[0][3000 : 3000 + count], clips()[1], RATE)
    assert isinstance(found, Likeness)
    assert math.isfinite(found.mcd)
    assert 0 <= found.voicing_error <= 1


def test_measures_of_copies_have_their_extremes() -> None:
    """PESQ's largest value is 0.999 + 4 / (1 + e^-2.8...) = 4.64 (P.862.2), ESTOI's is the correlation of a clip with itself."""
    for package in ("pesq", "pystoi"):
        pytest.importorskip(package, reason="of requirements/eval.txt")
    clip = clips()[0]
    noise = np.random.default_rng(0).normal(size=len(clip)) * clip.std()
    same, better, worse = (aligned_likeness(clip + share * noise, clip, RATE) for share in (0, 0.1, 1))
    assert same == pytest.approx({"pesq": 4.644, "estoi": 1.0}, abs=1e-3)
    assert all(same[name] > better[name] > worse[name] for name in ("pesq", "estoi"))
    muted = np.concatenate([clip[: len(clip) // 5], np.zeros(len(clip) // 5), clip[len(clip) // 5 * 2 :]])
    missing, added = aligned_likeness(muted, clip, RATE), aligned_likeness(clip, muted, RATE)
    assert all(missing[name] < added[name] for name in missing)  # silence in the recording counts little
    assert aligned_likeness(np.zeros(RATE), clip, RATE).keys() <= {"pesq", "estoi"}
    assert aligned_likeness(clip[:0], clip, RATE) == {}
