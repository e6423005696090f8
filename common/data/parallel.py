"""A function applied to many files on all cores."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import torch

from common.errors import DataError
from common.progress import show_progress

Job = TypeVar("Job")
Done = TypeVar("Done")
PARENT_CHECK = 0.5  # seconds
ADVICE = "give a container more with --shm-size or --ipc=host, or lower --num-workers"  # of /dev/shm


def run_parallel(work: Callable[[Job], Done], jobs: Sequence[Job], workers: int, title: str) -> list[Done]:
    """Apply `work` to each job in several single-threaded processes, with a progress bar; return the results in order."""
    return list(stream_parallel(work, jobs, workers, title))


def stream_parallel(
    work: Callable[[Job], Done], jobs: Sequence[Job], workers: int, title: str, unit: str = "clip", chunk: int = 8
) -> Iterator[Done]:
    """Yield the results of run_parallel one by one, in order, as they become ready.

    Raises DataError if no process can start, or one is killed.

    Args:
        work: a picklable function.
        jobs: its arguments.
        workers: the number of processes.
        title: the progress bar's title.
        unit: the progress bar's name for a job.
        chunk: the number of jobs a process takes at once; 1 for long ones.
    """
    if not jobs:
        return
    start = (os.getpid(),)
    try:
        pool = ProcessPoolExecutor(min(workers, len(jobs)), initializer=_start_worker, initargs=start)
        results = pool.map(work, jobs, chunksize=chunk)
    except OSError as error:  # of the semaphores in /dev/shm, or of the fork
        raise DataError(
            f"no process for {title} can start ({error.strerror}): /dev/shm may be full; {ADVICE}"
        ) from None
    try:
        with pool:
            yield from show_progress(results, len(jobs), title, unit)
    except BrokenProcessPool:
        raise DataError(f"a process for {title} was killed, or out of memory; lower --num-workers {workers}") from None


def _start_worker(parent: int) -> None:
    gc.freeze()  # finalising inherited garbage may wait forever for threads that a fork lacks, as ONNX Runtime's sessions do
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process once its parent is gone; a killed parent cannot, and it would wait for jobs for ever."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK)
    os._exit(1)
