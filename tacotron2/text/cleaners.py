"""Cleaners convert written text to spoken text; --text-cleaners chooses them by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce

from common.data.transliteration import to_ascii
from common.errors import UsageError
from tacotron2.text.numbers import spell_numbers

Cleaner = Callable[[str], str]

# Their order matters: in "st.co." the rule for "st" applies first, and the one for "co" no longer matches.
_ABBREVIATIONS = {
    "mrs": "misess",  # the recipe's spelling, which its checkpoints pronounce
    "mr": "mister",
    "dr": "doctor",
    "st": "saint",
    "co": "company",
    "jr": "junior",
    "maj": "major",
    "gen": "general",
    "drs": "doctors",
    "rev": "reverend",
    "lt": "lieutenant",
    "hon": "honorable",
    "sgt": "sergeant",
    "capt": "captain",
    "esq": "esquire",
    "ltd": "limited",
    "col": "colonel",
    "ft": "fort",
}
_ABBREVIATION_PATTERNS = [(re.compile(rf"\b{short}\."), full) for short, full in _ABBREVIATIONS.items()]
_WHITESPACE = re.compile(r"\s+")


def _expand_abbreviations(text: str) -> str:
    for pattern, full in _ABBREVIATION_PATTERNS:
        text = pattern.sub(full, text)
    return text


def _collapse_whitespace(text: str) -> str:
    return _WHITESPACE.sub(" ", text)


def basic_cleaners(text: str) -> str:
    """Convert to lower case and single spaces, for any language."""
    return _collapse_whitespace(text.lower())


def transliteration_cleaners(text: str) -> str:
    """Convert to ASCII, lower case and single spaces, for languages that transliterate well."""
    return basic_cleaners(to_ascii(text))


def english_cleaners(text: str) -> str:
    """Convert to ASCII and lower case, write numbers and abbreviations as words, and collapse spaces."""
    text = to_ascii(text).lower()
    return _collapse_whitespace(_expand_abbreviations(spell_numbers(text)))


CLEANERS: dict[str, Cleaner] = {
    cleaner.__name__: cleaner for cleaner in (english_cleaners, basic_cleaners, transliteration_cleaners)
}


def get_cleaner(names: str | Sequence[str]) -> Cleaner:
    """Return a function that applies the named cleaners in order; without names it returns the text unchanged.

    Raises UsageError, which lists the unknown names and the valid ones.
    """
    names = [names] if isinstance(names, str) else names
    unknown = [name for name in names if name not in CLEANERS]
    if unknown:
        raise UsageError(f"text cleaners: got {', '.join(map(repr, unknown))}, wanted names from {', '.join(CLEANERS)}")
    functions = [CLEANERS[name] for name in names]
    return lambda text: reduce(lambda result, cleaner: cleaner(result), functions, text)
