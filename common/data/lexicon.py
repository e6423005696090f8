"""A lexicon: how words are spoken, in a file with a word and its spoken form on each line, a tab between them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from common.data.filelist import BadRows, lines_of
from common.errors import DataError, join_problems
from common.files import decode_lines

_EXPECTED = "expected WRITTEN, a tab and SPOKEN, where SPOKEN is words or {ARPAbet}"
_TOKEN = re.compile(r"\{[^{}]*\}|\w+|[^\w\s]")
_GOES_ON = re.compile(r"[^\W_]|(?<=[0-9])[.,:][0-9]")  # 2.5 is not 2, nor GPT-4.5 GPT-4


class Lexicon:
    """Replaces words in a text by their spoken forms: whole words, or several in a row, the longest entry first.

    An entry in small letters applies to a word in any case. One with capitals applies to the word as it is written, and to the
    word in capitals. Apostrophes may be straight or curly, spaces any.
    """

    def __init__(self, entries: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
        self.entries, self.places = dict(entries), dict(places or {})  # of entries, for messages: FILE:LINE
        self._by_first: dict[str, list[tuple[str, str]]] = {}
        for written in sorted(self.entries, key=lambda written: (-len(written), written)):
            plain = _straight(_spaced(written))
            first = _TOKEN.search(plain)
            assert first is not None
            self._by_first.setdefault(first[0].lower(), []).append((plain, self.entries[written]))

    def check(self, encode: Callable[[list[str]], object], unspoken: Callable[[str], list[str]]) -> None:
        """Raise one DataError for the entries with braces that hold no ARPAbet.

        Args:
            encode: raises BadRows for ARPAbet with mistakes.
            unspoken: a text -> its characters that are left out.
        """
        written = [word for word, spoken in self.entries.items() if "{" in spoken or "}" in spoken]
        problems: dict[int, str] = {}
        for number, spoken in enumerate(self.entries[word] for word in written):
            try:
                encode([spoken])
                if {"{", "}"} & set(unspoken(spoken)):
                    problems[number] = f"{spoken!r}: braces without ARPAbet"
            except BadRows as error:
                problems[number] = error.problems[0]
        if problems:
            places = [self.places.get(word, f"lexicon: {word!r}") for word in written]
            raise DataError(join_problems([f"{places[number]}: {problem}" for number, problem in problems.items()]))

    def __repr__(self) -> str:
        return f"Lexicon({self.entries})"

    def __call__(self, text: str) -> str:
        """Replace the entries in a text; {ARPAbet} stays."""
        parts, place, text = [], 0, _spaced(text)
        plain = _straight(text)
        for token in _TOKEN.finditer(plain):
            if token.start() < place:
                continue
            for written, spoken in self._by_first.get(token[0].lower(), ()):
                end = token.start() + len(written)
                goes_on = written[-1].isalnum() and _GOES_ON.match(plain, end)
                if _fits(plain[token.start() : end], written) and not goes_on:
                    parts += [text[place : token.start()], spoken]
                    place = end
                    break
        return "".join([*parts, text[place:]])


def _spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _straight(text: str) -> str:
    return text.replace("’", "'")  # of the same length


def _fits(found: str, written: str) -> bool:
    return found == written or found == written.upper() or (written.islower() and found.lower() == written)


def lexicon_of(source: Any) -> Lexicon | None:
    """Return the lexicon in a file or a mapping. Raises DataError as read_lexicon does, and for entries that say nothing."""
    if source is None or isinstance(source, Lexicon):
        return source
    if not isinstance(source, Mapping):
        return read_lexicon(source)
    problems = [
        f"lexicon: {written!r}: {problem}" for written in source if (problem := _problem(written, source[written]))
    ]
    if problems:
        raise DataError("\n".join(problems))
    return Lexicon(source)


def read_lexicon(path: str | os.PathLike[str]) -> Lexicon:
    """Read a lexicon from a UTF-8 file. Blank lines and lines that begin with # are comments.

    Raises:
        DataError: the file is missing, or has lines that are no entries, or a word twice. It lists all mistakes by line.
    """
    lines, undecodable = decode_lines(path, "expected a UTF-8 text file of words with their spoken forms")
    entries: dict[str, str] = {}
    places: dict[str, str] = {}
    problems = dict(undecodable)
    for index, line in enumerate(lines):
        if index in problems or not line.strip() or line.startswith("#"):
            continue
        written, _, spoken = (part.strip() for part in line.partition("\t"))
        if line.count("\t") != 1 or (problem := _problem(written, spoken)):
            problems[index] = f"{line!r}: {problem if line.count(chr(9)) == 1 else _EXPECTED}"
        elif written in entries:
            problems[index] = f"{written!r} is there already, at {places[written]}: expected every word once"
        else:
            entries[written], places[written] = spoken, f"{os.fspath(path)}:{index + 1}"
    with lines_of(path):
        if problems:
            raise BadRows(dict(sorted(problems.items())))
    return Lexicon(entries, places)


def _problem(written: str, spoken: str) -> str:
    if not any(map(str.isalnum, spoken)) or not _TOKEN.search(written):
        return f"nothing to say, {_EXPECTED}"
    return "braces in the written word" if "{" in written or "}" in written else ""
