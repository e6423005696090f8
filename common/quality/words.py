"""Word and character error rates of a transcript against the reference text.

Both are normalised first: lower case, no punctuation, and titles, amounts and numbers as words, so that `6:45 p.m.` becomes
`six forty five p m` and `Dr.` becomes `doctor`.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from common.data.number_words import MAX_DIGITS, inflect_engine
from common.quality.evaluators import optional_import

TITLES = {
    "mr": "mister",
    "dr": "doctor",
    "lt": "lieutenant",
    "capt": "captain",
    "sgt": "sergeant",
    "rev": "reverend",
    "gen": "general",
}
SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion", "tn": "trillion"}
LONG_NUMBER = re.compile(rf"\d(?:,?\d){{{MAX_DIGITS},}}")
SCALE = "|".join([*SCALES, "hundred", "thousand", "million", "billion", "trillion"])


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
    """Reduce a sentence to lower-case words, with every number spelled out."""
    from unidecode import unidecode

    text = unidecode(text).lower()
    text = LONG_NUMBER.sub(lambda m: " ".join(m[0].replace(",", "")), text)
    text = re.sub(rf"\b({'|'.join(TITLES)})\b\.?(?= )", lambda m: TITLES[m[1]], text)
    text = re.sub(r"(?<![a-z'])(?<!i )([ap])\.?\s?m\b\.?", r" \1 m ", text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", clock_time, text)
    text = re.sub(rf"\$(\d[\d,]*(?:\.\d+)?|\.\d+)[\s-]*({SCALE})\b(?:[\s-]dollars?\b)?", many_dollars, text)
    text = re.sub(r"\$(\d[\d,]*)(?:\.(\d\d))?", money, text)
    text = re.sub(r"\b(\d+)(st|nd|rd|th)\b", lambda m: str(inflect_engine().number_to_words(m[0], andword="")), text)
    text = re.sub(r"\b\d+\.\d+\b", lambda m: cardinal(m[0]), text)
    text = re.sub(r"\b\d{1,3}(?:,\d{3})+\b|\d+", lambda m: f" {year_or_number(m[0])} ", text)
    words = re.findall(r"[a-z]+", text.replace("%", " percent ").replace("'", ""))
    return " ".join("oh" if word == "o" else word for word in words)


def cardinal(number: str) -> str:
    """Spell a number without `and`: `118` is `one hundred eighteen`, `3.5` is `three point five`."""
    words = inflect_engine().number_to_words(number, andword="")
    assert isinstance(words, str)
    return words


def year_or_number(digits: str) -> str:
    """Spell `1984` as a year and other numbers plainly; `2,000` still has its comma here and so is no year."""
    number = int(digits.replace(",", ""))
    if "," in digits or not 1000 < number < 3000 or 1999 < number < 2010:
        return cardinal(str(number))
    high, low = divmod(number, 100)
    ending = "hundred" if low == 0 else f"oh {cardinal(str(low))}" if low < 10 else cardinal(str(low))
    return f"{cardinal(str(high))} {ending}"


def clock_time(match: re.Match[str]) -> str:
    """Spell `6:45`, `6:05` and `6:00` as they are spoken: six forty five, six oh five, six."""
    minute = int(match[2])
    spoken = "" if minute == 0 else f"oh {cardinal(match[2][1])}" if minute < 10 else cardinal(match[2])
    return f" {cardinal(match[1])} {spoken} "


def many_dollars(match: re.Match[str]) -> str:
    """Spell `$1.5 million` and `$1.5M` as one point five million dollars."""
    amount = match[1].replace(",", "")
    return f" {cardinal('0' * amount.startswith('.') + amount)} {SCALES.get(match[2], match[2])} dollars "


def money(match: re.Match[str]) -> str:
    """Spell `$3.50` as three dollars fifty cents."""
    dollars, cents = int(match[1].replace(",", "")), int(match[2] or 0)
    parts = [(dollars, "dollar"), (cents, "cent")]
    return " ".join(f"{cardinal(str(n))} {inflect_engine().plural_noun(unit, n)}" for n, unit in parts if n)
