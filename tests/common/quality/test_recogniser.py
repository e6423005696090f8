"""The recogniser's texts of clips of the corpus, and the places where long clips are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.audio.audio_processing import read_audio
from common.errors import DataError
from common.quality.recogniser import LONGEST, RATE, Recogniser, pieces
from common.quality.words import normalise
from tests.recipe import ROOT

pytestmark = pytest.mark.slow

NOISE = np.random.default_rng(0).uniform(-0.5, 0.5, 70 * RATE).astype(np.float32)
SPOKEN = {  # from filelists/clock_… and sentences_audio_text_val_filelist.txt
    "clock/clock_0239.ogg": "It is eleven o'clock in the morning.",
    "sentences/sentence_0219.ogg": "The gardener trimmed the hedge before lunch.",
    "sentences/sentence_0220.ogg": "Where did you put the silver scissors?",
}


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    pytest.importorskip("moonshine_onnx", reason="of requirements/eval.txt")
    return Recogniser()


def corpus(name: str) -> tuple[np.ndarray, int]:
    audio = read_audio(ROOT / "corpus" / name, None)
    return audio.samples.numpy(), audio.rate


@pytest.mark.parametrize("name", SPOKEN)
def test_clips_are_recognised_as_written(recogniser: Recogniser, name: str) -> None:
    assert normalise(recogniser(*corpus(name))) == normalise(SPOKEN[name])


def test_a_long_clip_is_recognised_to_its_end(recogniser: Recogniser) -> None:
    clips = [corpus(name) for name in SPOKEN]
    rate = clips[0][1]
    pause = np.zeros(rate // 2, np.float32)
    minute = np.concatenate([part for samples, _ in clips * 6 for part in (samples, pause)])
    assert len(minute) > 1.5 * LONGEST * rate
    recognised = normalise(recogniser(minute, rate)).split()
    said = " ".join(normalise(text) for text in SPOKEN.values()).split() * 6
    assert abs(len(recognised) - len(said)) <= 2
    assert recognised[-6:] == said[-6:]


@pytest.mark.parametrize("count", [0, 1000])
def test_a_few_samples_are_no_word(recogniser: Recogniser, count: int) -> None:
    assert recogniser(NOISE[:count], 22050) == ""


def test_weights_that_are_not_there(recogniser: Recogniser, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no weights of the size base"):
        Recogniser("base")
    with pytest.raises(DataError, match=r"no encoder_model\.ort"):
        Recogniser("base", tmp_path)


def test_long_audio_is_cut_in_its_pauses_or_else_anywhere() -> None:
    assert [len(part) for part in pieces(NOISE[: 25 * RATE])] == [25 * RATE]
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
