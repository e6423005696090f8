"""Cutting long texts: a table of sentence ends, the order of the other places, and invariants for every text."""

import random
import re
from pathlib import Path

import pytest

from common.reading.reader import read_places
from tacotron2.data_function import pieces, spell
from tacotron2.text.sentences import CLAUSE_PAUSE, COMMA_PAUSE, SENTENCE_PAUSE, Conversion, cut_text
from tests.tacotron2.test_data_function import without_keys

_LINES = (Path(__file__).parents[2] / "common/reading/reading_cases.tsv").read_text().splitlines()
CASES = [line.split("\t")[0] for line in _LINES]
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
def test_texts_are_cut_at_sentence_ends(sentences: list[str]) -> None:
    text = re.sub(r"(?<=[。？」]) ", "", " ".join(sentences))
    cut = cut_text(text + END, 90)
    assert [piece.text for piece in cut[:-3]] == sentences
    assert {piece.pause for piece in cut} == {SENTENCE_PAUSE} == {0.35}


def test_whole_texts_and_pauses_at_their_marks() -> None:
    text = "One. Two; three, four."
    assert without_keys(cut_text(text, len(text))) == [(text, 0.0)]
    assert without_keys(cut_text(text * 100, 0)) == [(text * 100, 0.0)]

    assert without_keys(cut_text("", 5)) == [("", 0.0)]
    assert (SENTENCE_PAUSE, CLAUSE_PAUSE, COMMA_PAUSE) == (0.35, 0.25, 0.15)
    text = "alpha beta gamma delta, epsilon zeta eta theta; iota kappa lambda mu nu xi. Omicron pi."
    assert [piece.pause for piece in cut_text(text, 26)] == [0.15, 0.25, 0.0, 0.35, 0.35]


@pytest.mark.parametrize(
    ("parts", "pause"),
    [
        ("one, two, three;|four, five, six, seven, eight", 0.25),  # though a comma is nearer to the middle
        ("one two three four:|five six seven eight", 0.25),
        ("one two three —|four five six seven eight", 0.25),
        ("one two three -|four well-known five sixes", 0.25),
        ("one two three --|four five six seven eight", 0.25),
        ("one two,|three four five six seven eight", 0.15),
        ("one two three four|five six seven eight", 0.0),  # without any mark, the space nearest to the middle
        ("at 5:30 he had 1,000|of them and many more", 0.0),  # no cut within a time or a number
        ("{W AH1 N T UW1 TH R IY1 F AO1 R}|five, !!! , .", 0.0),  # or ARPAbet; no piece of signs alone
    ],
)
def test_cuts_prefer_clauses_then_commas_then_spaces(parts: str, pause: float) -> None:
    first, second = parts.split("|")
    assert without_keys(cut_text(f"{first} {second}", 32)) == [(first, pause), (second, 0.35)]
    assert without_keys(cut_text("one two three—four five six seven eight", 32))[0] == ("one two three—", 0.25)


def test_amounts_and_dates_are_converted_before_a_cut_and_the_limit_counts_spoken_characters() -> None:
    text = "They paid all of the $5 million before March 3, 1998"
    assert without_keys(cut_text(text, 40, Conversion(read_places))) == [
        ("They paid all of the five million", 0.0),
        ("dollars before March third,", 0.15),
        ("nineteen ninety-eight", 0.35),
    ]
    assert len(cut_text("1999 1999 1999.", 30)) == 1
    assert len(cut_text("1999 1999 1999.", 30, Conversion(read_places))) > 1


@pytest.mark.parametrize(
    ("text", "reading", "cleaners"),
    [
        ("FBI No. XIV ", "spoken", "english_cleaners"),  # "No. XIV" is number fourteen, "No." is no
        ("XIV é、St. ", "spoken", "english_cleaners"),  # the cleaner reads "St." where no letter is before it
        ("10 - ,1/2 é、Dr. ", "spoken", "english_cleaners"),
        ("999—999 Smith", "as-published", "english_cleaners"),  # the cleaner drops the dash: one number
        ("1\x85000 cats", "as-published", "english_cleaners"),  # and this space
        ("ΑΣ：α α", "spoken", "basic_cleaners"),  # a final sigma differs
        (f"${'9' * 1010}", "as-published", "english_cleaners"),
    ],
)
def test_words_do_not_depend_on_cuts(text: str, reading: str, cleaners: str) -> None:
    options = {"text_cleaners": [cleaners], "text_reading": reading}
    if cleaners != "english_cleaners":
        options["symbols"] = ["_", *" abcdefghijklmnopqrstuvwxyzαςσ"]

    def words(text: str) -> str:
        return "".join(symbol for symbol in spell(text, options) if symbol.isalpha())

    for limit in range(1, 20):
        assert "".join(words(piece.text) for piece in pieces(text, limit, options)) == words(text), limit


@pytest.mark.parametrize("seed", range(3))
def test_random_texts_keep_the_limit_and_all_words(seed: int) -> None:
    draw = random.Random(seed)
    marks = [" ", " ", " ", ", ", ". ", "; ", "! ", " — ", " {HH AH0 L OW1} ", "... ", ".) ", "", "♥ ", "。"]
    for limit in (1, 20, 60, 150):
        text = "".join(draw.choice(CASES) + draw.choice(marks) for _ in range(60)).strip()
        cut = [piece.text for piece in cut_text(text, limit)]
        assert "".join("".join(cut).split()) == "".join(text.split())  # same characters, same order
        for piece in cut:
            assert any(map(str.isalnum, piece)), piece
            assert piece == piece.strip()
            assert piece.count("{") == piece.count("}")
            words = re.sub(r"\{[^{}]*\}", lambda braced: "x" * len(braced[0]), piece).split()
            has_one_word = sum(any(map(str.isalnum, word)) for word in words) == 1
            assert len(piece) <= limit or has_one_word, piece


@pytest.mark.slow
@pytest.mark.parametrize("filler", [".", "9", "…", "9."])
def test_the_time_of_a_long_line_is_linear(filler):
    """Patterns that begin anew inside a run took minutes here."""
    parts = pieces(f"Go {filler * (60_000 // len(filler))} on.", 150, {})
    assert parts[0].text.startswith("Go") and parts[-1].text.endswith("on.")
    assert max(len(part.text) for part in parts) <= 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("." * 30_000, "." * 1000),
        ("\u3000" * 1100 + "😀", " "),
        ("😀" * 1100 + " 😀" * 100, " "),
        ("😀" * 900 + "! " + "." * 1000, "!"),
        ("\ufdfa" * 1100, "\ufdfa" * 1100),  # without symbols: encode reports it
        ("😀" * 3000, "😀" * 3000),
    ],
    ids=["points", "spaces", "spaces between", "sign and points", "letters", "signs"],
)
def test_a_long_text_of_signs_has_nothing_to_say_and_as_published_is_one_short_piece(text, expected):
    assert pieces(text, 150, {}) == []
    (piece,) = pieces(text, 150, {"text_reading": "as-published"})
    assert piece.text.startswith(expected) and (len(piece.text) <= 1000 or piece.text == text)


def test_words_of_any_length_are_cut_between_units():
    text = "b" * 999 + "{HH AH0}" * 300
    parts = list(cut_text(text, 150))
    assert "".join(part.text for part in parts) == text
    assert all(part.text.count("{") == part.text.count("}") for part in parts)
    assert [part.text for part in cut_text("b" * 1000, 150)] == ["b" * 1000]
