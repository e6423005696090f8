"""Speakers of initials, codes, books and addresses: FBI, NYC and OECD are read letter by letter, but not NATO and STOP."""

from __future__ import annotations

import re

from common.reading.numbers import cardinal, digits, is_year, number, number_or_year, ordinal
from common.reading.tables import any_of, readings, words

# Read letter by letter, though they look like words. Those without a vowel need no entry, nor those of two or three letters
# that are no word, nor those that nobody can pronounce, such as OECD.
_SPELLED = readings("spelled")
_SHORT_WORDS = readings("short word")  # of two and three letters, which capitals only stress
# Initials that are read as words, though no English word ends or begins in such consonants; the others are from CMUdict's words.
_PRONOUNCED = readings("pronounced")
_WORDS_IN_CAPITALS = readings("also a word in capitals")  # in a line of capitals
_ALSO_WORDS = readings("also a word")  # beside others in capitals: GIVE US A BREAK
NO_INITIALS = "MR|MRS|MS|DR|ST|MT|JR|SR|FT|LT|NTH|PSST|TSK|PFFT|S?HM+|SHH*|[BG]RR+|MM+|ZZ+"
_ONSET, _CODA = any_of(words("onset")), any_of(words("coda"))
_PRONOUNCEABLE = re.compile(rf"(?:[^AEIOUY]|{_ONSET})?[AEIOUY](?:.*[AEIOUY])?(?:[^AEIOUY]|{_CODA})?")
_VOWEL = re.compile("[^B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]")  # y counts as a vowel here, and so do letters with an accent
_SPELLED_IN_ADDRESSES = readings("spelled in an address") | readings("spelled in small letters")
_SIGNS_IN_ADDRESSES = readings("sign in an address")
_BIBLE, _DASHES = readings("bible"), readings("numbered with a dash")


def is_spelled(word: str) -> bool:
    """True for initials that are read letter by letter: NYC and OECD, but not NATO and STOP."""
    if word in _SPELLED:
        return True
    if len(word) < 4:
        return word not in _SHORT_WORDS and not re.fullmatch(NO_INITIALS, word)
    return len(word) < 7 and word not in _PRONOUNCED and not _PRONOUNCEABLE.fullmatch(word)


def letters(word: str | None, ending: str | None = None) -> str:
    """Spell letter by letter: F B I, and C D's for CDs."""
    return " ".join(re.sub(r"[.\s]", "", word or "")) + ("'s" if ending else "")


def capitals(word: str, ending: str | None = None) -> str:
    """Spell a word in small letters: A M for am, G P U's for gpus."""
    return letters(word.upper(), ending)


def without_points(name: str) -> str:
    """A name whose initials have no points."""
    return name.replace(".", "")


def initials(word: str, ending: str | None = None) -> str:
    """The letters of initials; another word stays."""
    return letters(word, ending) if word.isupper() and is_spelled(word) else word + (ending or "")


def in_capitals(word: str, ending: str | None) -> str:
    """A word of a line of capitals, where only those are initials that can be nothing else: FBI ARRESTS CEO."""
    is_plain = (word in _SPELLED and word not in _WORDS_IN_CAPITALS) or (
        not re.search("[AEIOUY]", word) and len(word) < 6
    )
    return letters(word, ending) if is_plain and not re.fullmatch(NO_INITIALS, word) else word + (ending or "")


def shout(words: str, following: str | None) -> str:
    """Neighbouring words in capitals: if one of them is no initialism, those that may be words are words."""
    parts = re.split("([A-Z]+)", words)
    if len(parts) > 3 and parts[-2] in _ALSO_WORDS and following:  # NASA, US Navy
        return _shout_of(parts[:-2]) + letters(parts[-2])
    return _shout_of(parts)


def _shout_of(parts: list[str]) -> str:
    is_shout = any(len(part) > 1 and part not in _ALSO_WORDS and not is_spelled(part) for part in parts[1::2])
    parts[1::2] = [
        part if len(part) == 1 or (is_shout and part in _ALSO_WORDS) else initials(part) for part in parts[1::2]
    ]
    return "".join(parts)


def street_name(name: str) -> str:
    """Name of a street, which may be an ordinal: 42nd."""
    return ordinal(name[:-2]) if name[0].isdigit() else name


def address(text: str) -> str:
    """Read an address word by word, with names for the signs between."""
    parts = re.findall(r"[^\W\d_]+|[0-9]+|[^\w\s]|_", text)
    return " ".join(filter(None, map(_part_of_address, parts)))


def _part_of_address(part: str) -> str:
    if part.isdigit():
        return number_or_year(part) if len(part) in (1, 2, 4) and part[0] != "0" else digits(part)
    if part.isalpha():
        is_short = len(part) < 6 and (not _VOWEL.search(part) or (part.isupper() and is_spelled(part)))
        spells = part.lower() in _SPELLED_IN_ADDRESSES or is_short
        return letters(part.upper()) if spells else part
    return _SIGNS_IN_ADDRESSES.get(part, "")


def host(name: str, port: str, path: str | None) -> str:
    """Address of a machine with a port, digit by digit: localhost:8080."""
    groups = name.split(".")
    host = " dot ".join(map(digits, groups)) if groups[0].isdigit() else address(name)
    return f"{host} colon {digits(port)}" + (f" {address(path)}" if path else "")


def code(words: str, letters: str, number: str) -> str:
    """Code digit by digit; 404 too, but 200 is two hundred, and order 5000 five thousand."""
    is_round = number[0] != "0" and ((len(number) == 3 and number.endswith("00")) or number.endswith("000"))
    words = re.sub("[Nn]o\\.", "number", words.replace("#", "")).rstrip()
    words = re.sub(r"\b[A-Z]{2,4}\b", lambda short: initials(short[0]), words)
    letters = re.sub("[A-Z]{2,}", lambda short: initials(short[0]), letters)
    said = " ".join(filter(None, (letters, cardinal(number) if is_round else digits(number)))).replace("- ", "-")
    return f"{words} {said}".lstrip()


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


def parts_of_number(word: str, first: str, last: str) -> str:
    """Number in two parts behind a word, Figure 3-1, Section 4-2; a range where its table says so: chapter 3-5."""
    between = _DASHES[word.lower()] if int(first) < int(last) else "dash"
    return f"{number_or_year(first)} {between} {number_or_year(last)}"


def numbered_book(number: str | None, book: str) -> str:
    """Book of the Bible: 1 Cor. and II Samuel are the first and the second of them."""
    which = f"{ordinal(number if number.isdigit() else str(len(number)))} " if number else ""
    return which + _BIBLE.get(book.rstrip("."), book)


def verses(number: str | None, book: str, chapter: str, verse: str | None, other: str | None, last: str | None) -> str:
    """Chapter and verse: Micah 6:6-8, 1 Cor. 13:4, Gen. 1:1-2:3."""
    name = numbered_book(number, book)
    until = f" to {cardinal(other) + ' ' if other else ''}{cardinal(last)}" if last else ""
    return f"{name} {cardinal(chapter)}{' ' + cardinal(verse) if verse else ''}{until}"
