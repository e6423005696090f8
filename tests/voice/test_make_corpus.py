"""The voice's sentences: the content of the lists, and the errors of voice/make_corpus.py."""

import functools
import re
from collections import Counter
from pathlib import Path

import pytest

from common.errors import DataError
from common.reading.reader import read_english
from corpus.teacher import language_of
from tacotron2.text import dropped_symbols, text_to_sequence
from tests.recipe import ROOT, run
from voice import make_corpus
from voice.make_corpus import (
    MOST_WRONG,
    SPLITS,
    CorpusClip,
    Heard,
    read_clips,
    read_heard,
    read_splits,
    speak,
    summary,
    write_filelists,
)

TEXT = ROOT / "voice" / "text"


@functools.cache
def clips_of(split: str) -> list[CorpusClip]:
    """The sentences of a list, each of which takes a while to read aloud."""
    return read_clips(TEXT / f"{split}.txt", split)


@pytest.mark.slow
def test_no_sentence_of_the_report_is_in_training() -> None:
    texts = {split: [clip.written.lower() for clip in clips_of(split)] for split in SPLITS}
    sizes = {"train": 5547, "val": 50, "test": 50, "everyday_train": 1501, "everyday_val": 30, "everyday_test": 60}
    assert {split: len(lines) for split, lines in texts.items()} == sizes
    train, val, test = (texts[split] + texts[f"everyday_{split}"] for split in ("train", "val", "test"))
    assert not set(train) & set(val + test)
    assert not set(val) & set(test)


@pytest.mark.slow
def test_everyday_sentences_differ_in_more_than_a_few_words() -> None:
    """No sentence of the report shares more than three fifths of its words with one of training, nor is one there twice."""
    words = {
        split: [frozenset(re.findall(r"[a-z']+", clip.written.lower())) for clip in clips_of(split)]
        for split in SPLITS
        if split.startswith("everyday")
    }
    training = words["everyday_train"]
    for line in words["everyday_val"] + words["everyday_test"]:
        assert max(len(line & other) / len(line | other) for other in training) <= 0.6, sorted(line)
    clips = clips_of("everyday_train")
    openings = Counter(" ".join(clip.written.split()[:2]) for clip in clips)
    assert max(openings.values()) < len(clips) / 100


def test_filelists_have_the_words_that_inference_gives_the_model() -> None:
    clips = {clip.name: clip for clip in clips_of("everyday_test")}
    typed = "I'd like two tickets for the 8:30 show, please."
    assert typed in (TEXT / "everyday_test.txt").read_text(encoding="utf-8")
    assert clips["everyday_0008"].written == "I'd like two tickets for the eight thirty show, please."
    for clip in clips.values():
        assert read_english(clip.written) == clip.written and not re.search(r"\d", clip.spoken)


