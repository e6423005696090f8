"""Progress of long work: a bar on a terminal, otherwise a line every few seconds, so that a log shows it too."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
INTERVAL = 2.0  # seconds between two lines


def show_progress(items: Iterable[Item], total: int, title: str, unit: str) -> Iterator[Item]:
    """Yield `items`, and write their count to stderr: "cutting: 3 of 12 recordings"."""
    if sys.stderr.isatty():
        yield from tqdm(items, total=total, desc=title, unit=unit)
        return
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            print(f"{title}: {number} of {total} {unit}s", file=sys.stderr, flush=True)
        yield item
