"""Normalised words: both ways to write a thing must come out the same; and errors counted by hand."""

from __future__ import annotations

import math

import pytest

from common.quality.words import Edits, Errors, character_errors, normalise, word_edits, word_errors


@pytest.fixture
def counting() -> None:
    pytest.importorskip("jiwer", reason="bash scripts/evaluation.sh installs it")


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It is 6:45 p.m.", "It is six forty five p m."),
        ("It is 6:45pm.", "it is six forty-five P M"),
        ("At 7:01 am, I am up.", "at seven oh one a m I am up"),
        ("I am late.", "i am late"),
        ("The clock says 4:00.", "the clock says four"),
        ("ten o two", "ten oh two"),
        ("Six o'clock", "six o\u2019clock"),
        ("Dr. Evans moved here in 1995.", "Doctor Evans moved here in nineteen ninety-five."),
        ("In 2003, 1907, 1900 and 2015", "in two thousand three nineteen oh seven nineteen hundred and twenty fifteen"),
        (
            "It cost $48.50, not $1 or $0.55!",
            "it cost forty-eight dollars, fifty cents not one dollar or fifty five cents",
        ),
        ("$5 million or $1.5 billion", "five million dollars or one point five billion dollars"),
        (
            "$5-million, $5M and $1 million dollars",
            "five million dollars, five million dollars and one million dollars",
        ),
        ("$.5 million, $1900 million", "zero point five million dollars, one thousand nine hundred million dollars"),
        ("the 21st, the 3rd and the 80th", "the twenty-first, the third and the eightieth"),
        (
            "350 or 2,000 or 118 or 3.5",
            "three hundred fifty or two thousand or one hundred eighteen or three point five",
        ),
        ("Mr Baker", "mister baker"),
    ],
)
def test_written_and_spoken_forms_meet(written: str, spoken: str) -> None:
    assert normalise(written) == normalise(spoken)
    assert normalise(spoken) == spoken.lower().translate(str.maketrans("-", " ", "',.!\u2019")).replace(" o ", " oh ")


@pytest.mark.parametrize(
    ("reference", "hypothesis", "words", "characters"),
    [
        ("The cat sat.", "the cat sat", (0, 3), (0, 11)),
        ("The cat sat.", "the bat sat down", (2, 3), (6, 11)),  # c → b, ` down`
        ("It is 5 p.m.", "it is p m", (1, 5), (5, 14)),  # `five ` of `it is five p m`
        ("The cat sat.", "", (3, 3), (11, 11)),
        ("", "no one", (2, 0), (6, 0)),
        ("…", "", (0, 0), (0, 0)),
    ],
)
def test_errors_counted_by_hand(counting, reference: str, hypothesis: str, words, characters) -> None:
    assert word_errors(reference, hypothesis) == words
    assert character_errors(reference, hypothesis) == characters


def test_edits_by_kind(counting) -> None:
    edits = word_edits("one two three four", "one too three four five six")
    assert edits == Edits(substituted=1, deleted=0, inserted=2, unchanged=3)
    assert edits.errors == Errors(3, 4)


def test_rate_is_of_the_reference() -> None:
    assert Errors(3, 4).rate == 0.75
    assert Errors(6, 4).rate == 1.5
    assert math.isnan(Errors(2, 0).rate)


@pytest.mark.parametrize(
    "number", ["9" * 37, "9" * 5000, "9," + "999," * 12 + "999", f"${'9' * 40}", f"{'9' * 40}th", f"1.{'9' * 40}"]
)
def test_numbers_beyond_all_names_are_digits(number: str) -> None:
    words = normalise(f"a {number} b").split()
    assert words[0] == "a" and words[-1] == "b"
    assert words.count("nine") + words.count("ninth") >= 37
