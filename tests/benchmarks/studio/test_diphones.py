"""benchmarks.studio.diphones: pairs counted by hand, greedy choice, and the sentences to read aloud."""

from __future__ import annotations

from collections import Counter

from benchmarks.studio.diphones import SCRIPT, Coverage, choose, coverage, diphones
from common.files import read_lines
from tacotron2.text.cleaners import english_cleaners
from tests.recipe import ROOT

PRONUNCIATIONS = {"see": [["S", "IY1"], ["IH0"]], "a": [["AH0"]], "two": [["T", "UW1"]]}


def test_pairs_cross_words_and_end_at_pauses() -> None:
    pairs = [("_", "S"), ("S", "IY"), ("IY", "AH"), ("AH", "_"), ("_", "T"), ("T", "UW"), ("UW", "_")]
    assert diphones("See a, 2!", PRONUNCIATIONS) == pairs


def test_a_word_without_a_pronunciation_leaves_its_pairs_out() -> None:
    assert diphones("See zzz a", PRONUNCIATIONS) == [("_", "S"), ("S", "IY"), ("AH", "_")]
    assert diphones("Zzz.", PRONUNCIATIONS) == []


def test_coverage_counts_types_and_tokens() -> None:
    counts = Counter({("_", "S"): 6, ("S", "IY"): 5, ("T", "UW"): 5, ("IY", "_"): 4})
    assert coverage(["See."], counts, PRONUNCIATIONS) == Coverage(2, 3, 15 / 20)


def test_the_choice_takes_what_adds_most() -> None:
    counts = Counter(dict.fromkeys(diphones("See two a.", PRONUNCIATIONS), 9))
    assert choose(["See.", "Two.", "See two a.", "See two."], 2, counts, PRONUNCIATIONS)[0] == "See two a."
    assert choose(["See."], 5, counts, PRONUNCIATIONS) == ["See."]


def test_the_script_can_be_read_in_one_way() -> None:
    lines = read_lines(ROOT / SCRIPT)
    assert len(set(lines)) == len(lines) == 100
    assert not [line for line in lines if any(letter.isdigit() for letter in line) or len(line.split()) > 18]
    assert all(english_cleaners(line) for line in lines)
