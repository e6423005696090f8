"""The voice's sentences: the content of the lists, and the errors of voice/make_corpus.py."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
import soundfile

from common.reading.reader import read_english
from corpus.make import CorpusError, require_tools
from tacotron2.text import dropped_symbols, text_to_sequence
from tests.recipe import ROOT
from voice.make_corpus import SPLITS, make, read_clips

pytestmark = pytest.mark.slow

TEXT = ROOT / "voice" / "text"


def festival() -> bool:
    try:
        require_tools()
    except CorpusError:
        return False
    return True


def test_no_sentence_of_the_report_is_in_training() -> None:
    texts = {split: [clip.written.lower() for clip in read_clips(TEXT / f"{split}.txt", split)] for split in SPLITS}
    sizes = {"train": 4721, "val": 50, "test": 50, "everyday_train": 1501, "everyday_val": 30, "everyday_test": 60}
    assert {split: len(lines) for split, lines in texts.items()} == sizes
    train, val, test = (texts[split] + texts[f"everyday_{split}"] for split in ("train", "val", "test"))
    assert not set(train) & set(val + test)
    assert not set(val) & set(test)


def test_everyday_sentences_differ_in_more_than_a_few_words() -> None:
    """No sentence of the report shares more than three fifths of its words with one of training, nor is one there twice."""
    words = {
        split: [frozenset(re.findall(r"[a-z']+", clip.written.lower())) for clip in read_clips(path, split)]
        for split in SPLITS
        if (path := TEXT / f"{split}.txt").name.startswith("everyday")
    }
    training = words["everyday_train"]
    for line in words["everyday_val"] + words["everyday_test"]:
        assert max(len(line & other) / len(line | other) for other in training) <= 0.6, sorted(line)
    clips = read_clips(TEXT / "everyday_train.txt", "everyday_train")
    openings = Counter(" ".join(clip.written.split()[:2]) for clip in clips)
    assert max(openings.values()) < len(clips) / 100


def test_filelists_have_the_words_that_inference_gives_the_model() -> None:
    clips = {clip.name: clip for clip in read_clips(TEXT / "everyday_test.txt", "everyday_test")}
    typed = "I'd like two tickets for the 8:30 show, please."
    assert typed in (TEXT / "everyday_test.txt").read_text(encoding="utf-8")
    assert clips["everyday_0008"].written == "I'd like two tickets for the eight thirty show, please."
    for clip in clips.values():
        assert read_english(clip.written) == clip.written and not re.search(r"\d", clip.spoken)


def test_sentences_have_unique_names_and_valid_text_and_fifty_are_nasty() -> None:
    clips = [clip for split in SPLITS for clip in read_clips(TEXT / f"{split}.txt", split)]
    assert len({clip.name for clip in clips}) == len(clips)
    for clip in clips:
        assert text_to_sequence(clip.written, "english_cleaners")
        assert dropped_symbols(clip.written, "english_cleaners") == []
    lines = (TEXT / "nasty.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 50 and all(text_to_sequence(line, "english_cleaners") for line in lines)
    assert max(map(len, lines)) > 300 and sum(len(line) < 3 for line in lines) >= 5
    assert any(line.isupper() and len(line) > 20 for line in lines) and any(line[-1].isalpha() for line in lines)


@pytest.mark.parametrize("row", ["only text", "|no name", "id|", 'id|with "quotes"', "id|a|b|c"])
def test_errors_name_the_line_of_a_bad_row(tmp_path: Path, row: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"a|One.\n{row}\n")
    with pytest.raises(CorpusError, match=r"train\.txt:2: got .*, expected `id\|written`"):
        read_clips(path, "train")


@pytest.mark.skipif(not festival(), reason="festival, its voice and oggenc are not installed")
def test_clips_are_generated_once_and_reproducibly(tmp_path: Path) -> None:
    for split, row in (("train", "a|It is 3 p.m.|It is three P M."), ("val", "b|Two."), ("test", "c|Three.")):
        (tmp_path / f"{split}.txt").write_text(row + "\n")
    clips = [clip for split in SPLITS[:3] for clip in read_clips(tmp_path / f"{split}.txt", split)]
    make(clips, tmp_path / "one", workers=1)
    assert (tmp_path / "one/audio_train.txt").read_text() == "wavs/a.wav|It is three P M.\n"
    assert (tmp_path / "one/mel_test.txt").read_text() == "mels/c.pt|Three.\n"
    info = soundfile.info(str(tmp_path / "one/wavs/a.wav"))
    assert (info.samplerate, info.channels, info.subtype) == (22050, 1, "PCM_16") and 0.5 < info.duration < 3
    (tmp_path / "two/wavs").mkdir(parents=True)
    shutil.copy(tmp_path / "one/wavs/b.wav", tmp_path / "two/wavs/a.wav")  # an existing clip stays as it is
    make(clips, tmp_path / "two", workers=1)
    same = {name: (tmp_path / f"{run}/wavs/{name}.wav").read_bytes() for run in ("one", "two") for name in "bc"}
    assert all((tmp_path / f"one/wavs/{name}.wav").read_bytes() == same[name] for name in "bc")
    assert (tmp_path / "two/wavs/a.wav").read_bytes() == same["b"]
