"""Sentences of a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile

SentenceEnds = Callable[[str, int, bool], list[int]]


class SentenceCutter:
    """Collects pieces of text and returns sentences as soon as they are complete.

    A sentence is complete at the end of a block or a short line, or once the word after it is complete: that word decides cases
    such as "Dr. Who". The sentences therefore do not depend on the sizes of the pieces.

    Args:
        sentence_ends: what has arrived of a text, the characters of its line before it, whether it is whole -> the ends of its
            sentences.
    """

    def __init__(self, sentence_ends: SentenceEnds) -> None:
        self._ends, self._text, self._column = sentence_ends, "", 0

    def __len__(self) -> int:
        return len(self._text)

    def add(self, text: str) -> list[str]:
        """Add a piece of text; return the sentences that are now complete."""
        self._text += text
        return self._take(self._ends(self._text, self._column, False))

    def finish(self) -> list[str]:
        """Return the sentences of the rest of the text."""
        ends = self._ends(self._text, self._column, True)
        sentences = self._take([*ends, len(self._text)])
        self._column = 0
        return [sentence for sentence in sentences if sentence]

    def _take(self, ends: list[int]) -> list[str]:
        sentences = [_without_signs(self._text[start:end]) for start, end in zip([0, *ends], ends)]
        taken, self._text = self._text[: ends[-1] if ends else 0], self._text[ends[-1] if ends else 0 :]
        line = taken.rfind("\n") + 1
        self._column = len(taken) - line if line else self._column + len(taken)
        return sentences


def cut_sentences(pieces: Iterable[str], sentence_ends: SentenceEnds) -> Iterator[str]:
    """Yield the sentences of a text in pieces, each as soon as it is complete."""
    cutter = SentenceCutter(sentence_ends)
    for piece in pieces:
        yield from cutter.add(piece)
    yield from cutter.finish()


def _without_signs(sentence: str) -> str:
    """Remove the lines without words before a sentence, and spaces around it."""
    lines = sentence.split("\n")
    return "\n".join(dropwhile(lambda line: not any(map(str.isalnum, line)), lines)).strip()
