"""The language of files of rules such as rules.tsv, one rule a line, tried in the order of the file.

    0	({MM})/({DAY})(?=\\s(?:{EVENTS})\\b)	{:date}	the 6/15 meeting

A rule has its places, a pattern, its words, and examples or a remark. A line "?" names a place where rules may begin, by a pattern
of what stands there: digits are "0", words "w". A place within others, which its third column lists, spares most words most rules:
capitals and small letters at the start of a word are "A" and "a". The first rule that matches decides, so more specific ones come
first. Each pattern reads a bounded stretch of text or consumes all that it reads, so that time grows linearly with the length of a
text. Digits are rarer than words: a rule that depends on the words before a number begins at the number and looks behind.

In a pattern, {NAME} stands for a pattern that a line "= NAME" has defined, and {any:day, short month} for the words of classes:
`any` as written, `small` and `caps` in small letters and in capitals, `cased` as written and in capitals, `either` with either
first letter, `chars` as a set of characters, `behind` for a place behind one of them and a space. {behind=due|due on|*ing} has
words of its own; * is the rest of a word.

In words, {1} stands for what a group of the pattern has matched, and {1,2,'mdy':date} for what a speaker makes of groups and
constants ("-" is nothing); {:date} gives it all groups, and {~:dash} the match. A speaker is a function, a class of words with
readings, or changes of words; {1:roman>ordinal>feminine} are several, each of which is given the words of the one before.

Where a language has no table of words, a line "+" gives a class some, with readings: Sr=señor; Sra=señora. A line "~" adds to named
changes of words a pattern, and in the fourth column what replaces it.

A mistake is refused with its file, line and column when the file is loaded.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial, reduce
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from common.errors import DataError
from common.reading.tables import any_of, behind


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
    check: Callable[[], object]  # compiles each pattern by itself, and names the first mistake


_REFERENCE = re.compile(r"\{(?:([a-z_]+)([:=])([^{}]+)|([A-Z_]{2,}))\}")
_PART = re.compile(r"\{([^{}:]*)(?::([\w >]+))?\}")
_ARGUMENT = re.compile("[0-9]+|'[^']*'|~|-")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\]){0,200}\]|\((?!\?)", re.DOTALL)  # of a pattern; "(" opens a group


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


class Rules:
    """Files of rules in reading, as if they were one; they may refer to classes of words with readings, speakers, named patterns.

    The classes grow by the words of the files. Loading raises DataError for the first mistake; with `compiles`, it compiles each
    pattern by itself, which takes a while.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        classes: dict[str, dict[str, str]],
        speakers: Mapping[str, Callable[..., str]],
        patterns: Mapping[str, str],
        compiles: bool = False,
    ) -> None:
        self._paths, self._classes, self._speakers, self._compiles = paths, classes, speakers, compiles
        self._patterns, self._place, self._heading, self._columns = dict(patterns), "", "", list[str]()
        self._known: dict[str, str] = {}  # abbreviations, since one class stands in many patterns
        self._changes: dict[str, list[tuple[re.Pattern[str], str]]] = {}
        checked = partial(Rules, paths, classes, speakers, patterns, compiles=True)
        self._language = Language({}, {}, lambda: checked().load())

    def load(self) -> Language:
        """Read the lines."""
        for path in self._paths:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                self._place, self._columns = f"{path}:{number}", line.split("\t")
                if line.startswith("# "):
                    self._language.sections.setdefault(line[2:], [])
                    self._heading = line[2:]
                elif 3 <= len(self._columns) <= 4:
                    self._read_line(*self._columns[:3])
                else:
                    problem = f"got {len(self._columns)} columns, expected 3 or 4: places, pattern, words, remark"
                    raise self._mistake(0, 0, problem)
        return self._language

    def change(self, name: str, words: str) -> str:
        """Words with the changes of a name, if there are any."""
        return _change(self._changes.get(name, ()), words)

    def _mistake(self, column: int, index: int, problem: str) -> DataError:
        place = sum(len(before) + 1 for before in self._columns[:column]) + index + 1
        return DataError(f"{self._place}:{place}: {problem}")

    def _read_line(self, first: str, second: str, third: str) -> None:
        if first in "+=":
            self._known.clear()  # what is known of a name or a class may change
        if first == "+":
            self._add_words(self._classes.setdefault(second, {}), third.split("; "))
        elif first == "~":
            change = re.compile(self._pattern(2, third, compiles=True)), "".join(self._columns[3:])
            self._changes.setdefault(second, []).append(change)
        elif first == "=":
            self._patterns[second] = self._pattern(2, third)
        elif first == "?":
            within = self._places(2, third)
            self._language.places[second] = Place(self._pattern(3, self._columns[-1]), within)
        else:
            places, pattern = self._places(0, first), self._pattern(1, second)
            groups = sum(token[0] == "(" for token in _TOKEN.finditer(pattern))
            if not self._heading:
                raise self._mistake(0, 0, "expected a heading, # and its name, above the first rule")
            self._language.sections[self._heading].append(Rule(places, pattern, self._reading(third, groups)))

    def _add_words(self, words: dict[str, str], entries: list[str]) -> None:
        """Add words, each also as at the start of a sentence, but for single letters."""
        for entry in entries:
            rest, _, reading = entry[1:].partition("=")  # a sign may be "=" itself
            words[entry[:1] + rest] = reading
            if rest:
                words.setdefault(entry[0].upper() + rest, reading)

    def _places(self, column: int, written: str) -> str:
        for index, place in enumerate(written):
            if place not in self._language.places:
                problem = f"got {place!r}, expected places from {''.join(self._language.places)}"
                raise self._mistake(column, index, problem)
        return written

    def _pattern(self, column: int, written: str, compiles: bool = False) -> str:
        """A pattern without abbreviations."""
        ends: list[tuple[int, int]] = []  # of abbreviations, and what each adds to the length
        parts, end = list[str](), 0
        for found in _REFERENCE.finditer(written):
            meaning = self._known.get(found[0]) or self._meaning(column, found)
            self._known[found[0]] = meaning
            ends.append((found.end(), len(meaning) - len(found[0])))
            parts += [written[end : found.start()], meaning]
            end = found.end()
        pattern = "".join([*parts, written[end:]])
        if compiles or self._compiles:
            try:
                re.compile(pattern)
            except re.error as error:
                index = error.pos or 0
                for end, longer in ends:
                    index = max(index - longer, min(index, end - 1)) if index >= end else index
                raise self._mistake(column, index, f"expected a regular expression: {error.msg}") from None
        return pattern

    def _meaning(self, column: int, found: re.Match[str]) -> str:
        """What an abbreviation of a pattern stands for."""
        form, sign, kinds, name = found.groups()
        if name:
            if name not in self._patterns:
                raise self._mistake(column, found.start(4), f"got {name!r}, expected a name that a line above defines")
            return self._patterns[name]
        if form not in _FORMS:
            raise self._mistake(column, found.start(1), f"got {form!r}, expected {', '.join(_FORMS)}")
        if sign == "=":
            return _FORMS[form](kinds.split("|"))
        words: list[str] = []
        for kind in kinds.split(", "):
            if kind not in self._classes:
                raise self._mistake(column, found.start(3), f"got {kind!r}, expected a class of words")
            words += self._classes[kind]
        return _FORMS[form](words)

    def _reading(self, template: str, groups: int) -> Callable[[re.Match[str]], str]:
        """A function from a match to words, from the third column of a rule."""
        fixed = _PART.sub("\0", template)
        if set("{}") & set(fixed):
            index = min(template.index(brace) for brace in "{}" if brace in fixed)
            raise self._mistake(2, index, "expected {1}, {1:speaker} or {:speaker}")
        parts = [self._part(found, groups) for found in _PART.finditer(template)]
        texts = fixed.split("\0")

        def read(match: re.Match[str]) -> str:
            words = [part(match) for part in parts]
            said = texts[0] + "".join(word + text for word, text in zip(words, texts[1:], strict=True))
            return said if all(words) else " ".join(filter(None, said.split(" ")))

        return read

    def _part(self, found: re.Match[str], groups: int) -> Callable[[re.Match[str]], str]:
        """A function from a match to the words of a part in braces."""
        arguments = found[1].split(",") if found[1] else list(map(str, range(1, groups + 1)))
        for written in arguments:
            if not _ARGUMENT.fullmatch(written) or (written.isdigit() and int(written) > groups):
                problem = f"got {written!r}, expected a group from 1 to {groups}, 'text', ~ or -"
                raise self._mistake(2, found.start(1), problem)
        if not found[2] and not found[1].isdigit():
            raise self._mistake(2, found.start(), f"got {found[0]!r}, expected a group or a speaker")
        speak: Callable[..., str] = self._speaker(found[2], found.start(2)) if found[2] else _as_written
        try:
            inspect.signature(speak).bind(*arguments)
        except TypeError as error:
            raise self._mistake(2, found.start(), f"{found[2]}: {error}") from None
        getters = list(map(_argument, arguments))
        return lambda match: speak(*(get(match) for get in getters))

    def _speaker(self, name: str, index: int) -> Callable[..., str]:
        first, *others = (self._one_speaker(one, index) for one in name.split(">"))
        return (lambda *words: reduce(lambda said, speak: speak(said), others, first(*words))) if others else first

    def _one_speaker(self, name: str, index: int) -> Callable[..., str]:
        if name in self._speakers:
            return self._speakers[name]
        if name in self._changes:
            return partial(_change, self._changes[name])
        if name not in self._classes:
            raise self._mistake(2, index, f"got {name!r}, expected a speaker or a class of words")
        return partial(_look_up, self._classes[name])


