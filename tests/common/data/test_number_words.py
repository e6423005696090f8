"""Numbers of other languages against words written by hand; what no library knows is named."""

from __future__ import annotations

import sys

import num2words
import pytest

from common.data.number_words import find_language, find_left, numbers_cleaner
from common.errors import UsageError
from tacotron2.data_function import pieces
from tacotron2.text.cleaners import get_cleaner
from tests.recipe import call

# code | text | as it is read
READ = """
de|Am 12.05.2024 um 14:30 Uhr|am zwölf fünf zweitausendvierundzwanzig um vierzehn dreißig uhr
de|um 9:00, 3 Äpfel für 5,50 €|um neun, drei äpfel für fünf euro und fünfzig cent
de|€20 und 1.000 €|zwanzig euro und eintausend euro
de|1984 waren es 1.984|neunzehnhundertvierundachtzig waren es eintausendneunhundertvierundachtzig
de|1.234,56 kg|eintausendzweihundertvierunddreißig komma fünf sechs kg
de|Der 3. Mai, der 21. im Monat|der dritte mai, der einundzwanzigste im monat
de|Es waren 12. Dann ging er.|es waren zwölf. dann ging er.
de|−5 Grad, 10-20, -3|minus fünf grad, zehn-zwanzig, minus drei
de|Wählen Sie 0170|wählen sie null eins sieben null
de|2000000000000000|zwei null null null null null null null null null null null null null null null
de|A4 und 2²|avier und zwei²
fr|Le 1er mai, la 2e fois, 3ème rang|le premier mai, la deuxième fois, troisième rang
fr|12 345 personnes, 80,5 m, 1 €|douze mille trois cent quarante-cinq personnes, quatre-vingts virgule cinq m, un euro
fr|71 ans, 2024-01-31|soixante et onze ans, deux mille vingt-quatre un trente et un
fr_CH|71 ans|septante et un ans
es|1.234 y 2º, 5 £|mil doscientos treinta y cuatro y segundo, cinco libras
it|3,5 euro|tre virgola cinque euro
nl|De 1e keer in 1984, de 2de|de eerste keer in negentien honderd vierentachtig, de tweede
pl|21. maja, 3,5|dwudziesty pierwszy maja, trzy przecinek pięć
ru|5,5 и 21|пять целых пять десятых и двадцать один
sv|den 3:e maj|den tredje maj
fi|3. toukokuuta|kolmas toukokuuta
ar|5 $|خمسة $
tr|5 €|beş €
es_CR|1,234|mil doscientos treinta y cuatro
"""


@pytest.mark.parametrize("row", READ.strip().splitlines())
def test_numbers_are_read_in_words(row: str) -> None:
    code, text, words = row.split("|")
    assert get_cleaner([f"numbers_{find_language(code)}", "basic_cleaners"])(text) == words


@pytest.mark.parametrize("language", sorted(num2words.CONVERTER_CLASSES))
def test_no_language_keeps_a_digit_or_fails(language: str) -> None:
    clean = numbers_cleaner(f"numbers_{language}")
    texts = "0 7 12. x 1,5 1.5 3.º 2e 1984 12.345 31.12.1999 24:00 5 € £7,20 -3 100000000000 99999999999999999999 007"
    assert clean and not [text for text in texts.split() if any(map(str.isdigit, clean(text)))]


def test_languages_have_several_names() -> None:
    found = {code: find_language(code) for code in ("pt-br", "PT", "nb", "de_AT", "zh", "xx", "")}
    assert found == {"pt-br": "pt_BR", "PT": "pt", "nb": "no", "de_AT": "de", "zh": None, "xx": None, "": None}
    assert numbers_cleaner("basic_cleaners") is None
    with pytest.raises(UsageError, match="got 'numbers_xx', wanted numbers_CODE with a language of num2words: am, ar"):
        get_cleaner(["numbers_xx"])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Dr. Weiß zahlt z.B. 5 % an die S.A. und ca. 20 °C.", ["%", "°", "Dr.", "S.A.", "ca.", "z.B."]),
        ("Das ist gut. Er geht. Und dann 7?", []),
        ("M. Dupont & Cie", ["&", "M."]),
    ],
)
def test_what_is_left_is_named(text: str, left: list[str]) -> None:
    clean = numbers_cleaner("numbers_de")
    assert clean is not None and find_left([text], clean) == left
    assert clean("{AH0 B} 2") == "{AH0 B} zwei"  # ARPAbet keeps its digits


def test_a_long_text_is_not_cut_within_a_number() -> None:
    options = {"text_cleaners": ["numbers_de", "basic_cleaners"]}
    options["symbols"] = ["_", " ", *"abcdefghijklmnopqrstuvwxyzäöü.,"]
    text = "Er kommt am 3. Mai um 12:30 und am 4. Juli, mit 1.000 Leuten und 5,50 € in bar. Dann geht er 2025. Ja."
    clean, parts = get_cleaner(options["text_cleaners"]), [piece.text for piece in pieces(text, 20, options)]
    assert len(parts) > 4 and " ".join(map(clean, parts)) == clean(text)
    assert [part for part in parts if part.endswith("dritte")] == [] and parts[-1] == "Ja."


def test_inflect_is_imported_without_checks_of_types_and_typeguard_checks_on() -> None:
    code = "import typeguard, common.data.number_words as n; e = n.inflect_engine()\n"
    done = call(
        sys.executable, "-c", f"{code}print(*type(e).plural.__code__.co_names, typeguard.typechecked.__module__)"
    )
    assert "postprocess" in done.out and "TypeCheckMemo" not in done.out and done.out.endswith("typeguard\n")
