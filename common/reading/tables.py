"""The word lists of the reader, from words.tsv: a class, a word and, where it has one, its reading on each line.

Classes of abbreviations end in the places where these are read in full:

- T before a name, with a point (the cleaner handles Mr., Dr., Gen. and others as in the training data); t without one too
- N before a number, with a point; n there without a point too; Y before a year
- L anywhere, with a point, and never at the end of a sentence; A anywhere, with a point, perhaps at the end; C likewise in names
- S behind the name of a street; s there where another street or a place may follow without a comma
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_SHORT = "short form "


def readings(kind: str) -> dict[str, str]:
    """The words of a class and their readings, empty for words without one. Raises KeyError for an unknown class."""
    return _CLASSES[kind]


def words(kinds: str) -> list[str]:
    """The words of a class, or of several: "day, short month". Raises KeyError for an unknown one."""
    return [word for kind in kinds.split(", ") for word in _CLASSES[kind]]


def any_of(alternatives: Iterable[str]) -> str:
    """Pattern that matches any of these words, the longest first."""
    return "|".join(sorted(map(re.escape, alternatives), key=len, reverse=True))


def _capital(word: str) -> str:
    return word[0].upper() + word[1:]


def _add_capitalised(table: dict[str, str]) -> dict[str, str]:
    """Add each entry as it is written at the start of a sentence and in capitals."""
    return {
        **{name.upper(): full for name, full in table.items() if name.isalpha() and len(name) > 1},
        **{_capital(name): _capital(full) for name, full in table.items() if len(name) > 1},
        **table,
    }


def _read_words() -> dict[str, dict[str, str]]:
    """The classes of words.tsv, and those that are made of others."""
    found: dict[str, dict[str, str]] = {}
    for line in Path(__file__).with_name("words.tsv").read_text(encoding="utf-8").splitlines():
        kind, word, reading = (*line.split("\t"), "")[:3]
        found.setdefault(kind, {})[word] = reading

    def short_forms(place: str) -> dict[str, str]:
        own = [table for kind, table in found.items() if kind.startswith(_SHORT) and place in kind[len(_SHORT) :]]
        return {word: full for table in own for word, full in table.items()}

    def in_names(place: str) -> dict[str, str]:
        return {_capital(short): _capital(full) for short, full in short_forms(place).items()}

    old_states, names = found["old state"], found["sign of money"]
    units = {*found["unit"], *found["currency"], *found["currency behind"]}
    return found | {
        "title": short_forms("T"),
        "title without point": short_forms("t"),
        "before number": _add_capitalised(short_forms("N")),
        "number without point": _add_capitalised(short_forms("n")),
        "before year": {**short_forms("Y"), "Est": "Established"},
        "never last": {name: full for name, full in _add_capitalised(short_forms("L")).items() if not name.isupper()},
        "abbreviation": short_forms("A"),
        "street": in_names("S"),
        "street anywhere": in_names("s"),
        "in names": in_names("C") | {name: old_states[name] for name in found["old state without another meaning"]},
        "name of a day": dict.fromkeys(found["day"].values(), ""),
        "Biblical name": dict.fromkeys(found["bible"].values(), ""),
        "counting with a colon": {f"{word}:": "" for word in found["counting"]},
        "any sign": found["sign"] | {sign: name.partition("/")[0] for sign, name in names.items() if len(sign) == 1},
        "plain unit": dict.fromkeys(units - found["unit that is a word"].keys(), ""),
    }


_CLASSES = _read_words()
# Units have a singular name; the plural follows a slash where it is irregular. Some are also words: "s" needs a space before it,
# "W" no street behind it, "in" a point or a direction. The codes of currencies, before or behind an amount, have the form of units.
_UNITS = {**readings("unit"), **readings("currency"), **readings("currency behind")}
UNITS = {
    symbol: (one, many or one + "s") for symbol, (one, _, many) in ((s, n.partition("/")) for s, n in _UNITS.items())
}
# The name of a currency by its sign; coins follow where prices have them.
SIGNED = {sign: tuple(names.split("/")) for sign, names in readings("sign of money").items()}
