"""Speakers of signs between numbers: dashes, by a table of their contexts, and signs of calculation."""

from __future__ import annotations

import re
from typing import NamedTuple

from common.reading.context import after, before
from common.reading.numbers import cardinal, ordinal
from common.reading.quantities import unit, unit_names
from common.reading.tables import readings


class _Dash(NamedTuple):
    """A row of the table of dashes between numbers: patterns of what surrounds one; the words for it."""

    before: str  # the end of what precedes the left number
    left: str
    sign: str
    right: str
    after: str  # the beginning of what follows the right number
    words: str


_ANY = ".*"
_MORE, _COUNT = r"[0-9.,]+", r"[0-9][0-9,]*"
_ASKED = r"(?i:solve|what is|what's|calculate|compute|evaluate|how much is)[\s:]+"
_CODED = r"(?i:no\.|version|model|figure|fig\.?|table|exhibit|apartment|apt\.?|unit)\s"
_PARTED = r"(?i:section|chapter|page|problem|exercise|question|article|part|lesson|rule)\s"
# The first row that fits decides. A range in descending order is none.
_DASHES = (
    _Dash(_ANY, _ANY, r"\s?[-–]\s?", _ANY, r"[0-9\s.,+*/×x–-]{0,40}=(?![=>])", "minus"),
    _Dash(rf"{_ASKED}|[=+*×÷]\s?|\s/\s", _ANY, r"\s?[-–]\s?", _ANY, "", "minus"),
    _Dash(r"\A", _COUNT, r"\s[-–]\s", f"<{_COUNT}", r"\Z", "minus"),
    _Dash(_CODED, _COUNT, "-", _COUNT, r"(?![\w-])", "dash"),
    _Dash(_PARTED, _COUNT, "-", f"<{_COUNT}", r"(?![\w-])", "dash"),
    _Dash(r"[A-Za-z]", _MORE, "-", _MORE, "", "-"),
    _Dash(_ANY, rf"{_MORE}%", r"\s[-–]\s", _MORE, r"(?!\s?%)", " - "),
    _Dash(_ANY, _ANY, r"\s?[-–]\s?", _ANY, "", "to"),
)
_LEFT, _RIGHT = (
    re.compile(r"\$?[0-9][0-9.,]*(?:%|°|¢|″|′|\s?[ap]\.?m\.?)?\Z"),
    re.compile(r"[$£€¥]?[0-9.][0-9,]*(?:\.[0-9]+)?"),
)


def dash(match: re.Match[str]) -> str:
    """Words for a dash between two numbers, by the table."""
    lead, rest = before(match), after(match)
    left, right = _LEFT.search(lead), _RIGHT.match(rest)
    if left is None or right is None:
        return "to"
    for row in _DASHES:
        falls = row.right.startswith("<")
        if (
            re.search(rf"(?:{row.before})\Z", lead[: left.start()] or "")
            and re.fullmatch(row.left, left[0])
            and re.fullmatch(row.sign, match[0])
            and re.fullmatch(row.right.removeprefix("<"), right[0])
            and re.match(row.after, rest[right.end() :])
            and not (falls and _value(left[0]) <= _value(right[0]))
        ):
            return row.words
    raise AssertionError("the last row fits any dash")


def _value(number: str) -> int:
    return int(number.replace(",", ""))


def times(match: re.Match[str]) -> str:
    """Word for a cross between two numbers: 3 x 5 = 15, 6 x 10^23, a 4x4."""
    return "times" if re.match(r"[0-9.,\sxX×]{1,30}=|10[\^⁻⁰¹²³⁴-⁹]", after(match)) else "by"


_RAISED, _POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹", readings("size")


def power(minus: str, exponent: str) -> str:
    """Power of a number in raised digits: 10⁶."""
    number = "".join(str(_RAISED.index(digit)) for digit in exponent)
    return f"to the minus {cardinal(number)}" if minus else f"to the {ordinal(number)}"


def unit_with_power(symbol: str, exponent: str | None) -> str:
    """Unit behind "per": km², km2."""
    return f"{_POWERS[exponent]} {unit(symbol)}" if exponent else unit(symbol)


def ratio(symbol: str, size: str | None, per: str, exponent: str | None) -> str:
    """Unit per unit: kg/m³, m³/s."""
    return f"{_POWERS[size] + ' ' if size else ''}{unit_names(symbol)[1]} per {unit_with_power(per, exponent)}"
