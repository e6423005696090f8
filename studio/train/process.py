"""train.py as a process of its own, which Ctrl-C, SIGTERM and the end of a budget stop after a save.

The process ends with this one, SIGKILL included: the system then sends it SIGTERM, on which it saves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from common.errors import DataError, UsageError
from common.run.interrupt import StopRequest
from common.run.run_folder import occupy
from studio.plan.machine import environment, train_command
from studio.train.child import end_with

TICK = 0.2  # seconds between two looks at the process
PATIENCE = 60.0  # seconds for the process of an earlier run to save and end


class RunEnding(Enum):
    """Reason why a training process ended well."""

    FINISHED = "finished"  # all epochs, or no gain for so many reports
    BUDGET = "budget"
    STOPPED = "stopped"  # by a signal to this process


def run_training(
    argv: Sequence[str], threads: int, seconds_left: float, stop: StopRequest, spend: Callable[[float], None]
) -> RunEnding:
    """Run train.py to its end, to the end of its budget, or to a stop; `spend` takes the seconds passed, every few seconds.

    Raises DataError where the process fails; its own message stands above.
    """
    parent = os.getpid()
    # In a session of its own, so that a terminal's Ctrl-C comes through this process, once.
    process = subprocess.Popen(
        train_command(argv),
        env=environment(threads),
        start_new_session=True,
        preexec_fn=lambda: end_with(parent),
    )
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
    spend(time.monotonic() - saved)
    if ending is not RunEnding.FINISHED and process.returncode == -signal.SIGTERM:
        return ending  # it had not begun to train, so there is nothing to save
    if process.returncode:
        raise DataError(_failure(process.returncode))
    return ending


def _failure(code: int) -> str:
    if code < 0:
        return f"train.py was ended by {describe_signal(-code)}; the same command goes on from its last checkpoint"
    return f"train.py ended with exit code {code}, for the reason above"


def describe_signal(number: int) -> str:
    """Name a signal; SIGKILL with its most frequent cause."""
    return signal.Signals(number).name + (", out of memory perhaps" if number == signal.SIGKILL else "")


def wait_for_earlier(folder: Path, model_name: str) -> None:
    """Wait until the process of a killed run has saved and ended. Raises UsageError where another run goes on."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with occupy(folder, model_name):
                return
        except UsageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(TICK)
