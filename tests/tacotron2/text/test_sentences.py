"""Cutting long texts: a table of sentence ends, the order of the other places, and what holds for every text."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tacotron2.text.reading.reader import read_english
from tacotron2.text.sentences import CLAUSE_PAUSE, COMMA_PAUSE, SENTENCE_PAUSE, pieces

CASES = [line.split("\t")[0] for line in Path(__file__).with_name("reading_cases.tsv").read_text().splitlines()]
END = " And that is the end of this text." * 3


@pytest.mark.parametrize(
    "sentences",
    [
        ["One is here.", "Two is there!", "Is three?", "Four…", "Five?!", "Six."],
        ["Dr. Smith and Mrs. Jones met Mr. St. John.", "Prof. Brown came."],
        ["He read J. R. R. Tolkien and J.R.R. Tolkien, and George W. Bush did not.", "Then he slept."],
        ["It costs $3.14, i.e. not 5.", "Fruit, e.g. Apples, is dear.", "See p. 5, No. 7 and vol. 2 of it."],
        ["At 5 p.m. on Monday it rained.", "At 5 p.m. Monday it rained.", "It ended at 7 a.m.", "The sun rose."],
        ["In the U.S. Army he was happy.", "He came back to the U.S.", "She did not."],
        ["Smith Inc. Chairman Jones left.", "So did Smith Inc.", "They were sorry, etc.", "And then?"],
        ["“Really?” she asked.", "“Go!”", "(He went.)", "'Yes.'", '"No."', "It is so."],
        ["It was Plan B.", "Then there was Plan C.", "I was born in 1998.", "Well...", "I was not."],
        ["Go {HH AH0 L OW1}.", "{DH AH0} dog.", "End."],
        ["MR. SMITH AND DR. JONES MET.", "THE U.S. ARMY DID NOT.", "THEY WENT."],
        ["Да.", "Нет!", "こんにちは。", "元気ですか？", "「はい。」", "ok."],
        ["... He waited.", "He went. . .", "She came - so."],
        ["Roe v. Wade vs. Jones.", "On Main St. nobody lives.", "He lives on Main St.", "The house is red."],
    ],
    ids=lambda sentences: sentences[0],
)
def test_sentences(sentences: list[str]) -> None:
    text = re.sub(r"(?<=[。？」]) ", "", " ".join(sentences))
    cut = pieces(text + END, 90)
    assert [piece.text for piece in cut[:-3]] == sentences
    assert {piece.pause for piece in cut} == {SENTENCE_PAUSE} == {0.35}


def test_a_text_within_the_limit_and_one_without_a_limit_are_whole() -> None:
    text = "One. Two; three, four."
    assert pieces(text, len(text)) == [(text, 0.0)]
    assert pieces(text * 100, 0) == [(text * 100, 0.0)]
    assert len(pieces(text, len(text) - 1)) == 2
    assert pieces("", 5) == [("", 0.0)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # the clause in the middle, though commas are nearer to it
        (
            "one, two, three; four, five, six, seven, eight",
            [("one, two, three;", 0.25), ("four, five, six, seven, eight", 0.35)],
        ),
        ("one two three four: five six seven eight", [("one two three four:", 0.25), ("five six seven eight", 0.35)]),
        ("one two three — four five six seven eight", [("one two three —", 0.25), ("four five six seven eight", 0.35)]),
        ("one two three—four five six seven eight", [("one two three—", 0.25), ("four five six seven eight", 0.35)]),
        (
            "one two three -- four five six seven eight",
            [("one two three --", 0.25), ("four five six seven eight", 0.35)],
        ),
        (
            "one two three - four well-known five sixes",
            [("one two three -", 0.25), ("four well-known five sixes", 0.35)],
        ),
        ("one two, three four five six seven eight", [("one two,", 0.15), ("three four five six seven eight", 0.35)]),
        # where there is nothing else, the space nearest to the middle
        ("one two three four five six seven eight", [("one two three four", 0.0), ("five six seven eight", 0.35)]),
        # a time and a number are no places
        ("at 5:30 he had 1,000 of them and many more", [("at 5:30 he had 1,000", 0.0), ("of them and many more", 0.35)]),
        # neither are spaces between ARPAbet, nor signs alone a piece
        ("{W AH1 N T UW1 TH R IY1 F AO1 R} five, !!! , .", [("{W AH1 N T UW1 TH R IY1 F AO1 R}", 0.0), ("five, !!! , .", 0.35)]),
    ],
)  # fmt: skip
def test_places_by_rank(text: str, wanted: list[tuple[str, float]]) -> None:
    assert pieces(text, 32) == wanted


def test_pauses_by_what_ended_a_piece() -> None:
    assert (SENTENCE_PAUSE, CLAUSE_PAUSE, COMMA_PAUSE) == (0.35, 0.25, 0.15)
    text = "alpha beta gamma delta, epsilon zeta eta theta; iota kappa lambda mu nu xi. Omicron pi."
    assert [piece.pause for piece in pieces(text, 26)] == [0.15, 0.25, 0.0, 0.35, 0.35]


def test_amounts_and_dates_are_read_before_they_could_be_parted() -> None:
    text = "They paid all of the $5 million before March 3, 1998"
    assert pieces(text, 40, read_english) == [
        ("They paid all of the five million", 0.0),
        ("dollars before March third,", 0.15),
        ("nineteen ninety-eight", 0.35),
    ]


def test_lengths_are_those_of_what_is_read() -> None:
    assert len(pieces("1999 1999 1999.", 30)) == 1
    assert len(pieces("1999 1999 1999.", 30, read_english)) > 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_text(seed: int) -> None:
    draw = random.Random(seed)
    marks = [" ", " ", " ", ", ", ". ", "; ", "! ", " — ", " {HH AH0 L OW1} ", "... ", ".) ", "", "♥ ", "。"]
    for limit in (1, 20, 60, 150):
        text = "".join(draw.choice(CASES) + draw.choice(marks) for _ in range(60)).strip()
        cut = [piece.text for piece in pieces(text, limit)]
        assert "".join("".join(cut).split()) == "".join(text.split())  # nothing is lost, and all is in its order
        for piece in cut:
            assert any(map(str.isalnum, piece)), piece
            assert piece == piece.strip()
            assert piece.count("{") == piece.count("}")
            words = re.sub(r"\{[^{}]*\}", lambda braced: "x" * len(braced[0]), piece).split()
            has_one_word = sum(any(map(str.isalnum, word)) for word in words) == 1
            assert len(piece) <= limit or has_one_word, piece


@pytest.mark.parametrize("part", ["a ", "a", "a, ", "Mr. ", "! ", "{AH0} ", "a. ", "A. ", "; "])
def test_texts_of_any_length(part: str) -> None:
    text = f"{part * 5_000}end"
    assert "".join(piece.text for piece in pieces(text, 150)).replace(" ", "") == text.replace(" ", "")
