"""The word lists of the reader, from words.tsv: a class, a word and, where it has one, its reading on each line.

Classes of abbreviations end in the places where these are read in full:

- T before a name, with a point (the cleaner handles Mr., Dr., Gen. and others as in the training data); t without one too;
  F there in small letters, with a point or without; P before "by", with a point
- N before a number, with a point; n there without a point too; k there before a single capital; Y before a year
- Q behind a number and O behind an ordinal, with a point or without
- L anywhere, with a point, and never at the end of a sentence; M likewise, if no capital follows, as it may be a word;
  A anywhere, with a point, perhaps at the end; B likewise, and without a point, from four letters on also in capitals; C in names
- S behind the name of a street; s there where another street or a place may follow without a comma
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from common.errors import DataError

_SHORT = "short form "


def readings(kind: str) -> dict[str, str]:
    """The words of a class and their readings, empty for words without one. Raises KeyError for an unknown class."""
    return CLASSES[kind]


def words(kinds: str) -> list[str]:
    """The words of a class, or of several: "day, short month". Raises KeyError for an unknown one."""
    return [word for kind in kinds.split(", ") for word in CLASSES[kind]]


def any_of(alternatives: Iterable[str]) -> str:
    """Pattern that matches any of these words, the longest first. Words with a common beginning share it, which saves time."""
    by_first: dict[str, set[str]] = {}
    for word in filter(None, alternatives):
        by_first.setdefault(word[0], set()).add(word[1:])
    return "|".join(re.escape(first) + _any_rest(rests) for first, rests in by_first.items())


def _any_rest(rests: set[str]) -> str:
    joined = any_of(rests)
    if "" in rests:
        return f"(?:{joined})?" if joined else ""
    return f"(?:{joined})" if len({rest[0] for rest in rests}) > 1 else joined


def behind(phrases: list[str]) -> str:
    """Pattern of a place behind one of the phrases "due", "due on", "*ing" and a space, in any case; * is the rest of a word."""
    by_length: dict[int, list[str]] = {}
    for phrase in phrases:
        end = re.escape(phrase.removeprefix("*")).replace(r"\ ", r"\s")
        by_length.setdefault(len(phrase.removeprefix("*")), []).append(end if phrase[0] == "*" else rf"\b{end}")
    looks = (rf"(?<=(?:{'|'.join(ends)})\s)" for ends in by_length.values())
    return f"(?i:{'|'.join(looks)})"


def _capital(word: str) -> str:
    return word[0].upper() + word[1:]


def _read_words() -> dict[str, dict[str, str]]:
    """The classes of words.tsv. Raises DataError for a line that is none."""
    found: dict[str, dict[str, str]] = {}
    path = Path(__file__).with_name("words.tsv")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        columns = line.split("\t")
        if not 2 <= len(columns) <= 3 or not all(columns[:2]):
            raise DataError(
                f"{path}:{number}: got {line!r}, expected a class, a word and perhaps its reading, with tabs between"
            )
        found.setdefault(columns[0], {})[columns[1]] = "".join(columns[2:])
    return found


# Classes of abbreviations by their letter: as written; at the start of a sentence and in capitals too; at the start alone
_WRITTEN = {"title": "T", "title without point": "t", "before name": "F", "abbreviation": "A"}
_IN_CAPITALS = {
    **{"before number": "N", "number without point": "n", "before letter": "k"},
    **{"before by": "P", "behind number": "Q", "behind ordinal": "O"},
}
_CASES = str, str.lower, str.upper, str.capitalize
_AT_START = {"never last": "L", "within its sentence": "M"}


def _add_derived(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The classes of words.tsv, and those that are made of others."""

    def short_forms(place: str) -> dict[str, str]:
        own = [table for kind, table in found.items() if kind.startswith(_SHORT) and place in kind[len(_SHORT) :]]
        return {word: full for table in own for word, full in table.items()}

    def in_names(place: str) -> dict[str, str]:
        return {_capital(short): _capital(full) for short, full in short_forms(place).items()}

    def at_start(own: dict[str, str]) -> dict[str, str]:
        return {_capital(name): _capital(full) for name, full in own.items() if len(name) > 1} | own

    def in_capitals(own: dict[str, str], shortest: int = 2) -> dict[str, str]:
        names = [name for name in own if name.isalpha() and len(name) >= shortest]
        return {name.upper(): own[name] for name in names} | at_start(own)

    small_streets = {name.lower(): full.lower() for name, full in in_names("S").items()}
    old_states, names = found["old state"], found["sign of money"]
    known = short_forms("") | found["spelled in small letters"]
    units = {*found["unit"], *found["currency"], *found["currency behind"]}
    return {
        **found,
        **{kind: short_forms(place) for kind, place in _WRITTEN.items()},
        **{kind: in_capitals(short_forms(place)) for kind, place in _IN_CAPITALS.items()},
        **{kind: at_start(short_forms(place)) for kind, place in _AT_START.items()},
        "bare short form": in_capitals(short_forms("B"), shortest=4),
        "before year": {**short_forms("Y"), "Est": "Established"},
        "street": in_names("S") | small_streets,
        "small street": small_streets,
        "street anywhere": in_names("s"),
        "in names": in_names("C") | {name: old_states[name] for name in found["old state without another meaning"]},
        "day or month": found["day"] | found["short month"],
        "name of a day": dict.fromkeys(found["day"].values(), ""),
        "Biblical name": dict.fromkeys(found["bible"].values(), ""),
        "counting with a colon": {f"{word}:": "" for word in found["counting"]},
        "any sign": found["sign"] | {sign: name.partition("/")[0] for sign, name in names.items() if len(sign) == 1},
        "known": {form(word.split()[0]): "" for word in known for form in _CASES},
        "plain unit": dict.fromkeys(units - found["unit that is a word"].keys(), ""),
    }


CLASSES = _add_derived(_read_words())
# Units have a singular name; the plural follows a slash where it is irregular. Some are also words: "s" needs a space before it,
# "W" no street behind it, "in" a point or a direction. The codes of currencies, before or behind an amount, have the form of units.
_UNITS = {**readings("unit"), **readings("currency"), **readings("currency behind")}
UNITS = {
    symbol: (one, many or one + "s") for symbol, (one, _, many) in ((s, n.partition("/")) for s, n in _UNITS.items())
}
# The name of a currency by its sign; coins follow where prices have them.
SIGNED = {sign: tuple(names.split("/")) for sign, names in readings("sign of money").items()}
