"""A text in which stretches are replaced by words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def replace(
    text: str, found: Iterable[tuple[int, int, str]], origins: dict[int, int], divides: bool = True
) -> tuple[str, dict[int, int]]:
    """Replace stretches of a text by words, (start, end, words), with spaces around them if they divide words: MP3, 4x4.

    Moves the places of `origins` (place: index) along. Places inside new words are left out.
    """
    parts: list[str] = []
    length, was_new, was_left_out = 0, False, False
    indices, moved = sorted(set(origins.values())), {}
    following = 0
    for start, end, words, is_new in _all_stretches(text, found, divides):
        at_start = length
        if words:
            if (is_new or was_new) and parts and _would_join(parts[-1][-1], words, was_left_out):
                parts.append(" ")
                length += 1
            was_new, was_left_out = is_new, False
            parts.append(words)
        elif is_new:  # a sign that is left out divides words, too
            was_new = was_left_out = True
        first, length = length, length + len(words)
        while following < len(indices) and indices[following] <= end:
            index = indices[following]
            if index in (start, end):
                moved[index] = at_start if index == start else length
            elif not is_new:
                moved[index] = first + index - start
            following += 1
    return "".join(parts), {place: moved[index] for place, index in origins.items() if index in moved}


def _all_stretches(
    text: str, found: Iterable[tuple[int, int, str]], divides: bool
) -> Iterator[tuple[int, int, str, bool]]:
    """Yield the stretches of a text that stay, and the new ones between; True for those that divide words."""
    done = 0
    for start, end, words in found:
        yield done, start, text[done:start], False
        yield start, end, words, divides
        done = end
    yield done, len(text), text[done:], False


def _would_join(last: str, words: str, is_left_out: bool) -> bool:
    """True if words would join what ends in `last`, or would after a sign that is left out: C".D, a./b."""
    joint = last + words[:2]
    return re.match(r"[^\W_]{2}" + (r"|\.[^\W_]|[^\W_]\.[^\W_]" if is_left_out else ""), joint) is not None
