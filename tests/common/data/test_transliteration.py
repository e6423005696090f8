"""Transliteration: letters by their Unicode decomposition, signs one by one."""

import unicodedata

import pytest

from common.data import transliteration
from common.data.transliteration import MOST_MARKS, compose, to_ascii


def test_ascii_is_left_alone_and_accented_latin_letters_lose_their_accents() -> None:
    every_character = "".join(map(chr, range(128)))
    assert to_ascii(every_character) == every_character
    letters = [chr(i) for i in range(0xC0, 0x180) if chr(i) not in "ÄÖÜäöü"]
    parts = {letter: unicodedata.normalize("NFD", letter) for letter in letters}
    accented = {letter: both for letter, both in parts.items() if len(both) > 1 and both[0].isascii()}
    assert len(accented) > 100
    for letter, both in accented.items():
        assert to_ascii(letter) == to_ascii(both[:2]) == both[0]


@pytest.mark.parametrize(
    ("text", "ascii_text"),
    [
        ("Müller, Österreich, Bär", "Mueller, Oesterreich, Baer"),
        ("Mu\u0308ller", "Mueller"),
        ("Straße, œuvre, Æsop, smørrebrød, Łódź", "Strasse, oeuvre, AEsop, smorrebrod, Lodz"),
        ("\u2018single\u2019 it\u2019s \u201cdouble\u201d", "'single' it's \"double\""),
        ("1984\u20132001, well\u2010known, \u22125", "1984-2001, well-known, -5"),
        ("a\u00a0b\u2003c", "a b c"),
        ("\uff11\uff12\uff0c\uff21\uff01", "12,A!"),
        ("Москва", "Moskva"),
        ("|".join("—…£€¢½²°™©«»¡¿§→😀\u200b\ufeff\u00ad"), "|" * 19),  # signs without a twin are dropped
    ],
)
def test_letters_spaces_twins_and_signs(text: str, ascii_text: str) -> None:
    assert to_ascii(text) == ascii_text


@pytest.mark.parametrize(
    "text",
    ["Mu\u0308ller", "e\u0301\u0323" * 50, "\u0301\u0323x", f"a{chr(0x301) * MOST_MARKS}b", "\u1112\u1161\u11ab한"],
)
def test_composition_is_nfc(text: str) -> None:
    assert compose(text) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0f73\u0f71", "\u0345"])
def test_long_runs_of_marks_are_composed_in_parts(monkeypatch: pytest.MonkeyPatch, marks: str) -> None:
    """300,000 of them kept train.py busy for minutes: sorting a run takes quadratic time."""
    lengths, normalize = [], unicodedata.normalize
    measure = lambda form, text: lengths.append(len(text)) or normalize(form, text)  # noqa: E731
    monkeypatch.setattr(transliteration.unicodedata, "normalize", measure)
    text = f"e{marks * (60_000 // len(marks))}x"
    composed = compose(text)
    assert max(lengths) == MOST_MARKS + 1 and len(composed) > 59_000
    assert normalize("NFD", composed[:1])[0] == "e" and composed[-1] == "x"
    assert to_ascii(text) == "ex"
