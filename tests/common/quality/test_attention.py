"""Alignments made by hand, and normalised words; readings and errors are counted by hand."""

import math

import pytest
import torch
from torch import Tensor

from common.quality.attention import Reading, attention_focus, furthest, read_attention
from common.quality.words import Edits, Errors, character_errors, normalise, word_edits, word_errors


def attending(positions: list[int], symbols: int) -> Tensor:
    """An alignment with all of a step's weight on one symbol."""
    return torch.nn.functional.one_hot(torch.tensor(positions), symbols).float()


def each(start: int, end: int, times: int = 3) -> list[int]:
    """Positions from start to end - 1, each for some steps."""
    return [position for position in range(start, end) for _ in range(times)]


CASES = {
    "diagonal": (each(0, 20), 20, Reading(1, 1, 1, 0, 0)),
    "jump over five": (each(0, 5) + each(10, 20), 20, Reading(1, 1, 0.75, 1, 0)),
    "jump over four, which is not far": (each(0, 5) + each(9, 20), 20, Reading(1, 1, 0.8, 0, 0)),
    "two jumps": (each(0, 3) + each(9, 12) + each(18, 20), 20, Reading(1, 1, 0.4, 2, 0)),
    "a late start": (each(5, 20), 20, Reading(1, 1, 0.75, 1, 0)),
    "an early end": (each(0, 10), 20, Reading(1, 1, 0.5, 0, 0)),
    "one loop": (each(0, 10) + each(0, 20), 20, Reading(1, 1 - 1 / 89, 1, 0, 1)),
    "a loop of four, which is not far": (each(0, 10) + each(5, 20), 20, Reading(1, 1 - 1 / 74, 1, 0, 0)),
    "three loops": (each(0, 10) * 3 + each(0, 20), 20, Reading(1, 1 - 3 / 149, 1, 0, 3)),
    "ahead, then back to what was left": (each(0, 5) + each(12, 20) + each(5, 12), 20, Reading(1, 1 - 1 / 59, 1, 1, 0)),
    "ahead, then back to what is read": (each(0, 10) + each(16, 20) + each(3, 20), 20, Reading(1, 1 - 1 / 92, 1, 1, 1)),
    "faster than a symbol a step, and again": ([*range(0, 20, 2), *range(1, 20, 2)], 20, Reading(1, 18 / 19, 1, 0, 1)),
    "stuck": ([4] * 30, 20, Reading(1, 1, 0.05, 0, 0)),
    "a glance of one step": ([*each(0, 5), 19, *each(5, 20)], 20, Reading(1, 1 - 1 / 60, 1, 0, 0)),
    "one symbol back now and then": ([0, 1, 0, 1, 2, 1, 2, 3], 4, Reading(1, 1, 1, 0, 0)),
    "backwards by two": ([8, 6, 4, 2, 0], 9, Reading(1, 0, 5 / 9, 1, 0)),
    "one step": ([0], 4, Reading(1, 1, 0.25, 0, 0)),
    "one symbol": ([0, 0, 0], 1, Reading(1, 1, 1, 0, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_readings_counted_by_hand(name: str) -> None:
    positions, symbols, expected = CASES[name]
    assert tuple(read_attention(attending(positions, symbols))) == pytest.approx(tuple(expected))


def test_focus_is_the_mean_of_the_largest_weights_and_half_a_step_covers() -> None:
    assert read_attention(torch.full((10, 20), 1 / 20)) == pytest.approx((1 / 20, 1, 1, 0, 0))  # 10/20 of a step each
    assert read_attention(torch.full((9, 20), 1 / 20)).coverage == 0
    weights = torch.tensor([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.0, 0.5, 0.5]], dtype=torch.bfloat16)
    assert read_attention(weights).focus == pytest.approx(0.6, abs=2e-3)  # bfloat16 has 8 bits
    assert read_attention(weights).coverage == pytest.approx(1)
    assert read_attention(torch.zeros(0, 7)) == (0, 1, 0, 0, 0)


def test_the_furthest_symbol_is_not_that_of_a_single_glance_and_focus_in_closed_form() -> None:
    places = [0, 1, 2, 9, 3, 4]  # of ten symbols
    alignment = torch.zeros(6, 10)
    alignment[range(6), places] = 1
    assert furthest(alignment) == 4
    assert furthest(torch.eye(10)) == 9
    assert furthest(torch.zeros(0, 10)) == -1
    alignments = torch.full((4, 5, 4), 0.25)  # item 0: spread evenly
    alignments[1] = torch.eye(4)[[0, 1, 2, 3, 3]]  # item 1: one symbol at a time
    alignments[2, :3] = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0.5, 0.5, 0]])
    alignments[2, 3:] = torch.nan  # past the length: must not count
    focus = attention_focus(alignments, torch.tensor([5, 5, 3, 0]))
    assert focus.tolist() == pytest.approx([0.25, 1.0, 2.5 / 3, 0.0])


@pytest.fixture
def counting() -> None:
    pytest.importorskip("jiwer", reason="of requirements/eval.txt")


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
        ("2009, 2010, 1907 and 1900", "two thousand nine twenty ten nineteen oh seven and nineteen hundred"),
        ("$48.50, not $1 or $0.55!", "forty-eight dollars, fifty cents not one dollar or fifty five cents"),
        ("$5 million or $1.5 billion", "five million dollars or one point five billion dollars"),
        ("$5-million, $5M, $1 million dollars", "five million dollars, five million dollars, one million dollars"),
        ("$.5 million, $1900 million", "zero point five million dollars, one thousand nine hundred million dollars"),
        ("the 21st, the 3rd and the 80th", "the twenty-first, the third and the eightieth"),
        ("350, 2,000, 118, 3.5", "three hundred fifty, two thousand, one hundred eighteen, three point five"),
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
