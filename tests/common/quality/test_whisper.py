"""Whisper: its words, their times and the language it finds; which recogniser a language gets; what is refused."""

import os
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import DataError, UsageError
from common.quality import recogniser, whisper
from common.quality.recogniser import RecogniserConfig, installers
from common.quality.whisper import Whisper, find_weights
from common.quality.words import normalise
from tests.sounds import RATE, SENTENCES, sentence


@pytest.fixture(scope="module")
def english() -> Whisper:
    pytest.importorskip("faster_whisper", reason="of requirements/whisper.txt")
    return Whisper(threads=1)


@pytest.mark.slow
def test_words_are_recognised_with_their_times(english: Whisper) -> None:
    pause = np.zeros(RATE)
    first, second = sentence(1), sentence(2)
    whole = np.concatenate([first, pause, second])
    said = [normalise(text).split() for text in SENTENCES[:2]]
    assert normalise(english(whole, RATE)).split() == said[0] + said[1]
    assert [english(whole[:count], RATE) for count in (0, 1000)] == ["", ""]
    assert english.find_language(whole, RATE)[0] == "en"
    words = english.timed_words(whole, RATE)
    assert normalise(" ".join(word.text for word in words)).split() == said[0] + said[1]
    ends, begins = (len(part) / RATE for part in (first, np.concatenate([first, pause])))
    assert words[len(said[0]) - 1].end < ends + 0.3 and words[len(said[0])].start > begins - 0.3
    assert all(one.start <= one.end <= other.end for one, other in pairwise(words))


@pytest.mark.parametrize(
    ("language", "wanted"), [("fr", ["Peut-être", "l'heure,"]), ("ja", ["Peut", "-être", "l", "'heure,"])]
)
def test_parts_of_a_word_are_one_where_spaces_divide_words(monkeypatch, language: str, wanted: list[str]) -> None:
    heard = object.__new__(Whisper)
    heard.language = language
    parts = [" Peut", "-être", " l", "'heure,"]
    words = [SimpleNamespace(start=n / 2, end=n / 2 + 0.4, word=part) for n, part in enumerate(parts)]
    segments = [SimpleNamespace(words=words[:2]), SimpleNamespace(words=words[2:])]
    monkeypatch.setattr(heard, "_transcribe", lambda *_, **__: segments)
    found = heard.timed_words(np.zeros(RATE), RATE)
    assert [word.text for word in found] == wanted
    assert (found[0].start, found[-1].end) == (0, 1.9) and all(one.end < other.start for one, other in pairwise(found))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "moonshine tiny"),
        ({"language": "en-GB"}, "moonshine tiny"),
        ({"language": "es"}, "whisper base es"),
        ({"language": "pt_BR"}, "whisper base pt"),
        ({"recogniser": "whisper"}, "whisper base en"),
        ({"language": "ES", "recogniser": "whisper:large-v3"}, "whisper large-v3 es"),
        ({"language": "en", "recogniser": "moonshine"}, "moonshine tiny"),
    ],
)
def test_a_language_has_its_recogniser(options: dict[str, str], key: str) -> None:
    config = RecogniserConfig(**options)
    assert (config.key, config.is_whisper) == (key, key.startswith("whisper"))


@pytest.mark.parametrize("name", ["whisper:huge", "whisper:/no/such/folder", "moonshine:base", "wav2vec", ""])
def test_an_unknown_recogniser_or_size_names_those_there_are(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"--recogniser .*whisper:SIZE with one of tiny, base, small, medium, large-v1"
    ):
        RecogniserConfig(recogniser=name)


def test_moonshine_in_another_language_is_a_contradiction() -> None:
    with pytest.raises(UsageError, match="moonshine: knows English alone, not --language fr"):
        RecogniserConfig(recogniser="moonshine", language="fr")


def test_missing_packages_name_their_installer(monkeypatch) -> None:
    monkeypatch.setattr(recogniser, "find_spec", lambda name: None)
    assert RecogniserConfig(language="es").missing == ["faster_whisper", "jiwer", "rapidfuzz"]
    assert re.match(
        r"`bash scripts/whisper.sh`.* and `bash scripts/evaluation.sh`", installers(["faster_whisper", "jiwer"])
    )


def test_a_folder_without_the_weights_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"no model\.bin and no tokenizer\.json, expected a folder with model\.bin"):
        find_weights(str(tmp_path))


def test_half_a_download_is_named(english: Whisper, tmp_path: Path) -> None:
    files = whisper.packaged_files()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content[: len(content) // 2] if name == "model.bin" else content)
    with pytest.raises(DataError, match=r"cannot be loaded .*half a download: copy it again"):
        Whisper(str(tmp_path))


def test_too_little_memory_names_smaller_sizes(tmp_path: Path) -> None:
    for name in whisper.NEEDED:
        (tmp_path / name).touch()
    os.truncate(tmp_path / "model.bin", 10**13)  # a sparse file
    with pytest.raises(
        DataError, match=r"needs 14000\.00 GB of memory, and there are .* GB; choose a smaller size of tiny"
    ):
        find_weights(str(tmp_path))


def test_a_size_without_a_network_names_the_folder_to_give(
    english: Whisper, tmp_path: Path, monkeypatch, capsys
) -> None:
    import huggingface_hub

    def away(*args: object, **settings: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", away)
    with pytest.raises(
        DataError, match=r"whisper small: cannot be downloaded \(no network\).*--recogniser whisper:FOLDER"
    ):
        Whisper("small")
    assert capsys.readouterr().out == "whisper small: 484 MB are downloaded from huggingface.co, once\n"


def test_a_language_that_whisper_lacks_is_named(english: Whisper) -> None:
    with pytest.raises(DataError, match=r"does not know the language 'xx', only .* es "):
        Whisper(language="xx")
