"""benchmarks.studio.diphones: pairs counted by hand, and the greedy choice."""

from __future__ import annotations

from collections import Counter

from benchmarks.studio.diphones import Coverage, choose, coverage, diphones

PRONUNCIATIONS = {"see": [["S", "IY1"], ["IH0"]], "a": [["AH0"]], "two": [["T", "UW1"]]}


def test_pairs_cross_words_and_end_at_pauses() -> None:
    pairs = [("_", "S"), ("S", "IY"), ("IY", "AH"), ("AH", "_"), ("_", "T"), ("T", "UW"), ("UW", "_")]
    assert diphones("See a, 2!", PRONUNCIATIONS) == pairs
    assert diphones("See zzz a", PRONUNCIATIONS) == [("_", "S"), ("S", "IY"), ("AH", "_")]  # no pronunciation


def test_coverage_counts_types_and_tokens() -> None:
    counts = Counter({("_", "S"): 6, ("S", "IY"): 5, ("T", "UW"): 5, ("IY", "_"): 4})
    assert coverage(["See."], counts, PRONUNCIATIONS) == Coverage(2, 3, 15 / 20)


def test_the_choice_takes_what_adds_most() -> None:
    counts = Counter(dict.fromkeys(diphones("See two a.", PRONUNCIATIONS), 9))
    assert choose(["See.", "Two.", "See two a.", "See two."], 2, counts, PRONUNCIATIONS)[0] == "See two a."
    assert choose(["See."], 5, counts, PRONUNCIATIONS) == ["See."]
