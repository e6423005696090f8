"""A process that ends with its parent: on Linux the system sends it SIGTERM, even after SIGKILL of the parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with(parent: int) -> None:
    """Have Linux send SIGTERM to this process when its parent ends; other systems do nothing. Call it before exec."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
