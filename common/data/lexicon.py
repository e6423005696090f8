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


class Lexicon:
    """Replaces words in a text by their spoken forms: whole words, or several in a row, the longest entry first.

    An entry in small letters applies to a word in any case. One with capitals applies to the word as it is written, and to the
    word in capitals.
    """

    def __init__(self, entries: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
        self.entries, self.places = dict(entries), dict(places or {})  # of entries, for messages: FILE:LINE
        self._by_first: dict[str, list[str]] = {}
        for written in sorted(self.entries, key=lambda written: (-len(written), written)):
            first = _TOKEN.search(written)
            assert first is not None
            self._by_first.setdefault(first[0].lower(), []).append(written)

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
        parts, place = [], 0
        for token in _TOKEN.finditer(text):
            if token.start() < place:
                continue
            for written in self._by_first.get(token[0].lower(), ()):
                end = token.start() + len(written)
                if _fits(text[token.start() : end], written) and not (
                    written[-1].isalnum() and text[end : end + 1].isalnum()
                ):
                    parts += [text[place : token.start()], self.entries[written]]
                    place = end
                    break
        return "".join([*parts, text[place:]])


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