@pytest.mark.slow
def test_sentences_have_unique_names_and_valid_text_and_fifty_are_nasty() -> None:
    clips = [clip for split in SPLITS for clip in clips_of(split)]
    assert len({clip.name for clip in clips}) == len(clips)
    for clip in clips:
        assert text_to_sequence(clip.written, "english_cleaners")
        assert dropped_symbols(clip.written, "english_cleaners") == []
    lines = (TEXT / "nasty.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 50 and all(text_to_sequence(line, "english_cleaners") for line in lines)
    assert max(map(len, lines)) > 300 and sum(len(line) < 3 for line in lines) >= 5
    assert any(line.isupper() and len(line) > 20 for line in lines) and any(line[-1].isalpha() for line in lines)


def test_spanish_sentences_have_all_letters_and_those_of_the_report_are_not_in_training() -> None:
    language = language_of("em_alex")
    assert (language, language_of("af_heart"), language_of("bm_george")) == ("es", "en", "en")
    clips = read_splits(TEXT / "spanish", language)
    texts = {split: {clip.written for clip in clips if clip.split == split} for split in ("train", "test")}
    assert {split: len(lines) for split, lines in texts.items()} == {"train": 651, "test": 54}
    assert not texts["train"] & texts["test"]
    said = Counter("".join(texts["train"]).lower())
    assert all(said[letter] >= 3 for letter in "abcdefghijklmnopqrstuvwxyzáéíñóúü¿?¡!.,")
    assert set(said) <= set("abcdefghijklmnopqrstuvwxyzáéíñóúü¿?¡!.,:;— ")


def test_sentences_of_another_language_are_read_in_it(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a|Tengo 21 años, Sr. Gil.\n", "utf-8")
    (clip,) = read_clips(tmp_path / "train.txt", "train", "es")
    assert clip.written == clip.spoken == "Tengo veintiún años, señor Gil."


@pytest.mark.parametrize("row", ["only text", "|no name", "id|", "id|a|b", "../id|a", "id|*"])
def test_errors_name_the_line_of_a_bad_row(tmp_path: Path, row: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"a|One.\n{row}\n")
    with pytest.raises(DataError, match=r"train\.txt:2: got .*, expected `id\|text`"):
        read_clips(path, "train")


def test_splits_may_be_missing_or_empty_and_ids_are_unique(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"--text {tmp_path}: no text, expected some of test.txt, "):
        read_splits(tmp_path)
    (tmp_path / "everyday_val.txt").write_text("\n")
    for name in ("train", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name}|One.\n")
    assert [clip.name for clip in read_splits(tmp_path)] == ["test", "train"]
    (tmp_path / "val.txt").write_text("test|Two.\n")
    with pytest.raises(DataError, match="several rows have the id test; expected one"):
        read_splits(tmp_path)
    assert run("voice/make_corpus.py", "--text", tmp_path, "--workers", 0).code == 2


@pytest.mark.parametrize("cut", [1, 7, 24])
def test_a_killed_run_goes_on_after_its_last_whole_line(tmp_path: Path, monkeypatch, cut: int) -> None:
    """The next line was appended to the one that was cut off, and no later run could read either."""
    heard = [Heard(name, 1.5, 0, 5, 0.0, "It is three.") for name in ("first", "second")]
    monkeypatch.setattr(make_corpus, "stream_parallel", lambda *_, **__: heard[1:])
    (tmp_path / "heard.tsv").write_text("\t".join(map(str, heard[0]))[:cut])
    assert list(speak([], tmp_path, "", 1)) == heard[1:]
    assert read_heard(tmp_path / "heard.tsv")["second"] == heard[1]


def test_whole_sentences_come_first_and_unclear_clips_are_left_out_of_training_alone(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a|which ends.\nb|It is 3 p.m.\nc|Two parts, and\nd|He said no.\n")
    (tmp_path / "val.txt").write_text("e|Three.\n")
    clips = [clip for split in ("train", "val") for clip in read_clips(tmp_path / f"{split}.txt", split)]
    assert [clip.name for clip in clips] == ["b", "d", "a", "c", "e"]
    assert clips[0].spoken == "it is three p m."
    rows = ["b\t1.5\t0\t5\t0.0\tIt is 3 p.m.", "d\t2.0\t1\t3\t0.101\tHe sat now.", "e\t0.5\t1\t1\t0.8\tFree."]
    (tmp_path / "heard.tsv").write_text("\n".join([*rows, "a\t9.5\t0"]))  # the last line was cut off
    heard = read_heard(tmp_path / "heard.tsv")
    assert heard["d"] == Heard("d", 2.0, 1, 3, 0.101, "He sat now.") and set(heard) == {"b", "d", "e"}
    assert MOST_WRONG == 0.1 and read_heard(tmp_path / "none.tsv") == {}
    write_filelists(clips, heard, tmp_path)
    assert (tmp_path / "audio_train.txt").read_text() == f"wavs/b.wav|{clips[0].written}\n"
    assert (tmp_path / "mel_val.txt").read_text() == "mels/e.pt|Three.\n"
    assert summary(heard) == "3 clips, 0.00 hours, 22.2% of words wrong; 2 too unclear for training"
