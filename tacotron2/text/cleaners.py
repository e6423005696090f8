"""Cleaners convert written text to spoken text; --text-cleaners selects them by name.

The wording of numbers is that of the cleaners published with keithito/tacotron, which the recipe's checkpoints were trained on,
with its oddities: digits after a point form a whole number ("3.14" is "three point fourteen"), and $1.5 has five cents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce

from common.data.number_words import MAX_DIGITS, inflect_engine
from common.data.transliteration import to_ascii
from common.errors import UsageError
from common.reading.multilingual import PREFIX, numbers_cleaner

Cleaner = Callable[[str], str]

# Their order matters: in "st.co." the rule for "st" applies first, and the one for "co" no longer matches.
ABBREVIATIONS = {
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
_ABBREVIATION_PATTERNS = [(re.compile(rf"\b{short}\."), full) for short, full in ABBREVIATIONS.items()]
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

    numbers_CODE reads the numbers and abbreviations of another language; basic_cleaners follow it. Raises UsageError, which lists
    the unknown names and the valid ones.
    """
    names = [names] if isinstance(names, str) else names
    found = {name: CLEANERS.get(name) or numbers_cleaner(name) for name in names}
    if unknown := [name for name, cleaner in found.items() if cleaner is None]:
        wanted = f"{', '.join(CLEANERS)}, {PREFIX}CODE"
        raise UsageError(f"text cleaners: got {', '.join(map(repr, unknown))}, wanted names from {wanted}")
    functions = [cleaner for name in names if (cleaner := found[name])]
    return lambda text: reduce(lambda result, cleaner: cleaner(result), functions, text)


# --- numbers: ASCII text in lower case -> text without digits ---

_GROUPED = re.compile(r"[0-9][0-9,]+[0-9]")
_DOLLARS = re.compile(r"\$([0-9.,]*[0-9])")
# A number begins after something else than a digit: trials from each digit of a long number would take quadratic time.
_DECIMAL = re.compile(r"(?<![0-9])([0-9]+)\.([0-9]+)")
_ORDINAL = re.compile(r"(?<![0-9])([0-9]+)(st|nd|rd|th)")
_CARDINAL = re.compile(r"[0-9]+")


@lru_cache(maxsize=4096)  # every epoch reads the same years and prices
def _words(number: str, andword: str = "and") -> str:
    return str(inflect_engine().number_to_words(number, andword=andword))


def _digit_by_digit(digits: str) -> str:
    return " ".join(map(_words, digits))


def _spell_dollars(match: re.Match[str]) -> str:
    """Read $3.50 as "3 dollars, 50 cents". Later rules spell the numbers."""
    whole, *fraction = match[1].replace(",", "").split(".")
    if len(fraction) > 1:  # $1.2.3 is no amount of money
        return f"{match[1]} dollars"
    amounts = ((whole.lstrip("0"), "dollar"), ("".join(fraction).lstrip("0"), "cent"))
    return ", ".join(f"{n} {unit if n == '1' else unit + 's'}" for n, unit in amounts if n) or "zero dollars"


def _spell_ordinal(match: re.Match[str]) -> str:
    digits, suffix = match.groups()
    if len(digits) > MAX_DIGITS:
        return f"{_digit_by_digit(digits[:-1])} {_words(digits[-1] + suffix)}"
    return _words(digits + suffix)


def _spell_year(digits: str) -> str:
    """Read a number between 1000 and 3000 as a year: nineteen hundred, nineteen oh five, two thousand five."""
    century, rest = _words(digits[:2]), digits[2:]
    if rest == "00":
        return "two thousand" if digits == "2000" else f"{century} hundred"
    if digits.startswith("200"):
        return f"two thousand {_words(rest[1])}"
    return f"{century} oh {_words(rest[1])}" if rest[0] == "0" else f"{century} {_words(rest)}"


def _spell_cardinal(match: re.Match[str]) -> str:
    digits = match[0].lstrip("0") or "0"
    if len(digits) > MAX_DIGITS:
        return _digit_by_digit(match[0])
    return _spell_year(digits) if 1000 < int(digits) < 3000 else _words(digits, andword="")


def spell_numbers(text: str) -> str:
    """Spell thousands groups, dollars, decimals, ordinals and cardinals, in this order."""
    text = _GROUPED.sub(lambda match: match[0].replace(",", ""), text)
    text = _DOLLARS.sub(_spell_dollars, text)
    text = _DECIMAL.sub(r"\1 point \2", text)
    text = _ORDINAL.sub(_spell_ordinal, text)
    return _CARDINAL.sub(_spell_cardinal, text)
