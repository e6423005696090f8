"""The batches of each optimizer step, loaded one step ahead: the error of a clip is there before the step in front of it runs.

So all processes end together after that step, and save.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from common.errors import DataError


class Step(NamedTuple):
    """Batches of a step, the seconds spent waiting for data, and the error of the step after it, if there is one.

    Without batches, the error is that of the first step.
    """

    batches: list[Any]
    waited: float
    fault: DataError | None


def steps(loader: Iterable[Any], size: int) -> Iterator[Step]:
    """Yield the steps of `size` batches each; batches that do not fill a step are left out. Raises no DataError."""
    source = iter(loader)
    start = time.perf_counter()
    batches, fault = _load(source, size)
    if fault:
        yield Step([], time.perf_counter() - start, fault)
    while batches:
        following, fault = _load(source, size)
        yield Step(batches, time.perf_counter() - start, fault)
        start = time.perf_counter()
        batches = following


def _load(source: Iterator[Any], size: int) -> tuple[list[Any], DataError | None]:
    try:
        batches = list(itertools.islice(source, size))
    except DataError as error:
        return [], error
    return (batches if len(batches) == size else []), None
