"""phrases/phrase_N_L.txt, whose names are published: N lines of L characters each, and each character is a symbol."""

from __future__ import annotations

import pytest

from tacotron2.text import text_to_sequence
from tests.recipe import ROOT

PUBLISHED = [(1, 64), (1, 128), (1, 256), (4, 64), (4, 256), (8, 64), (8, 256)]


def lines(number: int, length: int) -> list[str]:
    content = (ROOT / f"phrases/phrase_{number}_{length}.txt").read_bytes().decode("ascii")
    assert content.endswith("\n")
    return content[:-1].split("\n")


@pytest.mark.parametrize(("number", "length"), PUBLISHED)
def test_published_phrases_have_the_numbers_and_lengths_in_their_names(number: int, length: int) -> None:
    texts = lines(number, length)
    assert [len(text) for text in texts] == [length] * number
    assert [len(text_to_sequence(text, ["english_cleaners"])) for text in texts] == [length] * number
    assert len(set(texts)) == number
