"""The files of a run in PROJECT/jobs: its process, its exit code, and notes; and the runner, which studio.jobs starts.

python -m studio.jobs.run_files FILE IDENTITY runs the command of a run file and writes its exit code. Imports no PyTorch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil

from common.files import read_object, write_text
from common.run.child import end_with

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK = 0.1  # seconds between polls of the command
PATIENCE = 10.0  # seconds that a server has to write the run file
SAME_START = 2.0  # seconds by which two readings of one start time may differ, since clocks are adjusted


@dataclass(frozen=True, kw_only=True)
class Run:
    """The contents of a run file."""

    identity: str
    words: list[str]  # command line after `python -m`
    device: str  # "" for commands that need none
    pid: int
    started: float  # seconds since 1970, as psutil reads it
    log_start: int  # first byte of its output in the log


def read_run(path: Path) -> Run | None:
    """Read a run file; None if it is missing or damaged."""
    content = _read(path)
    try:
        run = Run(**{field.name: content[field.name] for field in fields(Run)}) if content else None
    except (KeyError, TypeError):
        return None
    if not run or not isinstance(run.pid, int) or not isinstance(run.started, float):
        return None
    return run if run.words and isinstance(run.words, list) else None


def find_process(run: Run) -> psutil.Process | None:
    """Return the process of a run; None if it has ended, even if another process has its id now."""
    try:
        process = psutil.Process(run.pid)
        is_alive = abs(process.create_time() - run.started) < SAME_START and process.status() != psutil.STATUS_ZOMBIE
        with suppress(psutil.AccessDenied):  # another user's process may hide its command line: the start time decides
            is_alive = is_alive and run.identity in process.cmdline()
    except (psutil.Error, ValueError, OverflowError):
        return None
    return process if is_alive else None


def wait_for_run(path: Path, identity: str) -> Run | None:
    """Wait for the run file of this process; None if the server ended before it wrote the file."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        run = read_run(path)
        if run and run.identity == identity and run.pid == os.getpid():
            return run
        time.sleep(0.02)
    return None


def write_exit(path: Path, identity: str, code: int) -> None:
    """Write the exit code of a run beside its run file."""
    write_note(path.with_suffix(".exit"), {"identity": identity, "code": code})


def read_note(path: Path, run: Run) -> dict[str, Any] | None:
    """Return the contents of a file that belongs to this run, else None."""
    content = _read(path)
    return content if content and content.get("identity") == run.identity else None


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        return read_object(path)
    return None


def write_note(path: Path, content: dict[str, Any]) -> None:
    """Write a small JSON file. Raises OSError."""
    write_text(path, json.dumps(content))


def main() -> int:
    """Start the command in a session of its own, pass signals on to all its processes, and return its exit code."""
    path, identity = Path(sys.argv[1]), sys.argv[2]
    requests: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: requests.append(number))
    run = wait_for_run(path, identity)
    if run is None:
        return 1
    command, parent = [sys.executable, "-m", *run.words], os.getpid()
    process = subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: end_with(parent))
    # studio.jobs blocks it until here; the command, which inherits that, lets it in when Python has started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while process.poll() is None:
        time.sleep(TICK)
        while requests:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, requests.pop(0))
    write_exit(path, identity, process.returncode)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
