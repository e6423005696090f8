"""The embedded corpus and the phrases as shipped, and the script that speaks the corpus, without its teacher."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import inflect
import numpy as np
import pytest
import soundfile

from common.errors import DataError
from corpus import make as make_corpus
from tacotron2.text import text_to_sequence

ROOT = Path(__file__).resolve().parent.parent
NUMBERS = inflect.engine()
WORDS = {str(NUMBERS.number_to_words(str(n))).replace("-", " "): n for n in range(60)}
SPLITS = [(part, split) for part in ("clock", "sentences") for split in ("train", "val")]


def rows(part: str, split: str, kind: str = "audio") -> list[tuple[str, str]]:
    """Read a shipped filelist as (path, text)."""
    lines = (ROOT / f"filelists/{part}_{kind}_text_{split}_filelist.txt").read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""  # the last line ends in LF, too
    pairs = [line.split("|") for line in lines]
    return [(path, text) for path, text in pairs]


def unseen() -> list[str]:
    paths = ROOT / "phrases/clock.txt", ROOT / "corpus/text/clock_unseen.txt"
    return [line for path in paths for line in path.read_text().splitlines()]


def place_on_dial(text: str) -> int:
    name = "|".join(sorted(WORDS, key=len, reverse=True))
    text = text.lower().replace("midnight", "twelve").replace("noon", "twelve")
    text = re.sub(r"\bo'clock\b", "", text).replace("a quarter", "fifteen").replace("half past", "thirty past")
    if match := re.search(rf"\b({name})(?: minutes?)? (past|to) ({name})\b", text):
        minute, hour = WORDS[match[1]], WORDS[match[3]]
        return (hour * 60 + (minute if match[2] == "past" else -minute)) % 720
    twelve = "|".join(sorted((word for word, n in WORDS.items() if 1 <= n <= 12), key=len, reverse=True))
    match = re.search(rf"\b({twelve})(?: (?:oh )?({name}))?\b", text)
    assert match, text
    return (WORDS[match[1]] * 60 + WORDS.get(match[2], 0)) % 720


@pytest.fixture(scope="module")
def recordings() -> dict[str, np.ndarray]:
    audio = {}
    for part, split in SPLITS:
        for path, _ in rows(part, split):
            samples, rate = soundfile.read(ROOT / path)
            assert (rate, samples.ndim) == (22050, 1), path
            audio[path] = samples
    return audio


@pytest.mark.slow
def test_recordings_match_the_filelists_and_the_stated_length(recordings: dict[str, np.ndarray]) -> None:
    parts = (ROOT / "corpus" / part for part in ("clock", "sentences"))
    assert {path.relative_to(ROOT).as_posix() for part in parts for path in part.iterdir()} == set(recordings)
    minutes = sum(map(len, recordings.values())) / 22050 / 60
    assert 15 < minutes < 21
    assert f"| {minutes:.1f} |" in (ROOT / "corpus/README.md").read_text()
    assert sum((ROOT / path).stat().st_size for path in recordings) < 8_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("part", "split"), SPLITS)
def test_clips_are_as_long_as_their_texts_take(part: str, split: str, recordings: dict[str, np.ndarray]) -> None:
    """8 to 25 characters a second: a row paired with another row's clip would fall out somewhere."""
    pairs = rows(part, split)
    mels = [(path.replace(f"corpus/{part}", "corpus/mels").replace(".ogg", ".pt"), text) for path, text in pairs]
    assert rows(part, split, "mel") == mels
    for path, text in pairs:
        assert 8 < len(make_corpus.aloud(text)) / (len(recordings[path]) / 22050) < 25, path


def test_no_time_of_the_dial_is_in_two_splits() -> None:
    splits = [[text for _, text in rows("clock", "train")], [text for _, text in rows("clock", "val")], unseen()]
    dials = [{place_on_dial(text) for text in texts} for texts in splits]
    assert [len(texts) for texts in splits] == [238, 12, 12]
    assert len(dials[1]) == len(dials[2]) == 12
    assert all(not one & other for one, other in combinations(dials, 2))
    assert {place // 60 for place in dials[0]} == set(range(12))
    assert {place % 60 for place in dials[0]} == set(range(60))


@pytest.mark.parametrize(("number", "length"), [(1, 64), (1, 128), (1, 256), (4, 64), (4, 256), (8, 64), (8, 256)])
def test_published_phrases_have_the_numbers_and_lengths_in_their_names(number: int, length: int) -> None:
    texts = (ROOT / f"phrases/phrase_{number}_{length}.txt").read_text("ascii").splitlines()
    assert [len(text) for text in texts] == [length] * number == [length] * len(set(texts))
    assert [len(text_to_sequence(text, ["english_cleaners"])) for text in texts] == [length] * number


def test_spoken_sentences_equal_the_output_of_the_english_cleaners() -> None:
    texts = [text for split in ("train", "val") for _, text in rows("sentences", split)]
    differing = [text for text in texts if text != make_corpus.aloud(text)]
    assert len(differing) > 50
    for written in differing:
        ids = [text_to_sequence(text, ["english_cleaners"]) for text in (written, make_corpus.aloud(written))]
        assert ids[0] == ids[1]
    assert all(re.fullmatch(r"[a-z',.;:?! -]+", make_corpus.aloud(text)) for text in texts)


@pytest.mark.parametrize("amplitude", [0.004, 0.9])
def test_clips_have_the_same_silence_and_level(amplitude: float) -> None:
    """A tone of 24 kHz between silences of unequal lengths, the second one shorter than the margin."""
    tone = amplitude * np.sin(2 * np.pi * 440 * np.arange(24000) / 24000)
    clip = make_corpus.finish(np.concatenate([np.zeros(9600), tone, np.zeros(240)]).astype(np.float32))
    margin = round(make_corpus.MARGIN * 22050)
    assert abs(len(clip) - (22050 + 2 * margin)) <= 2 * 220  # the level is measured in frames of 10 ms
    expected = 2**0.5 * make_corpus.LEVEL * np.sin(2 * np.pi * 440 * np.arange(-2000, 2000) / 22050)
    middle = clip[len(clip) // 2 :][:4000]
    assert np.abs(middle).max() == pytest.approx(np.abs(expected).max(), rel=0.02)
    assert np.abs(clip[: margin - 250]).max() < 1e-3 and np.abs(clip[-margin + 250 :]).max() < 1e-3


def test_a_clip_of_peaks_is_scaled_to_the_largest_peak() -> None:
    clicks = np.zeros(24000, np.float32)
    clicks[4000:20000:2400] = 0.5
    assert np.abs(make_corpus.finish(clicks)).max() == pytest.approx(make_corpus.MAX_PEAK)
    with pytest.raises(DataError, match="silent"):
        make_corpus.finish(np.zeros(24000, np.float32))
