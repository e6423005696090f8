"""Speakers of telephone numbers, codes, versions and other groups of digits, of scripture, and of signs between numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

from common.reading.context import after, before
from common.reading.letters import initials
from common.reading.numbers import cardinal, digits, groups_of_digits, number_or_year, ordinal, two_digits
from common.reading.quantities import unit, unit_names
from common.reading.tables import readings

_BIBLE = readings("bible")


def seven_digits(prefix: str, line: str) -> str:
    """Local telephone number, "555-1234", or a range of round numbers, "500-1000"."""
    if prefix[-1] == "0" and line[-1] == "0" and line[0] != "0":
        return f"{cardinal(prefix)} to {number_or_year(line)}"
    return groups_of_digits(f"{prefix}-{line}")


def number_with_dashes(number: str) -> str:
    """Number with dashes: "978-0-306-40615-7" digit by digit, "90-60-90" and the record "10-3-1" as numbers."""
    groups = number.replace("–", "-").split("-")
    are_numbers = all(len(group) < 3 and group[0] != "0" for group in groups) and any(
        len(group) == 2 for group in groups
    )
    return ", ".join(map(cardinal, groups)) if are_numbers else groups_of_digits(number)


def number_with_points(number: str) -> str:
    """Version such as "1.2.3", or with four parts an IP address."""
    parts = number.split(".")
    return " dot ".join(map(digits, parts)) if len(parts) == 4 else " point ".join(map(cardinal, parts))


def code(words: str, letters: str, number: str) -> str:
    """Code digit by digit; 404 too, but 200 is two hundred, and order 5000 five thousand."""
    is_round = number[0] != "0" and ((len(number) == 3 and number.endswith("00")) or number.endswith("000"))
    words = re.sub("[Nn]o\\.", "number", words.replace("#", "")).rstrip()
    words = re.sub(r"\b[A-Z]{2,4}\b", lambda short: initials(short[0]), words)
    letters = re.sub("[A-Z]{2,}", lambda short: initials(short[0]), letters)
    said = " ".join(filter(None, (letters, cardinal(number) if is_round else digits(number)))).replace("- ", "-")
    return f"{words} {said}".lstrip()


def flight(words: str, airline: str | None, number: str) -> str:
    """Flight digit by digit, behind the letters of its airline."""
    letters = " ".join(airline or "")
    return f"{words} {letters} {digits(number) if len(number) > 2 else cardinal(number)}".replace("  ", " ")


def pairs(number: str) -> str:
    """Four digits in pairs, ten ninety-nine; three as seven forty-seven, five as thirteen nine hundred; fewer as one number."""
    if len(number) < 3:
        return cardinal(number)
    if len(number) == 5:
        return f"{cardinal(number[:2])} {cardinal(number[2:])}"
    return (
        f"{cardinal(number[:-2])} {two_digits(number[-2:])}"
        if number[-2:] != "00"
        else f"{cardinal(number[:-2])} hundred"
    )


def hexadecimal(number: str) -> str:
    """Digits and letters one by one."""
    return " ".join(digits(character) if character.isdigit() else character.upper() for character in number)


def serial(number: str) -> str:
    """Number of a journal, whose last digit may be X."""
    return groups_of_digits(number) + (" X" if number.endswith("X") else "")


def variant(number: str) -> str:
    """Variant of an aeroplane: 747-400."""
    return f"{cardinal(number[0])} hundred" if len(number) == 3 and number.endswith("00") else cardinal(number)


def telephone(number: str, extension: str | None = None) -> str:
    """Digits of a telephone number, with or without an extension: 555-555-5678 x12."""
    plus = "plus " if number.startswith("+") else ""
    if extension is None:
        return plus + groups_of_digits(number)
    return (
        f"{plus}{groups_of_digits(number)} extension {cardinal(extension) if len(extension) < 3 else digits(extension)}"
    )


def numbered_book(number: str | None, book: str) -> str:
    """Book of the Bible: 1 Cor. and II Samuel are the first and the second of them."""
    which = f"{ordinal(number if number.isdigit() else str(len(number)))} " if number else ""
    return which + _BIBLE.get(book.rstrip("."), book)


def verses(number: str | None, book: str, chapter: str, verse: str | None, other: str | None, last: str | None) -> str:
    """Chapter and verse: Micah 6:6-8, 1 Cor. 13:4, Gen. 1:1-2:3."""
    name = numbered_book(number, book)
    until = f" to {cardinal(other) + ' ' if other else ''}{cardinal(last)}" if last else ""
    return f"{name} {cardinal(chapter)}{' ' + cardinal(verse) if verse else ''}{until}"


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
    """Word for a cross between two numbers: 6 x 10^23, 3 × 4, a 4x4, a 4×400 m relay."""
    if re.match(r"[1-9]00(?:\s?m(?:eters?)?)?\s(?:relay|medley|free)", after(match)):
        return "by"
    return "times" if "×" in match[0] or re.match(r"10[\^⁻⁰¹²³⁴-⁹]", after(match)) else "by"


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
