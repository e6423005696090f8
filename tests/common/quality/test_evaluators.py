"""Optional imports, audio at another rate, and predicted opinion scores."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import librosa
import numpy as np
import pytest
import torch

from common.audio.audio_processing import at_rate, read_audio
from common.errors import DataError
from common.quality import moonshine as recognition
from common.quality.evaluators import NoiseScore, OpinionScore, optional_import
from common.quality.moonshine import LONGEST, RATE, Moonshine, pieces
from common.quality.words import normalise
from tests.recipe import ROOT
from tests.sounds import tone


def test_a_missing_package_is_named_with_what_installs_it_and_a_stand_in_is_there_for_the_import_alone() -> None:
    message = r"No module named 'no_such_evaluator'.*`bash scripts/evaluation\.sh`"
    with pytest.raises(DataError, match=message), optional_import():
        importlib.import_module("no_such_evaluator")
    with optional_import(no_such_reader={"answer": 42}):
        assert importlib.import_module("no_such_reader").answer == 42
        assert importlib.util.find_spec("no_such_reader") is not None  # libraries look whether there is one
    assert "no_such_reader" not in sys.modules
    assert importlib.util.find_spec("no_such_reader") is None
    for loaded in (True, False):  # a stand-in never hides the real one
        real = importlib.import_module("colorsys").rgb_to_hls(1.0, 0.0, 0.0)
        if not loaded:
            del sys.modules["colorsys"]
        with optional_import(colorsys={"rgb_to_hls": None}):
            assert importlib.import_module("colorsys").rgb_to_hls(1.0, 0.0, 0.0) == real
        assert "colorsys" in sys.modules


def test_a_tone_stays_what_it_was_at_another_rate() -> None:
    resampled = at_rate(tone(1.0), 22050, 16000)
    assert (resampled.dtype, resampled.shape) == (np.float32, (16000,))
    assert np.abs(resampled - tone(1.0, 16000))[200:-200].max() < 1e-4
    wanted = librosa.resample(tone(1.0)[:40], orig_sr=22050, target_sr=16000, res_type="soxr_hq")
    np.testing.assert_array_equal(at_rate(tone(1.0)[:40], 22050, 16000), wanted)  # soxr itself gives a sample less
    above = tone(1.0, hertz=10000)  # silent at 16 kHz, without an alias at 6 kHz
    assert np.abs(at_rate(above, 22050, 16000))[200:-200].max() < 5e-4
    assert at_rate(above[:0], 22050, 16000).shape == (0,)


@pytest.fixture(scope="module")
def score() -> OpinionScore:
    pytest.importorskip("xls_r_sqa", reason="of requirements/eval.txt")  # the part that wants no stand-in
    return OpinionScore()


def corpus(name: str) -> tuple[np.ndarray, int]:
    audio = read_audio(ROOT / "corpus" / name, None)
    return audio.samples.numpy(), audio.rate


@pytest.fixture
def clip() -> tuple[np.ndarray, int]:
    return corpus("sentences/sentence_0219.ogg")


@pytest.mark.slow
def test_noise_costs_points_and_the_level_does_not(score: OpinionScore, clip: tuple[np.ndarray, int]) -> None:
    samples, rate = clip
    noisy = samples + 0.1 * samples.std() * np.random.default_rng(0).normal(size=len(samples))  # 20 dB below the speech
    clean = score(samples, rate)
    assert 3 < clean <= 5 and 1 <= score(noisy, rate) < clean - 0.3
    assert score(0.1 * samples, rate) == pytest.approx(clean, abs=1e-3)
    assert all(1 <= score(samples[5000 : 5000 + count], rate) <= 5 for count in (0, 7))


def test_noise_costs_points_of_the_second_judge(clip: tuple[np.ndarray, int]) -> None:
    pytest.importorskip("speechmos", reason="of requirements/eval.txt")
    judge, (samples, rate) = NoiseScore(), clip
    noise = np.random.default_rng(0).normal(size=len(samples)) * samples.std()
    clean, noisy, nothing = (judge(one, rate) for one in (samples, samples + 0.3 * noise, samples[:0]))
    assert 5 >= clean > noisy + 0.3 and noisy >= 1 <= nothing < 2  # an empty clip ends, too


@pytest.mark.slow
def test_it_is_the_packages_own_score(score: OpinionScore, clip: tuple[np.ndarray, int], capsys) -> None:
    samples = np.resize(clip[0], 122880 + 16000)
    windows = torch.from_numpy(np.stack([samples[:122880], samples[16000:]]))
    with torch.no_grad():
        expected = score.model(windows).mean().item()
    assert score(samples, 16000) == pytest.approx(expected, abs=1e-5)
    assert getattr(sys.modules.get("torchaudio"), "__file__", "real") is not None  # nothing takes the stand-in for it
    OpinionScore()
    assert capsys.readouterr().out == ""


NOISE = np.random.default_rng(0).uniform(-0.5, 0.5, 70 * RATE).astype(np.float32)
SPOKEN = {  # from filelists/clock_… and sentences_audio_text_val_filelist.txt
    "clock/clock_0239.ogg": "It is eleven o'clock in the morning.",
    "sentences/sentence_0219.ogg": "The gardener trimmed the hedge before lunch.",
    "sentences/sentence_0220.ogg": "Where did you put the silver scissors?",
}


@pytest.fixture(scope="module")
def recogniser() -> Moonshine:
    pytest.importorskip("moonshine_onnx", reason="of requirements/eval.txt")
    return Moonshine()


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOKEN)
def test_clips_are_recognised_as_written(recogniser: Moonshine, name: str) -> None:
    assert normalise(recogniser(*corpus(name))) == normalise(SPOKEN[name])


@pytest.mark.slow
def test_a_long_clip_is_recognised_to_its_end(recogniser: Moonshine, monkeypatch) -> None:
    for limit in ("LONGEST", "CUT_FROM", "CUT_TO"):
        monkeypatch.setattr(recognition, limit, getattr(recognition, limit) / 4)
    clips = [corpus(name) for name in SPOKEN] * 2
    pause = np.zeros(RATE, np.float32)
    long = np.concatenate([part for samples, _ in clips for part in (samples, pause)])
    assert len(pieces(at_rate(long, clips[0][1], RATE))) > 2
    recognised = normalise(recogniser(long, clips[0][1])).split()
    said = " ".join(normalise(text) for text in SPOKEN.values()).split() * 2
    assert abs(len(recognised) - len(said)) <= 1 and recognised[-6:] == said[-6:]


@pytest.mark.slow
def test_a_few_samples_are_no_word(recogniser: Moonshine) -> None:
    assert [recogniser(NOISE[:count], 22050) for count in (0, 1000)] == ["", ""]


@pytest.mark.slow
def test_long_audio_is_cut_in_its_pauses_or_else_anywhere() -> None:

    parts = pieces(np.zeros(100 * RATE, np.float32))
    assert sum(map(len, parts)) == 100 * RATE and max(map(len, parts)) <= LONGEST * RATE
    audio = NOISE.copy()
    pauses = [(19.0, 19.4), (38.1, 38.5), (57.0, 57.4)]
    for start, end in pauses:
        audio[round(start * RATE) : round(end * RATE)] *= 0.01
    parts = pieces(audio)
    assert np.array_equal(np.concatenate(parts), audio)
    cuts = np.cumsum([len(part) for part in parts])[:-1] / RATE
    assert len(cuts) == 3
    assert all(start < cut < end for cut, (start, end) in zip(cuts, pauses, strict=True))
