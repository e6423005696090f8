"""Functions on many files: what workers inherit."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from common.data.parallel import run_parallel


class Tracer:
    """Garbage in a cycle, whose end is recorded by the process that finalises it."""

    def __init__(self, path: Path) -> None:
        self.path, self.itself = path, self

    def __del__(self) -> None:
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def collect(number: int) -> int:
    gc.collect()
    return os.getpid()


def test_a_worker_finalises_nothing_that_it_inherited(tmp_path: Path) -> None:
    path = tmp_path / "finalised.txt"
    gc.disable()
    try:
        Tracer(path)
        workers = run_parallel(collect, [1, 2], 2, "collect")
    finally:
        gc.enable()
    gc.collect()
    assert os.getpid() not in workers and path.read_text().split() == [str(os.getpid())]
