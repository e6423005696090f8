"""A process that ends with its parent: on Linux the system sends it a signal, even after SIGKILL of the parent."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from common.system import c_function

PR_SET_PDEATHSIG = 1  # of Linux's prctl
LAUNCHED = "TORCHELASTIC_RUN_ID"  # in the environment of torchrun's processes
LAUNCHER_ID = "LAUNCHER_ID"  # variable for multiproc's process id


def end_with(parent: int, number: int = signal.SIGTERM) -> None:
    """Have Linux send a signal to this process when its parent ends; other systems do nothing. Call it before exec.

    `parent` is an id that the parent has passed on: os.getppid() of a process whose parent has ended is another's.
    """
    if sys.platform == "linux":
        with suppress(OSError, TypeError):
            c_function("prctl")(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def end_with_launcher() -> None:
    """Have this process end with the launcher that has started it, if any; a command that it runs in turn is not bound.

    Plain torchrun passes no id on: if it is killed in the moment before this call, its processes end by --timeout-minutes.
    """
    if LAUNCHED not in os.environ:
        return
    parent = os.getppid()
    launcher = int(os.environ.get(LAUNCHER_ID, parent))
    if launcher == parent:
        end_with(parent)
    elif not _is_running(launcher):
        os._exit(1)


def _is_running(pid: int) -> bool:
    import psutil  # here: most processes need none of it at their start

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
