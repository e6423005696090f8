"""A training as a process of its own, which saves and stops on Ctrl-C and on SIGTERM.

It ends with this process, even after SIGKILL: the system then sends it SIGTERM, on which it saves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from common.errors import DataError, UsageError
from common.run.child import end_with
from common.run.interrupt import StopRequest
from common.run.nvlog import RECORD
from common.run.run_folder import occupy
from common.system import signals
from studio.plan.commands import environment

DRAIN = 5.0  # seconds to print what it said last
TICK = 0.2  # seconds between polls of the process
WATCH = 5.0  # seconds between looks at its log
STOPPED_ITSELF = [
    128 + number for number in signals("SIGHUP", "SIGINT")
]  # exit codes after a save, of a signal from elsewhere
PATIENCE = 60.0  # seconds that the process of an earlier run has to save and end


def run_training(command: Sequence[str], threads: int, stop: StopRequest, watch: Callable[[], None]) -> bool:
    """Run a training, and call `watch` every few seconds. Returns False if a signal stopped it. Raises DataError if it fails."""
    # In a session of its own, so that a terminal's Ctrl-C reaches it once, through this process.
    process = subprocess.Popen(
        command,
        env=environment(threads),
        start_new_session=True,
        preexec_fn=partial(end_with, os.getpid()),
        stdout=subprocess.PIPE,
        errors="replace",
    )
    reader = threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True)
    reader.start()
    watched, stopping = time.monotonic(), False
    try:
        while process.poll() is None:
            time.sleep(TICK)
            if time.monotonic() - watched > WATCH:
                watch()
                watched = time.monotonic()
            if stop.is_requested and not stopping:
                process.send_signal(signal.SIGTERM)
                stopping = True
    except BaseException:  # a second Ctrl-C
        process.kill()
        raise
    reader.join(DRAIN)
    watch()
    # The signal may have reached it before this process. It ends well after a save, or before there was anything to save.
    stopping = stop.is_requested or process.returncode in STOPPED_ITSELF
    if process.returncode not in ((0, -signal.SIGTERM, *STOPPED_ITSELF) if stopping else (0,)):
        raise DataError(_failure(name_of(command), process.returncode))
    return not stopping


def _pass_on(lines: IO[str]) -> None:
    """Print the sentences of a training; its records, one a step, are in nvlog.json."""
    for line in lines:
        if not line.startswith(RECORD):
            with suppress(OSError):  # a closed terminal: the training goes on
                print(line, end="", flush=True)


def name_of(command: Sequence[str]) -> str:
    """Return the file or the module that Python runs."""
    return command[2] if command[1] == "-m" else Path(command[1]).name


def _failure(name: str, code: int) -> str:
    if code < 0:
        return f"{name} was ended by {describe_signal(-code)}; the same command resumes from its last checkpoint"
    return f"{name} ended with exit code {code}, for the reason above"


def describe_signal(number: int) -> str:
    """Name a signal, SIGKILL with its most likely cause."""
    return signal.Signals(number).name + (", perhaps out of memory" if number == signal.SIGKILL else "")


def wait_for_earlier(folder: Path, model_name: str) -> None:
    """Wait until the process of a killed run has saved and ended. Raises UsageError if another run keeps the folder."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with occupy(folder, model_name):
                return
        except UsageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(TICK)
