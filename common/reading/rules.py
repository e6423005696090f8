"""The rules of reader.py, from rules.tsv: where a rule begins, a pattern, its words, and examples or a remark on each line.

    0	({MM})/({DAY})(?=\\s(?:{EVENTS})\\b)	{:date}	the 6/15 meeting

A rule begins at digits ("0"), at capitals or small letters at the start of a word ("A", "a"), at spaces ("_") or at other signs
("-"); the others are in reader.py. Rules are tried in the order of the file, so more specific patterns come first. Each pattern
reads a bounded stretch of text or consumes all that it reads, so that time grows linearly with the length of a text. Digits are
rarer than words: a rule that depends on the words before a number begins at the number and looks behind.

In a pattern, {NAME} stands for a pattern that a line "= NAME" has defined, and {any:day, short month} for the words of classes in
words.tsv: `any` as written, `small` and `caps` in small letters and in capitals, `cased` as written and in capitals, `either` with
either first letter, `chars` as a set of characters, `behind` for a place behind one of them and a space. {behind=due|due on|*ing}
has words of its own; * is the rest of a word.

In words, {1} stands for what a group of the pattern has matched, and {1,2,'mdy':date} for what a speaker makes of groups and
constants ("-" is nothing); {:date} gives it all groups, and {~:dash} the match. A speaker is a function, or a class of words.tsv.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from common.reading import codes, dates, letters, numbers, quantities
from common.reading.tables import any_of, readings, words


class Rule(NamedTuple):
    """A rule: where it begins, its pattern without abbreviations, what makes words of a match, and its line's last column."""

    beginnings: str
    pattern: str
    read: Callable[[re.Match[str]], str]
    remark: str


_SPEAKERS: dict[str, Callable[..., str]] = {
    name: speaker
    for module in (numbers, dates, letters, quantities, codes)
    for name, speaker in vars(module).items()
    if callable(speaker) and speaker.__module__ == module.__name__
}
_REFERENCE = re.compile(r"\{(?:([a-z_]+)([:=])([^{}]+)|([A-Z_]{2,}))\}")
_PART = re.compile(r"\{([^{}:]*)(:[\w ]+)?\}")


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


def _expand(pattern: str, names: dict[str, str]) -> str:
    def replace(found: re.Match[str]) -> str:
        form, sign, kinds, name = found.groups()
        return names[name] if name else _FORMS[form](kinds.split("|") if sign == "=" else words(kinds))

    return _REFERENCE.sub(replace, pattern)


def _speaker(name: str) -> Callable[..., str]:
    return _SPEAKERS.get(name) or readings(name).__getitem__


def _argument(written: str) -> Callable[[re.Match[str]], str | re.Match[str] | None]:
    if written.isdigit():
        return lambda match: match[int(written)]
    return {"~": lambda match: match, "-": lambda match: None}.get(written, lambda match: written.strip("'"))


def _part(group: str, name: str) -> Callable[[re.Match[str]], str]:
    if not name:
        return lambda match: match[int(group)] or ""
    speak, arguments = _speaker(name[1:]), [_argument(written) for written in group.split(",") if written]
    if not arguments:
        return lambda match: speak(*match.groups())
    return lambda match: speak(*(argument(match) for argument in arguments))


def _reading(template: str) -> Callable[[re.Match[str]], str]:
    """A function from a match to words, from the third column of a rule."""
    fixed, parts = _PART.split(template)[::3], [_part(*found.groups("")) for found in _PART.finditer(template)]
    if not parts:
        return lambda match: template
    return lambda match: "".join((fixed[0], *(part(match) + rest for part, rest in zip(parts, fixed[1:], strict=True))))


@cache
def load_rules() -> dict[str, list[Rule]]:
    """The rules of each heading of rules.tsv."""
    names = {"SYMBOLS": quantities.SYMBOLS, "ROMAN": numbers.ROMAN, "NO_INITIALS": letters.NO_INITIALS}
    return {
        heading: list(_rules(lines, names))
        for heading, lines in _headings(Path(__file__).with_name("rules.tsv").read_text(encoding="utf-8").splitlines())
    }


def _headings(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    starts = [place for place, line in enumerate(lines) if line.startswith("# ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield lines[start][2:], lines[start + 1 : end]


def _rules(lines: list[str], names: dict[str, str]) -> Iterator[Rule]:
    """Yield the rules of some lines; definitions among them are added to `names`."""
    for line in lines:
        beginnings, pattern, template, remark = (*line.split("\t"), "", "")[:4]
        if beginnings == "=":
            names[pattern] = _expand(template, names)
        else:
            yield Rule(beginnings, _expand(pattern, names), _reading(template), remark)
