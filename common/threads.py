"""How many CPU threads compute: commands leave cores to other busy processes. A library must not change its process like this."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from common.system import usable_cores

FIXED = "OMP_NUM_THREADS"  # the user's own number of threads
SECONDS = 1.0  # between two looks at the load, which the kernel counts in steps of 10 ms
THRESHOLD = (
    0.6  # free cores must differ from the number of threads by this much; above a half, so that the number settles
)


class Usage(NamedTuple):
    """Seconds of idle time of the cores that this process may use, of its own processor time, and of the clock."""

    idle: float
    own: float
    clock: float


def read_usage() -> Usage:
    """Read the times up to now."""
    times = psutil.cpu_times(percpu=True)
    idle = sum(times[i].idle + getattr(times[i], "iowait", 0.0) for i in usable_cores() if i < len(times))
    return Usage(idle, time.process_time(), time.monotonic())


def choose_threads(threads: int, most: int, before: Usage, now: Usage) -> int:
    """The number of threads, from 1 to `most`, for the cores that were idle or used by this process between two looks."""
    spare = (now.idle - before.idle + now.own - before.own) / (now.clock - before.clock)
    if abs(spare - threads) <= THRESHOLD:
        return threads
    return min(most, max(1, round(spare)))


class ThreadBalance:
    """Adapts the number of threads to the load, between pieces of work; results may then differ in their last bits.

    Args:
        most: the number of threads on an idle machine.
        set_threads: sets the number of threads; called in the thread that computes.
    """

    def __init__(self, most: int, set_threads: Callable[[int], None]) -> None:
        self.threads = self.most = most
        self.set_threads, self.usage = set_threads, read_usage()

    def adjust(self) -> str:
        """Look at the load if a second has passed; return a sentence if the number of threads changes, else ""."""
        if time.monotonic() - self.usage.clock < SECONDS:
            return ""
        before, self.usage = self.usage, read_usage()
        threads = choose_threads(self.threads, self.most, before, self.usage)
        if threads == self.threads:
            return ""
        self.threads = threads
        self.set_threads(threads)
        return f"CPU threads: {threads} of {self.most} for the load of this machine; {FIXED} sets a fixed number"
