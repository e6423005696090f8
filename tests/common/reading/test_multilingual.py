"""Other languages than English: sentences with the reading of a newsreader, written by hand before the rules were."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import num2words
import pytest

from common.data.number_words import find_language
from common.errors import DataError, UsageError
from common.reading.multilingual import FILES, LanguageReader, find_left, numbers_cleaner
from tacotron2.data_function import pieces
from tacotron2.text.cleaners import get_cleaner
from tests.recipe import call

SENTENCES = Path(__file__).with_name("languages")
LANGUAGES = ("de", "es", "fr", "it", "nl", "pl", "pt", "ru", "sv", "tr")
# code | text | words, of countries and of languages without a file of their own
OTHERS = """
fr_CH|71 ans, 1'200.5 km|septante et un ans, mille deux cents virgule cinq kilomètres
es_CR|1,234 y 2.5|mil doscientos treinta y cuatro y dos coma cinco
es_CO|21 casas|veintiuna casas
pt_BR|16 km, R$ 2,50|dezesseis quilômetros, dois reais e cinquenta centavos
fi|3. toukokuuta, 9:30|kolmas toukokuuta, yhdeksän kolmekymmentä
ar|5 $|خمسة $
fa|۱۲|دوازده
uk|−5|мінус п'ять
"""


def words_of(text: str) -> list[str]:
    """What a listener can tell apart: words in small letters, without punctuation and the case of hyphens."""
    return re.findall(r"[^\W_]+(?:['’][^\W_]+)*|[^\s\w.,;:!?()\"'’-]", text.lower().replace("i̇", "i").replace("-", " "))


def reader_of(language: str) -> LanguageReader:
    reader = numbers_cleaner(f"numbers_{language}")
    assert reader
    return reader


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_are_read_as_by_a_newsreader(language: str) -> None:
    rows = [line.split("\t") for line in (SENTENCES / f"{language}.tsv").read_text(encoding="utf-8").splitlines()]
    read = reader_of(language)
    wrong = {text for text, words, *_ in rows if words_of(read(text)) != words_of(words)}
    assert wrong == {row[0] for row in rows if row[2:]}  # a third column says what is not read yet
    assert len(rows) == 80 and [text for text, *_ in rows if read(read(text)) != read(text)] == []


@pytest.mark.parametrize("row", OTHERS.strip().splitlines())
def test_other_languages_and_countries(row: str) -> None:
    code, text, words = row.split("|")
    assert get_cleaner([f"numbers_{find_language(code)}", "basic_cleaners"])(text) == words


@pytest.mark.parametrize("language", sorted(num2words.CONVERTER_CLASSES))
def test_no_language_keeps_a_digit_or_fails(language: str) -> None:
    read = reader_of(language)
    text = "0 7 12. x 1,5 1.5 3.º 2e 1984 12.345 31.12.1999 24:00 5 € £7,20 -3 100000000000 99999999999999999999 007"
    assert [part for part in (text, *text.split()) if any(map(str.isdigit, read(part)))] == []
    assert read("{AH0 B}") == "{AH0 B}" and read(read(text)) == read(text)


@pytest.mark.parametrize("language", [*LANGUAGES, "fi"])
def test_time_grows_with_the_length_of_a_text(language: str) -> None:
    read = reader_of(language)
    for unit in (
        "1",
        "1.",
        "12 ",
        "1 000 ",
        "a.",
        "Ab XI ",
        "-",
        "1/2/",
        "§ ",
        "M. ",
        "z. ",
        "3,5 m/",
        "'",
        "{",
        "10:1",
    ):
        took = []
        for size in (4000, 32000):
            text = (unit * size)[:size]
            start = time.process_time()
            read(text)
            took.append(time.process_time() - start)
        assert took[1] < 24 * took[0] + 0.2, (unit, took)  # 8 times as long; 64 times would be quadratic


def test_a_mistake_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "es", "last"):
        (tmp_path / f"{name}.tsv").write_text((FILES / f"{name}.tsv").read_text(encoding="utf-8"), encoding="utf-8")
    with (tmp_path / "es.tsv").open("a", encoding="utf-8") as file:
        file.write("0\t([0-9]+)\t{1:ordinal>femenine}\n")
    monkeypatch.setattr("common.reading.multilingual.FILES", tmp_path)
    with pytest.raises(DataError, match=r"es\.tsv:\d+:\d+: got 'femenine', expected a speaker or a class of words"):
        LanguageReader("es")


def test_unknown_languages_are_one_error_that_names_the_known_ones() -> None:
    found = {code: find_language(code) for code in ("pt-br", "PT", "nb", "de_AT", "zh", "xx", "")}
    assert found == {"pt-br": "pt_BR", "PT": "pt", "nb": "no", "de_AT": "de", "zh": None, "xx": None, "": None}
    assert numbers_cleaner("basic_cleaners") is None
    with pytest.raises(UsageError, match="got 'numbers_xx', wanted numbers_CODE with a language of num2words: am, ar"):
        get_cleaner(["numbers_xx"])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Dr. Weiß zahlt z.B. 5 % an die X.Y. und Qu. Zbg. 20 °C.", ["X.Y.", "Zbg."]),
        ("Das ist gut. Er geht. Und dann 7?", []),
        ("Er ist stumm. 3 Tage. er sah es. und ging; es war so", []),
        ("5 ± 2", ["±"]),
        ("Ещё раз. Нажмите. Ναι. Όχι, стр. пять", ["стр."]),
    ],
)
def test_what_is_left_is_named(text: str, left: list[str]) -> None:
    assert find_left([reader_of("de")(text)]) == left


def test_a_long_text_is_not_cut_within_a_number() -> None:
    options = {"text_cleaners": ["numbers_de", "basic_cleaners"]}
    options["symbols"] = ["_", " ", *"abcdefghijklmnopqrstuvwxyzäöü.,"]
    text = "Er kommt am 3. Mai um 12:30 und am 4. Juli, mit 1.000 Leuten und 5,50 € in bar. Dann geht er 2025. Ja."
    clean, parts = get_cleaner(options["text_cleaners"]), [piece.text for piece in pieces(text, 20, options)]
    assert len(parts) > 4 and " ".join(map(clean, parts)) == clean(text)
    assert [part for part in parts if part.endswith("dritten")] == [] and parts[-1] == "Ja."


def test_inflect_is_imported_without_checks_of_types_and_typeguard_checks_on() -> None:
    code = "import typeguard, common.data.number_words as n; e = n.inflect_engine()\n"
    done = call(
        sys.executable, "-c", f"{code}print(*type(e).plural.__code__.co_names, typeguard.typechecked.__module__)"
    )
    assert "postprocess" in done.out and "TypeCheckMemo" not in done.out and done.out.endswith("typeguard\n")
