"""Run the command of a run file and write its exit code: python -m studio.jobs.run_job FILE IDENTITY, started by studio.jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from common.run.child import end_with
from studio.jobs.run_files import wait_for_run, write_exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK = 0.1  # seconds between polls of the command


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
    process = subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: _begin(parent))
    _unblock()  # studio.jobs blocks SIGINT until here
    while process.poll() is None:
        time.sleep(TICK)
        while requests:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, requests.pop(0))
    write_exit(path, identity, process.returncode)
    return process.returncode


def _begin(parent: int) -> None:
    _unblock()
    end_with(parent)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


if __name__ == "__main__":
    sys.exit(main())