def _change(changes: Iterable[tuple[re.Pattern[str], str]], words: str | None) -> str:
    return reduce(lambda said, change: change[0].sub(change[1], said), changes, words or "")


def _look_up(readings: Mapping[str, str], word: str | None) -> str:
    return readings.get(word, word) if word else ""


def _as_written(word: str | None) -> str:
    return word or ""


def _argument(written: str) -> Callable[[re.Match[str]], str | re.Match[str] | None]:
    if written.isdigit():
        return lambda match: match[int(written)]
    return {"~": lambda match: match, "-": lambda match: None}.get(written, lambda match: written.strip("'"))


class Scanner:
    """The rules of some headings of a language. Those of a place are compiled when a text first has one, all in one pattern.

    The groups of the rules are not in it: opening a group takes time in proportion to the number of groups before it.
    """

    def __init__(self, language: Language, headings: Iterable[str]) -> None:
        self._language = language
        self._rules = [rule for heading in headings for rule in language.sections[heading]]
        self._places = {name: re.compile(place.pattern) for name, place in language.places.items() if not place.within}
        self._trials: dict[str, tuple[re.Pattern[str], list[Rule]]] = {}

    def find(self, text: str) -> Iterator[tuple[Rule, re.Match[str]]]:
        """Yield the rules that apply to a text, from left to right, and what each matches."""
        for name, place in self._places.items():
            if name not in self._trials and place.search(text):
                self._trials[name] = self.compile(name)
        trials = [self._trials[name] for name in self._places if name in self._trials]
        ahead = [pattern.search(text) for pattern, _ in trials]
        starts = [found.start() if found else len(text) for found in ahead]
        while (start := min(starts, default=len(text))) < len(text):
            index = starts.index(start)
            first = ahead[index]
            assert first is not None and first.lastindex is not None
            rule = trials[index][1][first.lastindex - 1]
            match = _compile(rule.pattern).match(text, start)
            assert match is not None
            yield rule, match
            end = max(match.end(), start + 1)
            for index, (pattern, _) in enumerate(trials):
                if starts[index] < end:
                    ahead[index] = found = pattern.search(text, end)
                    starts[index] = found.start() if found else len(text)

    def read(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield the stretches of a text to which rules apply, and the words for each."""
        return ((*match.span(), rule.read(match)) for rule, match in self.find(text))

    def compile(self, place: str) -> tuple[re.Pattern[str], list[Rule]]:
        """The rules that may begin at a place, in the order of the file, with an empty group behind each in one pattern."""
        places = self._language.places
        own = [(name, rule) for rule in self._rules for name in rule.places if place in (name, *places[name].within)]
        runs = []
        for name, run in groupby(own, key=itemgetter(0)):
            trials = "|".join(f"(?:{_without_groups(rule.pattern)})()" for _, rule in run)
            runs.append(trials if name == place else f"{places[name].pattern}(?:{trials})")
        within_words = "(?!(?<=[a-z])[a-z])"  # most places; none of rules
        try:
            pattern = re.compile(f"{within_words}{places[place].pattern}(?:{'|'.join(runs) or '(?!)'})")
            return pattern, [rule for _, rule in own]
        except re.error:
            self._language.check()
            raise


_compile = cache(re.compile)


def _without_groups(pattern: str) -> str:
    """A pattern whose groups only group."""
    return _TOKEN.sub(lambda token: "(?:" if token[0] == "(" else token[0], pattern)
