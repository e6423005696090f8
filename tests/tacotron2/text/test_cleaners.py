"""Cleaners: whole sentences, the order of the steps, and the abbreviations."""

from __future__ import annotations

import pytest

from common.errors import UsageError
from tacotron2.text.cleaners import basic_cleaners, english_cleaners, get_cleaner, transliteration_cleaners

ABBREVIATIONS = {
    "Mrs. Mr. Dr. St. Co. Jr.": "misess mister doctor saint company junior",
    "Maj. Gen. Drs. Rev. Lt. Hon.": "major general doctors reverend lieutenant honorable",
    "Sgt. Capt. Esq. Ltd. Col. Ft.": "sergeant captain esquire limited colonel fort",
    "MR. mR. mr": "mister mister mr",
    "alamo. first. best. left.": "alamo. first. best. left.",
    "St.Co. and Co.St.": "saintco. and companysaint",
}


@pytest.mark.parametrize(("text", "words"), ABBREVIATIONS.items())
def test_abbreviations(text: str, words: str) -> None:
    assert english_cleaners(text) == words


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("", ""),
        ("  Spaces\tand\r\nnewlines\u00a0 collapse ", " spaces and newlines collapse "),
        ("Mr. Smith paid $3.50 at 10:30.", "mister smith paid three dollars, fifty cents at ten:thirty."),
        ("The 3RD of May — 2005", "the third of may two thousand five"),
        ("£1,250,000 in 1900", "one million, two hundred fifty thousand in nineteen hundred"),
        ("\uff11\uff19\uff18\uff14", "nineteen eighty-four"),
        ("42 Oak St.", "forty-two oak saint"),
    ],
)
def test_english_cleaners(text: str, cleaned: str) -> None:
    assert english_cleaners(text) == cleaned


def test_transliteration_leaves_numbers_and_abbreviations() -> None:
    assert transliteration_cleaners("Dr.  Müller,\n1984") == "dr. mueller, 1984"


def test_basic_cleaners_keep_other_alphabets() -> None:
    assert basic_cleaners("Dr.  MÜLLER,\n1984") == "dr. müller, 1984"


def test_cleaners_apply_in_the_order_of_their_names() -> None:
    assert get_cleaner([])("Ab  1é") == "Ab  1é"
    assert get_cleaner("basic_cleaners")("Ab  1é") == "ab 1é"
    assert get_cleaner(["basic_cleaners", "english_cleaners"])("Ab  1é") == "ab onee"
    assert get_cleaner(["english_cleaners", "basic_cleaners"])("Ab  1é") == "ab onee"


@pytest.mark.parametrize("text", ["Dr. O'Neil's 2nd $1.2 — 3,000 ½ {", "".join(map(chr, range(0x3000)))])
def test_cleaned_english_is_ascii_without_capitals_digits_or_double_spaces(text: str) -> None:
    cleaned = english_cleaners(text)
    assert cleaned.isascii()
    assert not any(character.isupper() or character.isdigit() for character in cleaned)
    assert "  " not in cleaned


def test_one_error_names_all_unknown_cleaners() -> None:
    with pytest.raises(UsageError) as caught:
        get_cleaner(["english_cleaner", "basic_cleaners", "none"])
    assert str(caught.value) == (
        "text cleaners: got 'english_cleaner', 'none', "
        "wanted names from english_cleaners, basic_cleaners, transliteration_cleaners"
    )
