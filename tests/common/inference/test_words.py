"""Words and their times: the way through an alignment, written and spoken words."""

from __future__ import annotations

import pytest
import torch

from common.inference.stages import Part
from common.inference.words import Timetable, word_spans
from common.spec import WordSpan
from tacotron2.spec import SPEC

OPTIONS = {"text_cleaners": ["english_cleaners"]}


def spell(text: str) -> list[str]:
    return SPEC.inference.spell(text, OPTIONS)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("attended", "finished", "spans"),
    [
        ([0, 0, 1, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7], True, [("go", 0, 3), ("on", 4, 7), ("@HH", 11, 13)]),
        ([0, 1, 7, 2, 3, 4, 5, 6, 7], True, [("go", 0, 3), ("on", 4, 6), ("@HH", 8, 9)]),  # a glance ahead
        ([0, 0, 1, 2, 3, 4, 4, 4], True, [("go", 0, 3), ("on", 4, 7), ("@HH", 7, 8)]),  # no step for the last word
        ([0, 0, 1, 2, 3, 4, 4, 4], False, [("go", 0, 3), ("on", 4, 8)]),  # cut off before it
    ],
)
def test_words_are_in_order_and_between_them_is_silence(attended: list[int], finished: bool, spans: list) -> None:
    symbols = [*"go on, ", "@HH", "."]
    alignment = torch.full((len(attended), len(symbols)), 0.01)
    alignment[range(len(attended)), attended] = 0.9
    wanted = [WordSpan(word.removeprefix("@"), *span) for word, *span in spans]
    assert word_spans(alignment, symbols, finished) == wanted
    assert word_spans(alignment[:0], symbols) == word_spans(alignment, [" ", "."]) == []


# Written, pieces as read, and the place in the text of each written word with the number of words it is read as.
READINGS = [
    ("Dr. Smith paid $5 - now.", ["doctor smith paid five dollars", "now."], "Dr. Smith paid $5 $5 now."),
    ("$5 million?", ["five million dollars?"], "$5 million? million?"),
    ("In 1995, No. 7", ["in nineteen ninety-five, number seven"], "In 1995, 1995, No. 7"),
    ("say {HH AH0 L OW1} {", ["say {HH AH0 L OW1}"], "say {HH AH0 L OW1}"),
    ("a 1,200 b", ["a one thousand", "two hundred b"], "a 1,200 1,200 1,200 1,200 b"),
    ("a 1,200 b", ["a one thousand two", "hundred b"], "a 1,200 1,200 1,200 1,200 b"),
    ("...", ["..."], ""),
]


@pytest.mark.parametrize(("text", "pieces", "owners"), READINGS)
def test_times_are_those_of_written_words(text: str, pieces: list[str], owners: str) -> None:
    """A step for each symbol, of a second each, with half a second between two pieces."""
    symbols = [spell(piece) for piece in pieces]
    table, found, start = Timetable(text, pieces, spell), [], 0.0
    for own in symbols:
        words = table.add(Part("", len(own), len(own), start, len(own), True), torch.eye(len(own)))
        assert all(start < word.end <= start + len(own) for word in words)
        found += words
        start += len(own) + 0.5
    texts = list(dict.fromkeys(owners.replace("{HH AH0 L OW1}", "{HH_AH0_L_OW1}").split()))
    assert [word.text for word in found] == [text.replace("_", " ") for text in texts]
    times = [time for word in found for time in word[1:]]
    assert times == sorted(times)
    if len(pieces) == 2 and text.startswith("a"):  # the number is said in both pieces
        first = len(spell(pieces[0]))
        assert found[1].start == 2.0 and found[1].end > first + 0.5


def test_a_part_that_was_cut_off_has_no_words_beyond_its_alignment() -> None:
    for finished, texts in ((True, ["go", "on"]), (False, ["go"])):
        words = Timetable("go on", ["go on"], spell).add(Part("", 2, 2, 0.0, 2.0, finished), torch.eye(5)[:2])
        assert [word.text for word in words] == texts
