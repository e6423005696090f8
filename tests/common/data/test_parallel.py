"""Processes that work through many files: what keeps them from starting, or ends them, is one error; what they inherit."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.data.parallel import run_parallel
from common.errors import DataError
from tests.recipe import ROOT

FULL = 'mount -t tmpfs -o size=4k tmpfs /dev/shm; head -c 4k /dev/zero > /dev/shm/filler; exec "$@"'
CODE = "from common.data.parallel import run_parallel\nfrom common.errors import exit_on_user_error\n"
CODE += "with exit_on_user_error(): run_parallel(abs, [-1, -2], 2, 'mels')"


def test_a_killed_process_is_an_error_that_names_the_flag() -> None:
    with pytest.raises(DataError, match=r"^a process for mels was killed, or out of memory; lower --num-workers 2$"):
        run_parallel(signal.raise_signal, [signal.SIGKILL] * 2, 2, "mels")


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


def test_a_full_shared_memory_is_an_error_that_names_it() -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("only root can mount a small /dev/shm")
    words = ["unshare", "-m", "sh", "-c", FULL, "_", sys.executable, "-c", CODE]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    message = "error: no process for mels can start (No space left on device): /dev/shm may be full; give a container"
    assert (done.returncode, done.stderr[: len(message)]) == (1, message), done.stderr
    assert "--shm-size" in done.stderr and "Traceback" not in done.stderr
