"""A training as a process of its own, which saves and stops on Ctrl-C, on SIGTERM and at its time limit.

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
from enum import Enum
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
STOPPED_ITSELF = [
    128 + number for number in signals("SIGHUP", "SIGINT")
]  # exit codes after a save, of a signal from elsewhere
PATIENCE = 60.0  # seconds that the process of an earlier run has to save and end


class RunEnding(Enum):
    """Why a training process ended, other than by a failure."""

    FINISHED = "finished"  # all epochs, no gain for several reports, or its own time limit
    BUDGET = "budget"
    STOPPED = "stopped"  # a signal to this process


def run_training(
    command: Sequence[str], threads: int, seconds_left: float, stop: StopRequest, spend: Callable[[float], None]
) -> RunEnding:
    """Run a training to its end, its time limit or a stop; `spend` is told of the seconds passed. Raises DataError if it fails."""
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
    began = saved = time.monotonic()
    ending = RunEnding.FINISHED
    try:
        while process.poll() is None:
            time.sleep(TICK)
            now = time.monotonic()
            if now - saved > 5:
                spend(now - saved)
                saved = now
            if ending is RunEnding.FINISHED and (stop.is_requested or now - began > seconds_left):
                ending = RunEnding.STOPPED if stop.is_requested else RunEnding.BUDGET
                process.send_signal(signal.SIGTERM)
    except BaseException:  # a second Ctrl-C
        process.kill()
        raise
    reader.join(DRAIN)
    spend(time.monotonic() - saved)
    if stop.is_requested or process.returncode in STOPPED_ITSELF:  # the signal may have reached it before this process
        ending = RunEnding.STOPPED
    ends_well = (0, -signal.SIGTERM, *STOPPED_ITSELF) if ending is not RunEnding.FINISHED else (0,)
    if process.returncode not in ends_well:  # which are after a save, or before there was anything to save
        raise DataError(_failure(name_of(command), process.returncode))
    return ending


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
