"""Rules of reader.py for initials: FBI, NYC and OECD are read letter by letter, but not NATO and STOP."""

from __future__ import annotations

import re

from common.reading import tables
from common.reading.numbers import cardinal
from common.reading.patterns import OPENER, POINT, POINT_OF_NAME, InContext, Rule, after, any_of, behind

# Read letter by letter, though they look like words. Those without a vowel need no entry, nor those of two or three letters
# that are no word, nor those that nobody can pronounce, such as OECD.
SPELLED_WORDS = frozenset(tables.words("spelled"))
SHORT_WORDS = frozenset(tables.words("short word"))  # of two and three letters, which capitals only stress
# Initials that are read as words, though no English word ends or begins in such consonants; the others are from CMUdict's words.
PRONOUNCED = frozenset(tables.words("pronounced"))
ONSETS, CODAS = tables.words("onset"), tables.words("coda")
_MIXED = tables.readings("mixed case")
_WORDS_IN_CAPITALS = frozenset(tables.words("also a word in capitals"))  # in a line of capitals
ALSO_WORDS = frozenset(tables.words("also a word"))  # beside others in capitals: GIVE US A BREAK
NO_INITIALS = "MR|MRS|MS|DR|ST|MT|JR|SR|FT|LT|NTH|PSST|TSK|PFFT|S?HM+|SHH*|[BG]RR+|MM+|ZZ+"

_PRONOUNCEABLE = re.compile(rf"(?:[^AEIOUY]|{any_of(ONSETS)})?[AEIOUY](?:.*[AEIOUY])?(?:[^AEIOUY]|{any_of(CODAS)})?")


def is_spelled(word: str) -> bool:
    """True for initials that are read letter by letter: NYC and OECD, but not NATO and STOP."""
    if word in SPELLED_WORDS:
        return True
    if len(word) < 4:
        return word not in SHORT_WORDS and not re.fullmatch(NO_INITIALS, word)
    return len(word) < 7 and word not in PRONOUNCED and not _PRONOUNCEABLE.fullmatch(word)


_NOT_AFTER = "".join(rf"(?<!{word}\s)" for word in tables.BEFORE_LETTERS)


def letters(word: str, ending: str | None = None) -> str:
    """Spell letter by letter: F B I, and C D's for CDs."""
    return " ".join(word) + ("'s" if ending else "")


INITIALS: list[Rule] = [
    # U.S., J.R.R. Tolkien
    (
        "A",
        rf"(?<![A-Za-z.])((?:[A-Z]\.)+[A-Z])(?![A-Za-z]){POINT_OF_NAME}",
        lambda word: letters(word.replace(".", "")),
    ),
    # a.m., p.m. without a time
    ("a", rf"(?<![\w.])([ap])\.\s?m(?=\.){POINT}", lambda half: f"{half.upper()} M"),
    # AT&T, R&B
    (
        "A",
        r"\b([A-Z]{1,3})&([A-Z]{1,3})(['’]?s)?(?![A-Za-z])",
        lambda first, last, ending: f"{letters(first)} and {letters(last, ending)}",
    ),
    # Ph.D., LL.D., PhD, iOS, mRNA
    ("A", rf"\b(Ph|LL|Ed|Sc)\.\s?([BD])(?![A-Za-z]){POINT_OF_NAME}", lambda *words: letters("".join(words).upper())),
    ("A", r"\bPhD(s)?\b", lambda ending: letters("PHD", ending)),
    ("aA", rf"\b({any_of(_MIXED)})(?![A-Za-z0-9])", _MIXED.__getitem__),
]


def initials(word: str, ending: str | None = None) -> str:
    """The letters of initials; another word stays."""
    return letters(word, ending) if word.isupper() and is_spelled(word) else word + (ending or "")


def _in_capitals(word: str, ending: str | None) -> str:
    """A word of a line of capitals, where only those are initials that can be nothing else: FBI ARRESTS CEO."""
    is_plain = word in SPELLED_WORDS - _WORDS_IN_CAPITALS or (not re.search("[AEIOUY]", word) and len(word) < 6)
    return letters(word, ending) if is_plain and not re.fullmatch(NO_INITIALS, word) else word + (ending or "")


def _shout(match: re.Match[str]) -> str:
    """Neighbouring words in capitals: if one of them is no initialism, those that may be words are words."""
    parts = re.split("([A-Z]+)", match[1])
    if len(parts) > 3 and parts[-2] in ALSO_WORDS and re.match(r"\s[A-Z][a-z]", after(match)):  # NASA, US Navy
        return _shout_of(parts[:-2]) + letters(parts[-2])
    return _shout_of(parts)


def _shout_of(parts: list[str]) -> str:
    is_shout = any(len(part) > 1 and part not in ALSO_WORDS and not is_spelled(part) for part in parts[1::2])
    parts[1::2] = [
        part if len(part) == 1 or (is_shout and part in ALSO_WORDS) else initials(part) for part in parts[1::2]
    ]
    return "".join(parts)


# In texts in capitals: FBI'S, CO2.
IN_CAPITALS: list[Rule] = [
    ("A", r"(?<![A-Za-z.])([A-Z]{2})(?=[0-9])", letters),
    ("A", r"(?<![A-Z.'’])([A-Z]{2,6})(['’]S|S(?<=[^AEIOUY]S)(?![A-Z]))?(?![A-Z'’]|\.[A-Z])", _in_capitals),
]

# Not applied to texts in capitals, where any word may look like an initialism.
INITIALISMS: list[Rule] = [
    # George W. Bush, but not a sentence that ends in Plan B.
    ("A", rf"(?<![\w.'’])(?<![A-Z]\s){_NOT_AFTER}([A-HJ-Z])\.(?=\s[A-Z])(?!{OPENER})", lambda letter: letter),
    ("A", r"(?<![A-Za-z.])OK(?![A-Za-z])", lambda: "okay"),
    ("A", r"(?<![A-Za-z.])WW(I{1,2})(?![A-Za-z])", lambda number: f"World War {cardinal(str(len(number)))}"),
    # the WHO, our IT department, the US; 5 PM MT
    ("A", rf"(?:{behind('the|by')})(WHO|US|AD|ID|SEC|LED|AM)\b(?!['’&.][A-Za-z]|\s[A-Z]{{4}})", letters),
    (
        "A",
        r"\b(WHO)(?=\s(?:said|says|declared|warned|estimates|recommends|recommended|reported|guidelines|officials|data|report)\b)",
        letters,
    ),
    (
        "A",
        r"\b(IT)(?=\s(?:department|team|support|staff|manager|guy|industry|sector|security|services|infrastructure|company)\b)",
        letters,
    ),
    # CO2, PS5
    ("A", r"(?<![A-Za-z.])([A-Z]{2})(?=[0-9])", letters),
    # GIVE US A BREAK, I AM
    (
        "A",
        r"(?<![A-Za-z.&'’-])((?:[A-Z]{2,20}|[AI])(?:[,!?]?\s(?:[A-Z]{2,20}|[AI])){1,40})(?![A-Za-z&'’0-9-]|\.[A-Z])",
        InContext(_shout),
    ),
    # FBI, FBI's, CDs, NYC; in six or more letters without a vowel too
    (
        "A",
        rf"(?<![A-Za-z.])((?!(?:{NO_INITIALS})(?![A-Za-z]))[B-DF-HJ-NP-TV-XZ]{{2,6}})(['’]?s)?(?![A-Za-z])",
        letters,
    ),
    ("A", r"(?<![A-Za-z.])([A-Z]{2,6})(['’]?s)?(?![A-Za-z]|['’][A-Z])", initials),
]
