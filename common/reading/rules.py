"""The language of rules.tsv: the rules of reader.py, one a line, tried in the order of the file.

    0	({MM})/({DAY})(?=\\s(?:{EVENTS})\\b)	{:date}	the 6/15 meeting

A rule has its places, a pattern, its words, and examples or a remark. A line "?" names a place where rules may begin, by a pattern
of what stands there: digits are "0", capitals and small letters at the start of a word "A" and "a". A place within others, which
its third column lists, spares most words most rules. The first rule that matches decides, so more specific ones come first. Each
pattern reads a bounded stretch of text or consumes all that it reads, so that time grows linearly with the length of a text. Digits
are rarer than words: a rule that depends on the words before a number begins at the number and looks behind.

In a pattern, {NAME} stands for a pattern that a line "= NAME" has defined, and {any:day, short month} for the words of classes in
words.tsv: `any` as written, `small` and `caps` in small letters and in capitals, `cased` as written and in capitals, `either` with
either first letter, `chars` as a set of characters, `behind` for a place behind one of them and a space. {behind=due|due on|*ing}
has words of its own; * is the rest of a word.

In words, {1} stands for what a group of the pattern has matched, and {1,2,'mdy':date} for what a speaker makes of groups and
constants ("-" is nothing); {:date} gives it all groups, and {~:dash} the match. A speaker is a function, or a class of words.tsv.

A mistake is refused with its file, line and column when the file is loaded.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from common.errors import DataError
from common.reading import codes, dates, letters, numbers, quantities
from common.reading.tables import any_of, readings, words

_T = TypeVar("_T")
RULES = Path(__file__).with_name("rules.tsv")


class Rule(NamedTuple):
    """A rule: the places where it begins, its pattern without abbreviations, and what makes words of a match."""

    places: str
    pattern: str
    read: Callable[[re.Match[str]], str]


class Place(NamedTuple):
    """A place where rules may begin: a pattern of what stands there, and the places that it is within, if any."""

    pattern: str
    within: str


class Language(NamedTuple):
    """What the file says: its places by their letters, and the rules of each heading, all in the order of the file."""

    places: dict[str, Place]
    sections: dict[str, list[Rule]]


class _Mistake(Exception):
    """A problem at an index of a column."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.column, self.index = 0, index


_SPEAKERS: dict[str, Callable[..., str]] = {
    name: speaker
    for module in (numbers, dates, letters, quantities, codes)
    for name, speaker in vars(module).items()
    if callable(speaker) and speaker.__module__ == module.__name__
}
_REFERENCE = re.compile(r"\{(?:([a-z_]+)([:=])([^{}]+)|([A-Z_]{2,}))\}")
_PART = re.compile(r"\{([^{}:]*)(:[\w ]+)?\}")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)  # of a pattern; "(" opens a group


def behind(phrases: list[str]) -> str:
    """Pattern of a place behind one of the phrases "due", "due on", "*ing" and a space, in any case; * is the rest of a word."""
    by_length: dict[int, list[str]] = {}
    for phrase in phrases:
        end = re.escape(phrase.removeprefix("*")).replace(r"\ ", r"\s")
        by_length.setdefault(len(phrase.removeprefix("*")), []).append(end if phrase[0] == "*" else rf"\b{end}")
    looks = (rf"(?<=(?:{'|'.join(ends)})\s)" for ends in by_length.values())
    return f"(?i:{'|'.join(looks)})"


def _either(word: str) -> str:
    return f"[{word[0].upper()}{word[0]}]{re.escape(word[1:])}" if word[0].islower() else re.escape(word)


_FORMS: dict[str, Callable[[list[str]], str]] = {
    "any": any_of,
    "small": lambda found: any_of(map(str.lower, found)),
    "caps": lambda found: any_of(map(str.upper, found)),
    "cased": lambda found: any_of({*found, *map(str.upper, found)}),
    "either": lambda found: "|".join(map(_either, sorted(found, key=len, reverse=True))),
    "chars": lambda found: re.escape("".join(word for word in found if len(word) == 1)),
    "behind": behind,
}


def _find(table: Mapping[str, str], name: str, index: int, kind: str) -> str:
    if name not in table:
        raise _Mistake(index, f"got {name!r}, expected {kind}")
    return table[name]


def _meaning(found: re.Match[str], names: dict[str, str]) -> str:
    """What an abbreviation of a pattern stands for."""
    form, sign, kinds, name = found.groups()
    if name:
        return _find(names, name, found.start(4), "a name that a line above defines")
    if form not in _FORMS:
        raise _Mistake(found.start(1), f"got {form!r}, expected {', '.join(_FORMS)}")
    try:
        return _FORMS[form](kinds.split("|") if sign == "=" else words(kinds))
    except KeyError as error:
        raise _Mistake(found.start(3), f"got {error.args[0]!r}, expected a class of words.tsv") from None


def _expand(pattern: str, names: dict[str, str]) -> str:
    """A pattern without abbreviations; it compiles, and so do all that are joined from such patterns."""
    return _REFERENCE.sub(lambda found: _meaning(found, names), pattern)


