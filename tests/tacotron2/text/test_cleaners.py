"""The published cleaners: whole sentences, abbreviations, and numerals by a table written by hand and by sweeps."""

import re

import pytest

from common.errors import UsageError
from tacotron2.text.cleaners import english_cleaners, get_cleaner, spell_numbers
from tests.common.reading.test_reading import VALUES, value

ABBREVIATIONS = {
    "Mrs. Mr. Dr. St. Co. Jr.": "misess mister doctor saint company junior",
    "Maj. Gen. Drs. Rev. Lt. Hon.": "major general doctors reverend lieutenant honorable",
    "Sgt. Capt. Esq. Ltd. Col. Ft.": "sergeant captain esquire limited colonel fort",
    "MR. mR. mr": "mister mister mr",
    "alamo. first. best. left.": "alamo. first. best. left.",
    "St.Co. and Co.St.": "saintco. and companysaint",
}


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        *ABBREVIATIONS.items(),
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


def test_other_cleaners_leave_numbers_abbreviations_and_alphabets_and_several_apply_in_order() -> None:
    assert get_cleaner("transliteration_cleaners")("Dr.  Müller,\n1984") == "dr. mueller, 1984"
    assert get_cleaner("basic_cleaners")("Dr.  MÜLLER,\n1984") == "dr. müller, 1984"
    assert get_cleaner([])("Ab  1é") == "Ab  1é"
    assert get_cleaner(["numbers_de", "english_cleaners"])("Ab  1é") == "ab eins e"
    assert get_cleaner(["english_cleaners", "numbers_de"])("Ab  1é") == "ab onee"


@pytest.mark.parametrize("text", ["Dr. O'Neil's 2nd $1.2 — 3,000 ½ {", "".join(map(chr, range(0x3000)))])
def test_cleaned_english_is_ascii_without_capitals_digits_or_double_spaces(text: str) -> None:
    cleaned = english_cleaners(text)
    assert cleaned.isascii()
    assert not any(character.isupper() or character.isdigit() for character in cleaned)
    assert "  " not in cleaned


def test_one_error_names_all_unknown_cleaners() -> None:
    with pytest.raises(UsageError) as caught:
        get_cleaner(["english_cleaner", "basic_cleaners", "none"])
    names = "english_cleaners, basic_cleaners, transliteration_cleaners, numbers_CODE"
    assert str(caught.value) == f"text cleaners: got 'english_cleaner', 'none', wanted names from {names}"


SPELLED_TABLE = """
# cardinals
0 = zero | 007 = seven | 16 = sixteen | 42 = forty-two | 100 = one hundred | 101 = one hundred one
999 = nine hundred ninety-nine | 1000 = one thousand | 3000 = three thousand | 3001 = three thousand one
12,345 = twelve thousand, three hundred forty-five | 1,250,000 = one million, two hundred fifty thousand
7,000,000,000 = seven billion
# years, and numbers that look like one
1001 = ten oh one | 1066 = ten sixty-six | 1100 = eleven hundred | 1900 = nineteen hundred | 1905 = nineteen oh five
1984 = nineteen eighty-four | 2000 = two thousand | 2001 = two thousand one | 2009 = two thousand nine | 2010 = twenty ten
2100 = twenty-one hundred | 2999 = twenty-nine ninety-nine | 1,984 = nineteen eighty-four
# ordinals
1st = first | 2nd = second | 3rd = third | 12th = twelfth | 20th = twentieth | 21st = twenty-first | 100th = one hundredth
101st = one hundred and first | 1,000th = one thousandth
# decimals: digits after the point form one number
0.5 = zero point five | 3.14 = three point fourteen | 3.05 = three point five | 1.2.3 = one point two.three
.75 = .seventy-five | 5. = five.
# dollars
$0 = zero dollars | $1 = one dollar | $2.00 = two dollars | $0.01 = one cent | $.50 = fifty cents
$1.01 = one dollar, one cent | $3.50 = three dollars, fifty cents | $1.5 = one dollar, five cents
$1,000 = one thousand dollars | $1999 = nineteen ninety-nine dollars | $1.2.3 = one point two.three dollars
$,5 = five dollars | $ = $
# lists, words and signs around numbers
1,2 = twelve | 1, 2 = one, two | 10:30 = ten:thirty | 1/2 = one/two | mp3 = mpthree | no numerals = no numerals
"""
_LINES = [line for line in SPELLED_TABLE.splitlines() if line and not line.startswith("#")]
SPELLED = dict(pair.split(" = ") for line in _LINES for pair in line.split(" | "))


def test_numerals_become_the_words_of_the_table() -> None:
    assert {numeral: re.sub(" +", " ", spell_numbers(numeral)) for numeral in SPELLED} == SPELLED


def test_cardinals_read_back_to_their_value() -> None:
    numbers = [*range(1001), *range(3000, 4000), *(37**k for k in range(3, 8)), 999_999_999_999]
    assert [value(spell_numbers(str(n))) for n in numbers] == numbers


def test_years_read_back_as_two_pairs() -> None:
    years = [year for year in range(1001, 3000) if year % 100 and year // 10 != 200]
    for year in years:
        words = re.findall("[a-z]+", spell_numbers(str(year)).replace("oh ", "zero "))
        century = re.findall("[a-z]+", spell_numbers(str(year // 100)))
        assert words[: len(century)] == century
        assert sum(VALUES[word] for word in words[len(century) :]) == year % 100


@pytest.mark.parametrize("digits", [37, 5000])
def test_numbers_too_long_for_names_are_read_digit_by_digit(digits: int) -> None:
    numeral = "1" + "0" * (digits - 1)
    spelled = " ".join(["one"] + ["zero"] * (digits - 1))
    assert spell_numbers(numeral) == spelled
    assert spell_numbers(f"${numeral}") == f"{spelled} dollars"
    assert spell_numbers(f"{numeral}th") == f"{spelled.removesuffix('zero')}zeroth"
    assert spell_numbers("9" + "0" * 35) == "nine hundred decillion"  # the longest that has a name
