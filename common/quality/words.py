"""Word and character error rates of a transcript against the reference text.

Both are normalised first: read aloud as texts are for inference, in lower case and without punctuation, so that `6:45 p.m.` becomes
`six forty five p m` and `Dr.` becomes `doctor`.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from common.data.transliteration import to_ascii
from common.quality.evaluators import optional_import
from common.reading.reader import read_english

WRITTEN_OTHERWISE = {  # what the reader leaves to the cleaner, and what recognisers write in a second way
    **{"mr": "mister", "mrs": "misess", "dr": "doctor", "lt": "lieutenant", "capt": "captain", "sgt": "sergeant"},
    **{"rev": "reverend", "gen": "general", "o": "oh"},
}


class Errors(NamedTuple):
    """The number of wrong words or characters, and how many the reference has."""

    errors: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is never called

    @property
    def rate(self) -> float:
        """Errors per word or character of the reference; above 1 if much is inserted, nan if the reference is empty."""
        return self.errors / self.count if self.count else math.nan

    def cap(self) -> Errors:
        """Cap the errors at the length of the reference, which an endless line would exceed by far."""
        return self._replace(errors=min(self.errors, self.count))


class Edits(NamedTuple):
    """The fewest edits (Levenshtein 1966) that turn the reference into the hypothesis, by kind, and the unchanged items."""

    substituted: int
    deleted: int
    inserted: int
    unchanged: int

    @property
    def errors(self) -> Errors:
        """The total number of edits, and the length of the reference."""
        return Errors(self.substituted + self.deleted + self.inserted, self.unchanged + self.substituted + self.deleted)


def word_errors(reference: str, hypothesis: str) -> Errors:
    """Count the wrong words of a hypothesis, after normalising both. Raises DataError if jiwer is not installed."""
    return word_edits(reference, hypothesis).errors


def character_errors(reference: str, hypothesis: str) -> Errors:
    """Count the wrong characters of a hypothesis, including spaces, after normalising both.

    Raises DataError if jiwer is not installed.
    """
    return character_edits(reference, hypothesis).errors


def word_edits(reference: str, hypothesis: str) -> Edits:
    """Count the edits of words behind word_errors."""
    with optional_import():
        import jiwer
    return _edits(jiwer.process_words(normalise(reference), normalise(hypothesis)))


def character_edits(reference: str, hypothesis: str) -> Edits:
    """Count the edits of characters behind character_errors."""
    with optional_import():
        import jiwer
    return _edits(jiwer.process_characters(normalise(reference), normalise(hypothesis)))


def _edits(output: Any) -> Edits:
    return Edits(output.substitutions, output.deletions, output.insertions, output.hits)


def normalise(text: str) -> str:
    """Reduce a sentence to lower-case words, as the reader of English reads them: "5 km" is "five kilometers"."""
    text = (
        re.sub(r"(?<=[0-9MBK]) (million |billion )?dollars\b", r" \1", text) if "$" in text else text
    )  # $5 million dollars
    words = re.findall(r"[a-z]+", to_ascii(read_english(text)).lower().replace("'", ""))
    return " ".join(WRITTEN_OTHERWISE.get(word, word) for word in words)
