"""studio/prepare/alignment.py: the words of a transcript for each clip, from recognised words with errors of known places."""

import random

import pytest

from common.quality.words import normalise
from studio.prepare.alignment import CLAUSE_PAUSE, NO_PAUSE, UNMARKED_PAUSE, assign_words, find_longest_pauses
from tests.sounds import SENTENCES

pytest.importorskip("rapidfuzz", reason="RapidFuzz, of requirements/eval.txt, is not installed")


def with_errors(text: str, share: float, generator: random.Random) -> str:
    """Normalise a text; change, drop or double words of it at random."""
    words = []
    for word in normalise(text).split():
        kind = generator.random() / share if share else 1.0
        words += [word] if kind >= 1 else [[], [word, word], [word[::-1]], ["the"]][int(4 * kind)]
    return " ".join(words)


def test_every_clip_has_its_text_without_errors_and_with_cuts_within_sentences() -> None:
    assert assign_words(" ".join(SENTENCES), [normalise(text) for text in SENTENCES]) == SENTENCES
    words = " ".join(SENTENCES[:60]).replace(".", "").split()
    parts = [" ".join(words[start : start + 7]) for start in range(0, len(words), 7)]
    generator = random.Random(0)
    found = assign_words(" ".join(words), [with_errors(part, 0.05, generator) for part in parts])
    assert sum(map(str.__eq__, found, parts)) >= 0.9 * len(parts)


def test_with_a_tenth_of_the_words_wrong() -> None:
    generator = random.Random(0)
    texts = generator.sample(SENTENCES, len(SENTENCES) // 2)
    found = assign_words(" ".join(texts), [with_errors(text, 0.1, generator) for text in texts])
    assert " ".join(found).split() == " ".join(texts).split()  # nothing is lost or doubled
    assert sum(map(str.__eq__, found, texts)) >= 0.98 * len(texts)


def test_numbers_and_abbreviations_are_written_as_in_the_transcript() -> None:
    parts = {
        "It was 6:45 p.m. when Dr. Brown came.": "it was six forty five pm when doctor brown came",
        "He saw 1984 sheep — and counted them.": "he saw nineteen eighty four ship and counted",
        "Then he slept.": "then he slapped",
        "Yes.": "yeah",
        "He did not wake.": "he did not wake",
    }
    assert assign_words(" ".join(parts), list(parts.values())) == list(parts)


def test_words_or_clips_without_a_counterpart_stay_alone() -> None:
    preface, chapter = "This is the preface of the book which the reader has left out.", "Chapter one begins here."
    note = "A long note of the editor that is not read aloud by the speaker either."
    found = assign_words(f"{preface} {chapter} {note} The end.", ["chapter one begins here", "the end"])
    assert found == [chapter, "The end."]
    found = assign_words("One two three. Four five six.", ["one two three", "sorry again", "four five six"])
    assert found == ["One two three.", "", "Four five six."]
    assert assign_words("A few words.", []) == [] and assign_words("", ["", "x"]) == ["", ""]


def test_words_that_are_not_recognised_belong_to_their_sentence() -> None:
    sentences = ["He said that he would come back.", "After a very long while nobody came."]
    for recognised in (("he said that he would come back", "nobody came"), ("he said that", sentences[1].lower())):
        assert assign_words(" ".join(sentences), recognised) == sentences


def test_pauses_within_sentences_at_their_ends_and_around_foreign_speech() -> None:
    transcript = "When the rain stopped, the two children ran “out.” An old cart stood behind the red barn. They sat."
    recognised = ["when the rain stopped", "the two children ran out", "an old cart", "", "stood behind the red born"]
    expected = [CLAUSE_PAUSE, NO_PAUSE, UNMARKED_PAUSE, UNMARKED_PAUSE, NO_PAUSE]
    assert find_longest_pauses(transcript, [*recognised, "they sat"]) == [*expected, NO_PAUSE]
    foreign = [*recognised[:3], "hello mum who is there", recognised[4], "they sat"]
    assert find_longest_pauses(transcript, foreign)[2:4] == [NO_PAUSE, NO_PAUSE]
