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


def word_errors(reference: str, hypothesis: str) -> Errors:
    """Count the wrong words of a hypothesis, after normalising both. Raises DataError if jiwer is not installed.

    They are the fewest substitutions, deletions and insertions (Levenshtein 1966) that turn the reference into it.
    """
    return _errors("process_words", reference, hypothesis)


def character_errors(reference: str, hypothesis: str) -> Errors:
    """Count the wrong characters, including spaces, as word_errors does."""
    return _errors("process_characters", reference, hypothesis)


def _errors(count: str, reference: str, hypothesis: str) -> Errors:
    with optional_import():
        import jiwer
    found: Any = getattr(jiwer, count)(normalise(reference), normalise(hypothesis))
    replaced = found.substitutions + found.deletions  # of the reference
    return Errors(replaced + found.insertions, replaced + found.hits)


def normalise(text: str) -> str:
    """Reduce a sentence to lower-case words, as the reader of English reads them: "5 km" is "five kilometers"."""
    text = (
        re.sub(r"(?<=[0-9MBK]) (million |billion )?dollars\b", r" \1", text) if "$" in text else text
    )  # $5 million dollars
    words = re.findall(r"[a-z]+", to_ascii(read_english(text)).lower().replace("'", ""))
    return " ".join(WRITTEN_OTHERWISE.get(word, word) for word in words)
