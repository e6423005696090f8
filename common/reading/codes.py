"""Speakers of telephone numbers, codes, versions and other groups of digits, of scripture, and of signs between numbers."""

from __future__ import annotations

import re

from common.reading.letters import initials
from common.reading.numbers import cardinal, digits, is_year, number, number_or_year, ordinal, two_digits
from common.reading.tables import readings

_BIBLE, _DASHES = readings("bible"), readings("numbered with a dash")


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


def figures(number: str) -> str:
    """Digits one by one, but two as a number."""
    return digits(number) if len(number) > 2 else cardinal(number)


def pairs(number: str) -> str:
    """Four digits in pairs, ten ninety-nine; three as seven forty-seven, five as thirteen nine hundred; fewer as one number."""
    if len(number) < 3 or number.endswith("000"):
        return cardinal(number)
    if len(number) == 5:
        return f"{cardinal(number[:2])} {cardinal(number[2:])}"
    return f"{cardinal(number[:-2])} {'hundred' if number.endswith('00') else two_digits(number[-2:])}"


def hexadecimal(number: str) -> str:
    """Digits and letters one by one."""
    return " ".join(digits(character) if character.isdigit() else character.upper() for character in number)


def serial(name: str, groups: str) -> str:
    """Number of a thing in groups behind letters: CVE-2021-23337, INV-00421, BX-2207-R."""
    said = (
        initials(part) if part.isalpha() else number(part) if is_year(part) else digits(part)
        for part in groups[1:].split("-")
    )
    return f"{initials(name)} {', '.join(said)}"


def numbered_book(number: str | None, book: str) -> str:
    """Book of the Bible: 1 Cor. and II Samuel are the first and the second of them."""
    which = f"{ordinal(number if number.isdigit() else str(len(number)))} " if number else ""
    return which + _BIBLE.get(book.rstrip("."), book)


def verses(number: str | None, book: str, chapter: str, verse: str | None, other: str | None, last: str | None) -> str:
    """Chapter and verse: Micah 6:6-8, 1 Cor. 13:4, Gen. 1:1-2:3."""
    name = numbered_book(number, book)
    until = f" to {cardinal(other) + ' ' if other else ''}{cardinal(last)}" if last else ""
    return f"{name} {cardinal(chapter)}{' ' + cardinal(verse) if verse else ''}{until}"


def parts_of_number(word: str, first: str, last: str) -> str:
    """Number in two parts behind a word, Figure 3-1, Section 4-2; a range where its table says so: chapter 3-5."""
    between = _DASHES[word.lower()] if int(first) < int(last) else "dash"
    return f"{number_or_year(first)} {between} {number_or_year(last)}"
