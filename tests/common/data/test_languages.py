"""Sentences in other languages than a voice's: of each known language, and none of English prose."""

from pathlib import Path

import pytest

from common.data.filelist import read_filelist
from common.data.languages import FREQUENT, notes_on_language

ROOT = Path(__file__).resolve().parents[3]
SENTENCES = {
    "German": "Der Zug fährt heute leider nicht, und wir nehmen das Auto.",
    "French": "Je ne sais pas où est la gare.",
    "Spanish": "El tren no llega hasta las nueve de la noche.",
    "Italian": "Il treno non arriva che alle nove di sera.",
    "Portuguese": "O trem não chega até as nove da noite.",
    "Dutch": "De trein komt niet voor het avondeten.",
    "Swedish": "Jag vet inte när tåget kommer, men det är sent.",
    "Polish": "Nie wiem, czy pociąg jest na stacji.",
    "Turkish": "Tren çok geç geldi ve ben bir kitap okudum.",
    "Vietnamese": "Tôi không có một cuốn sách trong nhà.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_in_another_language_is_named(language: str) -> None:
    text = f"It is late. {SENTENCES[language]} Good night."
    assert notes_on_language(text, "en") == [
        f'"{SENTENCES[language][:39] + "…" if len(SENTENCES[language]) > 40 else SENTENCES[language]}" '
        f"seems to be {language}, but this voice speaks English"
    ]


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Say Привет now.", "Cyrillic"),
        ("你", "Chinese"),
        ("こんにちは", "Japanese"),
        ("नमस्ते", "Devanagari"),
        ("مرحبا", "Arabic"),
    ],
)
def test_letters_of_another_script_are_named(text: str, script: str) -> None:
    (note,) = notes_on_language(text, "en")
    assert f"has {script} letters" in note and text in note


def test_english_with_foreign_names_and_formulas_has_no_note() -> None:
    names = "Los Angeles. La La Land. The Rio de la Plata. Vincent van Gogh was a painter. α and β are 5 µm. No. Que sera, sera."
    assert notes_on_language(f"{names} The menu: crème brûlée and café au lait.", "en") == []
    texts = [row.text for row in read_filelist(ROOT / "voice" / "text" / "train.txt")]
    assert len(texts) > 1000 and [note for text in texts for note in notes_on_language(text, "en")] == []


def test_a_voice_of_another_language_reads_its_own() -> None:
    assert notes_on_language(SENTENCES["German"], "de") == notes_on_language(SENTENCES["German"], "de-AT") == []
    assert (
        "seems to be English, but this voice speaks German" in notes_on_language("What have they said to you?", "de")[0]
    )
    assert notes_on_language("Привет, мир", "ru") == [] and "ru" not in FREQUENT
