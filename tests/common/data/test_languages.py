"""Sentences in other languages than a voice's: of each known language, and none of English prose."""

from pathlib import Path

import pytest

from common.data.filelist import read_filelist
from common.data.languages import FREQUENT, LETTERS, MARKS, OWN_SCRIPT, alphabet_of, notes_on_language, other_language

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
    assert (
        notes_on_language("Привет, мир", "ru") == notes_on_language("Здраво, свете", "sr") == []
        and "sr" not in FREQUENT
    )


@pytest.mark.parametrize("language", SENTENCES)
def test_texts_are_in_the_language_of_their_words(language: str) -> None:
    code = next(code for code, (name, _) in FREQUENT.items() if name == language)
    assert other_language([SENTENCES[language]], "en") == code and other_language([SENTENCES[language]], code) == ""


@pytest.mark.parametrize(
    ("texts", "own", "other"),
    [
        (["Наберите номер и нажмите решётку.", "Введите пароль."], "en", "ru"),
        (["Наберіть номер та натисніть ґратку, це не те."], "en", "uk"),
        (["Наберите номер и нажмите решётку."], "ru", ""),
        (["Наберите номер."], "sr", ""),  # of a language whose words are not known nothing is said
        (["Το τρένο δεν είναι στο σταθμό."], "de", "el"),
        (["你好世界"], "en", "zh"),
        (["The train is late, and you are not."], "ru", "en"),
        (["Sierra Nevada", "Rio Grande"], "en", ""),
        ([], "en", ""),
        ([], "ru", ""),  # recordings without texts
        (["8", "…"], "el", ""),
    ],
)
def test_texts_in_another_script_or_language_are_told(texts: list[str], own: str, other: str) -> None:
    assert other_language(texts, own) == other


def test_alphabets_have_every_letter_of_their_usual_words() -> None:
    """The frequent words are a list of their own, so that a letter missing from an alphabet shows; Spanish has a w, for names."""
    for code in FREQUENT.keys() & LETTERS.keys():
        assert set("".join(FREQUENT[code][1].split())) - {"'"} <= set(alphabet_of(code)), code
    assert {"ñ", "w", "¿", "?"} <= set(alphabet_of("es-MX")) and "a" not in alphabet_of("ru")
    assert alphabet_of("zh") == "" and OWN_SCRIPT.keys() | MARKS.keys() <= LETTERS.keys()
