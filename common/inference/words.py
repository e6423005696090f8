"""When the words of a text are spoken, from the alignment of its speech: the words as read, then those as written."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from common.errors import DataError
from common.inference.stages import Part
from common.spec import WordSpan

# K decoder steps, S symbols, W words

WRITTEN = re.compile(r"(?:\{[^{}]*\}|\S)+")  # ARPAbet in braces may have spaces
LEAST_WEIGHT = 1e-4  # attention below this is noise, whose logarithm must not decide

Spell = Callable[[str], Sequence[str]]  # a text -> its symbols


class Word(NamedTuple):
    """A word as written, with its punctuation, and when it is spoken, in seconds."""

    text: str
    start: float
    end: float


def word_spans(alignment: Tensor, symbols: Sequence[str], is_finished: bool = True) -> list[WordSpan]:
    """Find the decoder steps of each word from attention weights (K, S), one column per symbol.

    A word runs from its first letter to its last; what separates words belongs to none. Of all ways through the text in order that
    give each word a step, this is the likeliest. Without `is_finished`, the way may end before the text, and words that it does not
    reach are left out.
    """
    words = _words(symbols)
    if not words or not len(alignment):
        return []
    weights = np.nan_to_num(alignment[:, : len(symbols)].double().numpy())
    sums = np.pad(weights.cumsum(axis=1), ((0, 0), (1, 0)))
    edges = [0, *(edge for word in words for edge in (word.start, word.stop)), len(symbols)]
    states = (
        sums[:, edges[1:]] - sums[:, edges[:-1]]
    )  # (K, 2 W + 1): before the first word, the word, between it and the next, …
    path = _path(np.log(states.clip(min=LEAST_WEIGHT)), is_finished)
    spans = []
    for number, word in enumerate(words):
        steps = np.flatnonzero(path == 2 * number + 1)
        if steps.size:
            spans.append(WordSpan(_spelled(symbols, word), int(steps[0]), int(steps[-1]) + 1))
    return spans


def _words(symbols: Sequence[str]) -> list[range]:
    """List the places of each word, from its first letter or digit to its last; spaces separate words."""
    letters = [unicodedata.category(symbol[-1])[0] in "LMN" for symbol in symbols]
    words: list[range] = []
    last_space = 0  # of those before the last word
    for place, symbol in enumerate(symbols):
        if symbol == " ":
            last_space = place
        elif letters[place]:
            if not words or words[-1].start < last_space:
                words.append(range(place, place + 1))
            else:  # a mark inside a word, as in don't, does not end it, so the word grows up to here
                words[-1] = range(words[-1].start, place + 1)
    return words


def _spelled(symbols: Sequence[str], places: range) -> str:
    return "".join(symbols[place].removeprefix("@") or "@" for place in places)


def _path(scores: npt.NDArray[np.float64], to_end: bool) -> npt.NDArray[np.int64]:
    """Return the state of each step on the best way through scores (K, 2 W + 1); words, the odd states, cannot be skipped."""
    n_steps, n_states = scores.shape
    best = np.full(n_states, -np.inf)
    best[:2] = scores[0, :2]
    moves = np.full((3, n_states), -np.inf)  # by 0, 1 or 2 states
    taken = np.zeros((n_steps, n_states), np.int64)
    for step in range(1, n_steps):
        moves[0], moves[1, 1:], moves[2, 3::2] = best, best[:-1], best[1:-2:2]
        taken[step] = moves.argmax(axis=0)
        best = moves.max(axis=0) + scores[step]
    if to_end and np.isfinite(best[-2:]).any():
        best[:-2] = -np.inf
    path = [int(best.argmax())]
    for step in range(n_steps - 1, 0, -1):
        path.append(path[-1] - int(taken[step, path[-1]]))
    return np.array(path[::-1])


class Timetable:
    """The times of a text's words, part by part of its speech.

    Args:
        text: as written.
        parts: the text of each part, as read.
        spell: returns the symbols of a text.
    """

    def __init__(self, text: str, parts: Sequence[str], spell: Spell) -> None:
        self._symbols = [spell(part) for part in parts]
        self._written = WRITTEN.findall(text)
        words = [[_spelled(symbols, word) for word in _words(symbols)] for symbols in self._symbols]
        self._owners = _owners(self._written, [word for part in words for word in part], spell)
        self._lasts = {owner: place for place, owner in enumerate(self._owners)}
        self._counts = [len(part) for part in words]
        self._begun: dict[int, Word] = {}  # words that a later part ends, by their place in the text
        self._n_parts = self._n_words = 0

    def add(self, part: Part, alignment: Tensor) -> list[Word]:
        """List the words that end in the next part, which has attention weights (K, S)."""
        number, first = self._n_parts, self._n_words
        self._n_parts += 1
        self._n_words += self._counts[number]
        seconds = part.seconds / part.steps if part.steps else 0.0  # of a decoder step
        for place, span in enumerate(word_spans(alignment, self._symbols[number], part.finished), first):
            owner, start = self._owners[place], part.start + seconds * span.start
            begun = self._begun.get(owner, Word(self._written[owner], start, start))
            self._begun[owner] = begun._replace(end=part.start + seconds * span.end)
        ended = [owner for owner in self._begun if self._lasts[owner] < self._n_words]
        return [self._begun.pop(owner) for owner in ended]


def _owners(written: Sequence[str], spoken: Sequence[str], spell: Spell) -> list[int]:
    """Return the place in `written` of each spoken word. A written word may be read as several, and differently among others.

    Each is read alone. Words that this and the spoken text share belong together, and those between them follow in order.
    """
    alone = [(word, number) for number, text in enumerate(written) for word in _read_alone(text, spell)]
    alone = alone or [("", number) for number in range(len(written))]
    matcher = SequenceMatcher(None, [word for word, _ in alone], [word.lower() for word in spoken], autojunk=False)
    owners = []
    for _, begin, end, first, last in matcher.get_opcodes():
        for place in range(last - first):
            own = begin + place * (end - begin) // (last - first) if end > begin else max(begin - 1, 0)
            owners.append(alone[own][1])
    return _share(owners, sorted({number for _, number in alone}))


def _share(owners: list[int], readable: Sequence[int]) -> list[int]:
    """Give each readable written word one of the spoken words of its neighbours, in order, if it has none."""
    counts = Counter(owners)
    for number in readable:
        if not counts[number]:
            place = bisect_left(owners, number)
            others = [other for other in (place - 1, place) if 0 <= other < len(owners) and counts[owners[other]] > 1]
            if others:
                counts[owners[others[0]]] -= 1
                owners[others[0]], counts[number] = number, 1
    return owners


def _read_alone(text: str, spell: Spell) -> list[str]:
    try:
        symbols = spell(text)
    except DataError:  # half of something, such as a brace
        return []
    return [_spelled(symbols, word).lower() for word in _words(symbols)]
