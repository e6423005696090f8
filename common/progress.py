"""Progress of long work: a bar on a terminal, otherwise a line every few seconds, so that a log shows it too; numbers in words."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
INTERVAL = 2.0  # seconds between two lines
MINUTE, HOUR = 60, 3600  # seconds


def show_progress(items: Iterable[Item], total: int, title: str, unit: str) -> Iterator[Item]:
    """Yield `items`, and write their count to stderr: "cutting: 3 of 12 recordings"."""
    if sys.stderr.isatty():
        from tqdm import tqdm  # here: scripts/prepare_dataset.py counts with Python alone

        yield from tqdm(items, total=total, desc=title, unit=unit)
        return
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            print(f"{title}: {number} of {counted(total, unit)}", file=sys.stderr, flush=True)
        yield item


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Format a number of things: "1 clip", "1,234 clips"; `ending` is the plural's."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def size(count: float) -> str:
    """Format bytes as GB or MB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"


def duration(seconds: float) -> str:
    """Format a length of time."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.1f} h"
