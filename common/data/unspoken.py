"""Which characters of a text no text front end here can speak: what a report of a corpus warns of.

The few lines of tables below stand in the front end as well, since nothing in common/ may know a model; the tests hold them to
it, over all of Unicode's first plane.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache

from common.data.transliteration import to_ascii

# What each cleaner does, beside lower case and single spaces, before characters without a symbol are dropped.
TRANSLITERATING = frozenset({"english_cleaners", "transliteration_cleaners"})
SPELLING_NUMBERS = frozenset({"english_cleaners"})
CLEANERS = ("english_cleaners", "basic_cleaners", "transliteration_cleaners")

_WITH_A_SYMBOL = frozenset("_-!'(),.:;?" + string.ascii_letters)
_ARPABET = re.compile(r"\{[^{}]*\}")
_DOLLAR_WITHOUT_AN_AMOUNT = re.compile(r"\$(?![0-9.,]*[0-9])")


def unspoken(text: str, cleaners: Collection[str]) -> Counter[str]:
    """The characters of a text that leave no trace when it is cleaned and turned into symbols, and how often each does.

    Spoken are letters, white space, _-!'(),.:;? and, depending on the cleaners, what transliterates to them, digits, and
    a dollar sign before an amount; {ARPAbet in braces} is passed over, and braces that do not pair are unspoken.
    """
    return Counter(character for character, spoken in _characters(text, frozenset(cleaners)) if not spoken)


def is_silent(text: str, cleaners: Collection[str]) -> bool:
    """Whether nothing of a text can be spoken."""
    heard = (character for character, spoken in _characters(text, frozenset(cleaners)) if spoken)
    return not _ARPABET.search(text) and not "".join(heard).strip()


def _characters(text: str, cleaners: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Each character outside of braces, in composed form, and whether it is spoken."""
    plain = _ARPABET.sub(" ", unicodedata.normalize("NFC", text))
    in_ascii = "".join(_as_cleaned(character, cleaners) for character in plain)
    bare_dollars = len(_DOLLAR_WITHOUT_AN_AMOUNT.findall(in_ascii))
    if not cleaners & SPELLING_NUMBERS:
        bare_dollars = in_ascii.count("$")
    amounts = in_ascii.count("$") - bare_dollars
    for character in plain:
        if character == "$" and amounts:
            amounts -= 1
            yield character, True
        else:
            yield character, _is_spoken(character, cleaners)


@cache
def _is_spoken(character: str, cleaners: frozenset[str]) -> bool:
    known = _WITH_A_SYMBOL | set(string.digits) if cleaners & SPELLING_NUMBERS else _WITH_A_SYMBOL
    return any(part in known or part.isspace() for part in _as_cleaned(character, cleaners))


@cache
def _as_cleaned(character: str, cleaners: frozenset[str]) -> str:
    """A character in lower case and, for cleaners that transliterate, in ASCII; empty where it has no equal there."""
    return (to_ascii(character) if cleaners & TRANSLITERATING else character).lower()