def _compile(pattern: str, names: dict[str, str]) -> None:
    """Raise the mistake of a pattern that is no regular expression, at its place before abbreviations are replaced."""
    try:
        re.compile(_expand(pattern, names))
    except re.error as error:
        index, longer = error.pos or 0, 0
        for found in _REFERENCE.finditer(pattern):
            length = len(_meaning(found, names))
            if (error.pos or 0) < found.start() + longer:
                break
            longer += length - len(found[0])
            index = max((error.pos or 0) - longer, found.start())
        raise _Mistake(index, f"expected a regular expression: {error.msg}") from None


def without_groups(pattern: str) -> str:
    """A pattern whose groups only group."""
    return _TOKEN.sub(lambda token: "(?:" if token[0] == "(" else token[0], pattern)


def _speaker(name: str, index: int) -> Callable[..., str]:
    if name in _SPEAKERS:
        return _SPEAKERS[name]
    try:
        table = readings(name)
    except KeyError:
        raise _Mistake(index, f"got {name!r}, expected a speaker or a class of words.tsv") from None

    def look_up(word: str | None) -> str:
        return table.get(word, word) if word else ""

    return look_up


def _argument(written: str) -> Callable[[re.Match[str]], str | re.Match[str] | None]:
    if written.isdigit():
        return lambda match: match[int(written)]
    return {"~": lambda match: match, "-": lambda match: None}.get(written, lambda match: written.strip("'"))


def _part(found: re.Match[str], groups: int) -> Callable[[re.Match[str]], str]:
    """A function from a match to the words of a part in braces."""
    written, name = found.groups("")
    arguments = [argument for argument in written.split(",") if argument]
    for argument in arguments:
        if not (
            argument in ("~", "-")
            or re.fullmatch("'[^']*'", argument)
            or (argument.isdigit() and int(argument) <= groups)
        ):
            raise _Mistake(found.start(1), f"got {argument!r}, expected a group from 1 to {groups}, 'text', ~ or -")
    if not name:
        if not written.isdigit():
            raise _Mistake(found.start(), f"got {found[0]!r}, expected a group or a speaker")
        return lambda match: match[int(written)] or ""
    speak = _speaker(name[1:], found.start(2) + 1)
    try:
        inspect.signature(speak).bind(*(arguments or range(groups)))
    except TypeError as error:
        raise _Mistake(found.start(), f"{name[1:]}: {error}") from None
    if not arguments:
        return lambda match: speak(*match.groups())
    getters = [_argument(argument) for argument in arguments]
    return lambda match: speak(*(get(match) for get in getters))


def _reading(template: str, groups: int) -> Callable[[re.Match[str]], str]:
    """A function from a match to words, from the third column of a rule."""
    fixed, parts = _PART.split(template)[::3], [_part(found, groups) for found in _PART.finditer(template)]
    if set("{}") & set("".join(fixed)):
        raise _Mistake(
            template.index("{") if "{" in template else template.index("}"), "expected {1}, {1:speaker} or {:speaker}"
        )
    if not parts:
        return lambda match: template
    return lambda match: "".join((fixed[0], *(part(match) + rest for part, rest in zip(parts, fixed[1:], strict=True))))


def _at(column: int, parse: Callable[..., _T], *arguments: object) -> _T:
    """Parse what stands in a column."""
    try:
        return parse(*arguments)
    except _Mistake as mistake:
        mistake.column = column
        raise


def _pattern(written: str, names: dict[str, str], compiles: bool) -> str:
    if compiles:
        _compile(written, names)
    return _expand(written, names)


def _places(written: str, places: dict[str, Place]) -> str:
    for index, place in enumerate(written):
        if place not in places:
            raise _Mistake(index, f"got {place!r}, expected places from {''.join(places)}")
    return written


def _read_line(columns: list[str], language: Language, names: dict[str, str], compiles: bool) -> None:
    """Add what a line says to the language or to the names. Raises _Mistake."""
    if columns[0].startswith("# "):
        language.sections[columns[0][2:]] = []
        return
    if not 3 <= len(columns) <= 4:
        raise _Mistake(0, f"got {len(columns)} columns, expected 3 or 4: places, pattern, words, remark")
    first, second, third = columns[:3]
    if first == "=":
        names[second] = _at(2, _pattern, third, names, compiles)
    elif first == "?":
        language.places[second] = Place(
            _at(3, _pattern, columns[-1], names, compiles), _at(2, _places, third, language.places)
        )
    else:
        places = _at(0, _places, first, language.places)
        pattern = _at(1, _pattern, second, names, compiles)
        groups = sum(token[0] == "(" for token in _TOKEN.finditer(pattern))
        next(reversed(language.sections.values())).append(Rule(places, pattern, _at(2, _reading, third, groups)))


@cache
def load_rules(path: Path = RULES, compiles: bool = False) -> Language:
    """Read a file of rules; compile each pattern by itself if asked, which takes as long as compiling all in one.

    Raises DataError for the first mistake.
    """
    names = {"SYMBOLS": quantities.SYMBOLS, "ROMAN": numbers.ROMAN, "NO_INITIALS": letters.NO_INITIALS}
    language = Language({}, {})
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        columns = line.split("\t")
        try:
            _read_line(columns, language, names, compiles)
        except _Mistake as mistake:
            place = sum(len(before) + 1 for before in columns[: mistake.column]) + mistake.index + 1
            raise DataError(f"{path}:{number}:{place}: {mistake}") from None
    return language
