"""CPU threads beside other processes: how long a waiting thread spins, and how many threads compute.

OpenMP's threads spin while they wait for each other. On a busy machine they spin on cores that the awaited thread needs. The
commands therefore limit spinning, and leave the cores to other processes that these use. A library must not change its process so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

SPIN_LIMIT = "GOMP_SPINCOUNT"  # GNU OpenMP reads it when PyTorch is imported
SPINS = "20000"  # a fifteenth of the default, and still longer than a wait on an idle machine
FIXED = "OMP_NUM_THREADS"  # a number of threads that the user chose
SECONDS = 1.0  # between two looks at the load: the kernel counts in steps of 10 ms
THRESHOLD = 0.6  # cores by which a look must differ from the number of threads; above a half, so that they settle


def limit_spinning() -> None:
    """Limit spinning of threads that wait, unless the user has set a limit; call it before the first import of PyTorch."""
    os.environ.setdefault(SPIN_LIMIT, SPINS)


class Usage(NamedTuple):
    """Seconds: idle time of the cores that this process may use, its own processor time, and the clock."""

    idle: float
    own: float
    clock: float


def read_usage() -> Usage:
    """Read the times up to now."""
    times = psutil.cpu_times(percpu=True)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
    idle = sum(times[i].idle + getattr(times[i], "iowait", 0.0) for i in cores if i < len(times))
    return Usage(idle, time.process_time(), time.monotonic())


def choose_threads(threads: int, most: int, before: Usage, now: Usage) -> int:
    """The number of threads, from 1 to `most`, for the cores that were idle or this process's own between two looks."""
    spare = (now.idle - before.idle + now.own - before.own) / (now.clock - before.clock)
    if abs(spare - threads) <= THRESHOLD:
        return threads
    return min(most, max(1, round(spare)))


class ThreadBalance:
    """Adapts the number of threads to the load between two pieces of work; results may then differ in their last bits.

    Args:
        most: the number of threads on an idle machine.
        set_threads: takes a number of threads, in the thread that computes.
    """

    def __init__(self, most: int, set_threads: Callable[[int], None]) -> None:
        self.threads = self.most = most
        self.set_threads, self.usage = set_threads, read_usage()

    def adjust(self) -> str:
        """Look at the load if a second has passed; return a sentence where the number of threads changes, else ""."""
        if time.monotonic() - self.usage.clock < SECONDS:
            return ""
        before, self.usage = self.usage, read_usage()
        threads = choose_threads(self.threads, self.most, before, self.usage)
        if threads == self.threads:
            return ""
        self.threads = threads
        self.set_threads(threads)
        return f"CPU threads: {threads} of {self.most} for the load of this machine; {FIXED} sets a fixed number"
