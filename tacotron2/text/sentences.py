"""Cut long texts into pieces: sentences, and parts of sentences that are too long.

    cut_text("Dr. Who, at 5 p.m. on Monday. Really?", limit=30)
    [Piece("Dr. Who, at 5 p.m. on Monday.", 0.35), Piece("Really?", 0.35)]

Attention is trained on clips of a few seconds and fails on a minute of text. Memory grows with the longest text of a batch.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from common.reading.tables import words
from common.spec import SENTENCE_PAUSE, Piece
from tacotron2.text.cleaners import ABBREVIATIONS

# Seconds of silence after a piece, by the mark at its end; a cut between two words adds none.
CLAUSE_PAUSE, COMMA_PAUSE = 0.25, 0.15

_BRACED = re.compile(r"\{[^{}]*\}")
_CLOSING = r"[\"'”’»)\]]*"
_NOT_IN_RUN = r"(?<![.!?…])(?<![.!?…]\s)"  # a trial from each point of a long run would take quadratic time
_SENTENCE = re.compile(rf"{_NOT_IN_RUN}([.!?…](?:\s?[.!?…])*){_CLOSING}(?=\s)|[。！？｡]+[」』”’）]*")
_LINE_BREAKS = ("\n", "\v")
_SENTENCE_OR_LINE = re.compile(  # marks on two lines are not one
    _SENTENCE.pattern.replace(r"(?:\s?", r"(?:[^\S\n\v]?") + f"|[{''.join(_LINE_BREAKS)}]"
)
_CLAUSE = re.compile(rf"[;:]{_CLOSING}(?=\s)|[；：]|\s?[—―]+|(?<!-)--+(?![->])|(?<![0-9\s])\s[-–](?=\s)")
_COMMA = re.compile(rf",{_CLOSING}(?=\s)|[，、]")
_SPACE = re.compile(r"\s+")
_LAST_MARK = re.compile(rf"([.!?…。！？｡:：]){_CLOSING}\Z")
_UNIT = re.compile(r"\{[^{}]*\}|.", re.DOTALL)  # a character, or the ARPAbet in braces
LONGEST_UNCUT = 1000  # characters without a place to cut; beyond that, any place will do
_WINDOW = 100  # characters on each side of a place that may affect how cleaners convert it
_TRIALS = 100  # places tried in a text without a place to cut

LONGEST_LINE = 40  # characters; a longer line may be one of wrapped prose
_LONGEST_WORD = 24  # characters searched before a point
_WORD_BEFORE = re.compile(r"[\w.&'’-]*\Z")
_WORD_AFTER = re.compile(r"\s+[\"'“‘«(\[]*([^\s\"'”’»)\],;:!?]*)")
_INITIALS = re.compile(r"(?:[A-Za-z]{1,2}\.)+[A-Za-z]{1,2}|[A-Z]")  # p.m., U.S., Ph.D. and J. R. R.

# Words whose point does not end a sentence; they match in capitals too.
_TITLES = ABBREVIATIONS.keys() - {"st", "co", "jr", "esq", "ltd"}
_NEVER_LAST = frozenset({*words("title, never last"), *map(str.capitalize, _TITLES), "vs", "v"})
_BEFORE_NUMBERS = frozenset(words("before number, before year"))
_SELDOM_LAST = frozenset({*words("abbreviation, in names, day, short month, street"), "al"})
_OPENERS = frozenset(words("opener"))


def _as_written(text: str, places: Iterable[int]) -> tuple[str, dict[int, int]]:
    return text, {place: place for place in places}


class Conversion(NamedTuple):
    """The two steps from a written text to characters with symbols."""

    # text, places -> spoken text, and the index in it of each place that no rule replaces
    read_aloud: Callable[[str, Iterable[int]], tuple[str, dict[int, int]]] = _as_written
    clean: Callable[[str], str] = str  # of spoken text outside of {ARPAbet}


AS_WRITTEN = Conversion()


def cut_text(text: str, limit: int, convert: Conversion = AS_WRITTEN) -> list[Piece]:
    """Cut a text longer than `limit` spoken characters into its sentences; a limit of 0 turns this off.

    A sentence that is still too long is halved near its middle, repeatedly: at ; : or a dash, else at a comma, else at a space.
    Words of up to 1000 characters and {ARPAbet} stay whole. Every piece of them has a letter or a digit, unless the whole text has
    none.

    The whole text is read aloud before it is cut, since words depend on their neighbours: "No. 5", "$5 million". Pieces of a text
    that is cut are spoken text, for which reading aloud is over. No cut lies where it would change a word.
    """
    if not limit:
        return [Piece(text, 0.0)]
    ends, clauses = sentence_ends(text), _marks(_mask_arpabet(text), _CLAUSE)
    spoken, moved = convert.read_aloud(text, {place for end in (*ends, *clauses) for place in (end, _skip(text, end))})
    if len(spoken) <= limit:
        return [Piece(text, 0.0)]

    def find(places: Sequence[int]) -> list[int]:
        found = {moved.get(_skip(text, place), moved.get(place)) for place in places}
        return sorted(place for place in found if place is not None)

    cutter = _Cutter(spoken, limit, convert.clean, find(clauses))
    ends = [place for place in find(ends) if cutter.keeps_words(place)]
    return [
        piece
        for start, end in pairwise([0, *ends, len(spoken)])
        for piece in cutter.shorten(start, end, SENTENCE_PAUSE)
    ]


class _Cutter:
    """Cuts stretches of a spoken text, checking each place once."""

    def __init__(self, spoken: str, limit: int, clean: Callable[[str], str], clauses: list[int]) -> None:
        self._spoken, self._limit, self._clean = spoken, limit, clean
        self._masked = _mask_arpabet(spoken)
        self._words = [place for place, character in enumerate(self._masked) if character.isalnum()]
        commas, spaces = (_marks(self._masked, mark) for mark in (_COMMA, _SPACE))
        self._levels = (clauses, CLAUSE_PAUSE), (commas, COMMA_PAUSE), (spaces, 0.0)
        self._checked: dict[int, bool] = {}

    def shorten(self, start: int, end: int, pause: float) -> Iterator[Piece]:
        """Yield the parts of a stretch, each within the limit; `pause` follows the last one."""
        while start < end and self._spoken[start].isspace():
            start += 1
        while start < end and self._spoken[end - 1].isspace():
            end -= 1
        if end - start <= self._limit:
            yield from [Piece(self._spoken[start:end], pause)] if start < end else []
            return
        for places, own_pause in self._levels:
            if (place := self._middle(places, start, end)) is not None:
                yield from self.shorten(start, place, own_pause)
                yield from self.shorten(place, end, pause)
                return
        yield from self._cut_word(self._spoken[start:end], pause)

    def keeps_words(self, place: int) -> bool:
        """True if the cleaners convert the text before a place and the text after it as they convert both together."""
        if place not in self._checked:
            self._checked[place] = place in (0, len(self._spoken)) or _is_apart(self._spoken, place, self._clean)
        return self._checked[place]

    def _middle(self, places: list[int], start: int, end: int) -> int | None:
        """The place nearest to the middle of a stretch, with words before and after it; None if there is none."""
        first, last = bisect_left(self._words, start), bisect_left(self._words, end) - 1
        if first > last:
            return None
        lower, upper = bisect_right(places, self._words[first]), bisect_right(places, self._words[last])
        right = bisect_right(places, (start + end) // 2, lower, upper)
        left = right - 1
        while left >= lower or right < upper:
            goes_left = right >= upper or (
                left >= lower and start + end - 2 * places[left] <= 2 * places[right] - start - end
            )
            place = places[left if goes_left else right]
            if self.keeps_words(place):
                return place
            left, right = (left - 1, right) if goes_left else (left, right + 1)
        return None

    def _cut_word(self, word: str, pause: float) -> Iterator[Piece]:
        """Yield the parts of a text without a place to cut; a very long one is cut between two units."""
        if len(word) <= LONGEST_UNCUT:
            yield Piece(word, pause)
            return
        if (cleaned := _outside_braces(self._clean, word)) != word:  # a long number may be words by now
            yield from _Cutter(cleaned, self._limit, self._clean, []).shorten(0, len(cleaned), pause)
            return
        start, places = 0, [unit.end() for unit in _UNIT.finditer(word)]
        while places[-1] - start > LONGEST_UNCUT:
            first = bisect_right(places, start)
            own = places[first : max(first + 1, bisect_right(places, start + LONGEST_UNCUT))]
            place = next((place for place in own[: -_TRIALS - 1 : -1] if _is_apart(word, place, self._clean)), own[-1])
            yield Piece(word[start:place], 0.0)
            start = place
        if start < len(word):
            yield Piece(word[start:], pause)


def _is_apart(text: str, place: int, clean: Callable[[str], str]) -> bool:
    """True if cleaners, which convert word by word, convert the text around a place as its two sides."""
    if any(character in string.whitespace for character in text[place - 1 : place + 1]):
        return True
    before = text[max(0, place - _WINDOW) : place].rpartition("}")[2]
    after = text[place : place + _WINDOW].partition("{")[0]
    return "".join(clean(before + after).split()) == "".join((clean(before) + clean(after)).split())


def _outside_braces(clean: Callable[[str], str], text: str) -> str:
    parts = re.split(r"(\{[^{}]*\})", text)
    return "".join(part if number % 2 else clean(part) for number, part in enumerate(parts))


def _marks(masked: str, mark: re.Pattern[str]) -> list[int]:
    return [match.end() for match in mark.finditer(masked)]


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def sentence_ends(text: str) -> list[int]:
    """List the ends of all sentences but the last: words precede and follow each."""
    return find_ends(_mask_arpabet(text))


def find_ends(masked: str, is_line_end: Callable[[int, int], bool] | None = None) -> list[int]:
    """List the ends of the sentences of a text without markup: words precede each; words also follow those at marks.

    Args:
        masked: the text.
        is_line_end: tells of the place of a line break, a line feed or a vertical tab, and of the end before it, whether a
            sentence ends there; None: none does.
    """
    ends: list[int] = []
    has_words, position, last_mark = False, 0, 0  # last_mark: of a sentence, until words follow it
    for match in (_SENTENCE_OR_LINE if is_line_end else _SENTENCE).finditer(masked):
        if any(map(str.isalnum, masked[position : match.end()])):
            ends += [last_mark] if last_mark else []
            has_words, last_mark = True, 0
        position = match.end()
        if is_line_end and match[0] in _LINE_BREAKS:
            if (has_words or last_mark) and is_line_end(match.start(), ends[-1] if ends else 0):
                ends.append(position)
                has_words, last_mark = False, 0
        elif has_words and _is_end(masked, match):
            has_words, last_mark = False, position
    return [*ends, last_mark] if last_mark and any(map(str.isalnum, masked[position:])) else ends


def ends_sentence(line: str, length: int | None = None) -> bool:
    """True if the break after a line ends a sentence: after a mark, and after a short line, as in lists, poems and headings.

    A longer line is wrapped prose, which runs on. `length` counts characters that a part of a line lacks, too.
    """
    line = line.rstrip()
    if (len(line) if length is None else length) < LONGEST_LINE:
        return True
    mark = _LAST_MARK.search(line[-_LONGEST_WORD:])
    return mark is not None and not (mark[1] == "." and _may_go_on(line[-_LONGEST_WORD:][: mark.start()]))


def _is_end(text: str, match: re.Match[str]) -> bool:
    """True if . ! or ? ends a sentence, rather than an abbreviation or a quotation within one."""
    after = _WORD_AFTER.match(text, match.end())
    if match[1] is None or after is None:  # a script without spaces
        return True
    following = after[1]
    if following[:1].islower() or following[:1] in ("-", "–", "—"):
        return False
    if match[1] != ".":
        return True
    word = _word_before(text[max(0, match.start() - _LONGEST_WORD) : match.start()])
    if _is_in(word, _NEVER_LAST) or (_is_in(word, _BEFORE_NUMBERS) and following[:1] in tuple("0123456789#")):
        return False
    return not (_INITIALS.fullmatch(word) or _is_in(word, _SELDOM_LAST)) or _is_in(following, _OPENERS)


def _may_go_on(before: str) -> bool:
    """True if a point behind this text may be that of an abbreviation."""
    word = _word_before(before)
    return _INITIALS.fullmatch(word) is not None or any(
        _is_in(word, words) for words in (_NEVER_LAST, _BEFORE_NUMBERS, _SELDOM_LAST)
    )


def _word_before(text: str) -> str:
    before = _WORD_BEFORE.search(text)
    assert before is not None  # the pattern also matches the empty string
    return before[0].lstrip("'’-&.")


def _is_in(word: str, words: frozenset[str]) -> bool:
    return word in words or (word.isupper() and (word.capitalize() in words or word.lower() in words))


def _mask_arpabet(text: str) -> str:
    """Replace {ARPAbet} by letters of the same length, so that it contains no marks."""
    return _BRACED.sub(lambda match: "X" * len(match[0]), text)
