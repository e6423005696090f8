"""studio/prepare/language.py: the language that Whisper has found in recordings, that of their texts, and English that is none."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.sources import file_digest, find_sources
from common.errors import DataError
from studio.prepare.arguments import PrepareOptions, TextConfig
from studio.prepare.language import check_texts, refuse_gibberish, spoken_language
from studio.prepare.texts import ClipText
from studio.prepare.transcripts import Transcript
from studio.project import Project

SPANISH = ["Por favor, marque el número de la extensión.", "Su contraseña es incorrecta, y la llamada termina."]
ENGLISH = ["Please enter your password, followed by the pound key.", "The person at this extension is not available."]


def options_of(tmp_path: Path, language: str | None = None) -> PrepareOptions:
    project = Project(name="p", projects=tmp_path)
    return PrepareOptions(folder=tmp_path, project=project, texts=TextConfig(language=language))


def found_in(tmp_path: Path, *found: tuple[str, float]) -> str:
    """Return the language of recordings in which Whisper has found languages with probabilities, as an earlier run stored them."""
    for number, _ in enumerate(found):
        soundfile.write(tmp_path / f"{number:02}.wav", np.full(100 - number, 0.1), 8000)
    sources = find_sources(tmp_path).sources
    ledger = tmp_path / "languages.jsonl"
    lines = [[f"base {file_digest(s.path)}", pair] for s, pair in zip(sources, found, strict=True)]
    ledger.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return spoken_language(sources, TextConfig(), ledger, 1)


@pytest.mark.parametrize(
    ("found", "language"),
    [
        ([("es", 0.9)] * 3 + [("pt", 0.5)] * 3, "es"),  # unsure of three
        ([("es", 0.9)] * 9 + [("ca", 0.8)], "es"),  # one that is mistaken
        ([("", 0.0), ("fr", 0.3), ("nl", 0.4)], "nl"),  # short ones, and a file that nothing reads
        ([("", 0.0)], "en"),
    ],
)
def test_the_language_of_most_recordings_is_theirs(tmp_path: Path, found, language: str) -> None:
    assert found_in(tmp_path, *found) == language


def test_recordings_in_two_languages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"(?s)several languages in 6 .*Spanish \(es\): 00\.wav.*French \(fr\): 04\.wav, 05.wav"
    ):
        found_in(tmp_path, *[("es", 0.9)] * 4, *[("fr", 0.9)] * 2)


@pytest.mark.parametrize(
    ("language", "texts", "other"),
    [(None, SPANISH, "es"), ("fr", SPANISH, "es"), ("es", ENGLISH, "en"), ("es", SPANISH, ""), ("xx", SPANISH, "")],
)
def test_texts_in_another_language_than_the_recordings_are_refused(tmp_path: Path, language, texts, other: str) -> None:
    transcripts = {f"{number}.wav": Transcript(f"{number}.txt", text) for number, text in enumerate(texts)}
    if not other:
        check_texts(transcripts, options_of(tmp_path, language))
        return
    with pytest.raises(DataError, match=f"add --language {other},"):
        check_texts(transcripts, options_of(tmp_path, language))


def test_english_that_is_none_asks_for_the_language(tmp_path: Path) -> None:
    """What Moonshine makes of Spanish: "The conference is in Sierra Quandone"; or the words are not its texts'."""
    heard = ["Contra senna incorrecta Pourfavor", "Ingracé soumis a manna", "Quandone Sierra"] * 15
    rare = [ClipText(text, "recognised", text, math.nan, math.nan) for text in heard]
    plain = [ClipText(text, "recognised", text, math.nan, math.nan) for text in ENGLISH * 10]
    wrong = [ClipText("Marque ocho.", "a.txt", "the other one is here", 1.0, 0.9)] * 6
    for texts in (rare, wrong):
        with pytest.raises(DataError, match=r"taken for English, but .*add --language CODE"):
            refuse_gibberish([texts], options_of(tmp_path))
        refuse_gibberish([texts], options_of(tmp_path, "en"))  # it was said
    refuse_gibberish([plain], options_of(tmp_path))
    refuse_gibberish([[text._replace(words_wrong=0.2) for text in wrong]], options_of(tmp_path))
