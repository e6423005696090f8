"""Sentences of a text in pieces: the same for all sizes of pieces, and as soon as they are complete."""

import random

import pytest

from serving.sentences import SentenceCutter
from tacotron2.text.markup import ended_sentences

TEXT = """Dr. Who came at 5 p.m. on Monday.| Really?| Yes, really!| "It was late."| He left.
|The end of it
|# A heading that is longer than forty characters
|This line is one of wrapped prose, which goes
on in the next.| <b>It ends[pause:1s] here.|</b> And a title="One.| Two." too<br>|- an item
|- which is longer than forty characters and has no mark
|- last {AH0
|B} <img alt="One. Two. Three">"""  # with a mark at the end of each sentence
SENTENCES, TEXT = [sentence.strip() for sentence in TEXT.split("|")], TEXT.replace("|", "")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
def test_sentences_do_not_depend_on_the_pieces(size: int) -> None:
    cutter = SentenceCutter(ended_sentences)
    pieces = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    sentences = [sentence for piece in pieces for sentence in cutter.add(piece)]
    assert sentences + cutter.finish() == SENTENCES
    assert len(cutter) == 0 and cutter.finish() == []


PARTS = (
    "One. |Dr. |Two|!\n|\n|\n\n|<b>|</b>|<br>|<p>|<img alt='a. b'>|<|{|}|{AH0}| |  |[pause:1s]|[|]|- |# |1. |> |Then"
    f"|{'word ' * 8}|\r\n|\v|…|。|?|a|I|x<y|- item\n|e.g. |no mark here but long enough to run on and on\n"
)


def test_random_sentences_do_not_depend_on_the_pieces() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        text = "".join(draw.choice(PARTS.split("|")) for _ in range(draw.randrange(1, 25)))
        found = []
        for size in (1, 3, len(text)):
            cutter = SentenceCutter(ended_sentences)
            pieces = [text[start : start + size] for start in range(0, len(text), size)]
            found.append([sentence for piece in pieces for sentence in cutter.add(piece)] + cutter.finish())
        assert found[0] == found[1] == found[2], text


def test_a_sentence_is_complete_with_the_word_after_it() -> None:
    cutter = SentenceCutter(ended_sentences)
    assert cutter.add("Good morning. It") == []
    assert cutter.add(" is") == ["Good morning."]
    assert len(cutter) == len(" It is")
    assert cutter.add(" nine\n") == ["It is nine"]
    cutter = SentenceCutter(ended_sentences)
    assert cutter.add("One.\n\n ... \n12.\n") == ["One.", "12."]  # a number is a word
    assert cutter.add("?!") == [] and cutter.finish() == []


def test_after_its_end_a_cutter_begins_another_text() -> None:
    """In the middle of a long line, a line break is one of wrapped prose; at the beginning of a text, it ends a title."""
    cutter = SentenceCutter(ended_sentences)
    assert cutter.add(long := "a line of prose that goes on and on without a mark") == [] and cutter.finish() == [long]
    assert cutter.add("A title\nThen") == ["A title"]


@pytest.mark.parametrize("text", ["One.\tTw", "Yes!No", "One. Tw"])
def test_half_a_word_completes_nothing(text: str) -> None:
    cutter = SentenceCutter(ended_sentences)
    assert cutter.add(text) == [] and len(cutter) == len(text)
