"""Parts of a sequence that are computed together with what is around them, the first of them soon."""

from __future__ import annotations

from collections.abc import Iterator


def parts_in_context(
    length: int, context: int, first: int, most: int, growth: int = 0
) -> Iterator[tuple[slice, slice]]:
    """Divide `length` frames into parts: yield each part with `context` frames on either side, and its own frames among these.

    The first part has `first` frames, the others `most`; with a growth, each has so many times the last one's up to `most`.
    """
    start, size = 0, first
    while start < length:
        end = min(start + size, length)
        around = slice(max(start - context, 0), min(end + context, length))
        yield around, slice(start - around.start, end - around.start)
        start, size = end, min(growth * size, most) if growth else most


def scaled(frames: slice, factor: int) -> slice:
    """Return the samples of some frames."""
    return slice(frames.start * factor, frames.stop * factor)
