"""One function on many files, on every core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

import torch
from tqdm import tqdm

Job = TypeVar("Job")
Done = TypeVar("Done")


def in_parallel(work: Callable[[Job], Done], jobs: Sequence[Job], workers: int, title: str) -> list[Done]:
    """The results of `work` for each job, in order, on several processes of one thread each, with a bar on a terminal."""
    if not jobs:
        return []
    with ProcessPoolExecutor(min(workers, len(jobs)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        results = pool.map(work, jobs, chunksize=8)
        return list(tqdm(results, total=len(jobs), desc=title, unit="clip", disable=None))  # None: on a terminal only
