"""Ctrl-C and SIGTERM as a request to stop after the current step, so that a run can save before it ends; saving by the clock."""

from __future__ import annotations

import itertools
import math
import signal
import sys
import time
from types import FrameType, TracebackType


class StopRequest:
    """Context manager: the first signal sets `is_requested`; a later one ends the process at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)
    ECHO = 2.0  # seconds in which torchrun passes on a Ctrl-C that the terminal sent to each process already

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._calls = itertools.count()  # in one step, where a second signal may come inside the first's handler
        self._since = math.inf

    @property
    def is_requested(self) -> bool:
        """Whether a signal has come."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, as shells expect; 0 after SIGTERM, by which a scheduler takes a machine back."""
        return 130 if self.signal == signal.SIGINT else 0

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.signal(number, self._request) for number in self.SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if next(self._calls):
            if time.monotonic() - self._since > self.ECHO:
                raise KeyboardInterrupt("nothing was saved since the last checkpoint")
            return
        self.signal, self._since = signal.Signals(number), time.monotonic()
        print("stopping after this step; once more to stop without saving", file=sys.stderr, flush=True)


class SaveTimer:
    """Says when a checkpoint is due by the clock."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.restart()

    @property
    def due(self) -> bool:
        """Whether so many minutes have passed since the last restart."""
        return time.monotonic() - self._since >= 60 * self.minutes

    def restart(self) -> None:
        """Count from now on."""
        self._since = time.monotonic()
