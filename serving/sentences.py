"""Sentences of a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Callable


class SentenceCutter:
    """Collects pieces of text and returns sentences as soon as they are complete.

    A sentence is complete at the end of a line, or once the word after it is complete: that word decides cases such as "Dr. Who".
    The sentences therefore do not depend on the sizes of the pieces.

    Args:
        sentence_ends: a text -> the ends of all its sentences but the last.
    """

    def __init__(self, sentence_ends: Callable[[str], list[int]]) -> None:
        self._ends, self._text = sentence_ends, ""

    def __len__(self) -> int:
        return len(self._text)

    def add(self, text: str) -> list[str]:
        """Add a piece of text; return the sentences that are now complete."""
        *lines, self._text = (self._text + text).split("\n")
        sentences = [sentence for line in lines for sentence in self._cut_text(line)]
        complete = self._text[: self._text.rfind(" ") + 1]
        if ends := self._ends(complete):
            sentences += split_at(complete, ends)[:-1]
            self._text = self._text[ends[-1] :]
        return sentences

    def finish(self) -> list[str]:
        """Return the sentences of the rest of the text."""
        rest, self._text = self._text, ""
        return self._cut_text(rest)

    def _cut_text(self, text: str) -> list[str]:
        return [sentence for sentence in split_at(text, self._ends(text)) if any(map(str.isalnum, sentence))]


def split_at(text: str, ends: list[int]) -> list[str]:
    """Split a text at the ends of its sentences."""
    return [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
