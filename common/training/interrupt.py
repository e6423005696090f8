"""Stop requests by Ctrl-C and SIGTERM, which let a run save before it ends; a timer for saving by the clock."""

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
    ECHO = 2.0  # seconds; within them torchrun forwards a Ctrl-C that the terminal has sent to each process already

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._calls = itertools.count()  # next() is atomic: a second signal may interrupt the first's handler
        self._since = math.inf

    @property
    def is_requested(self) -> bool:
        """True after the first signal."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, as shells expect; 0 after SIGTERM, which schedulers send to free a machine."""
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
    """Timer of checkpoints by the clock."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.restart()

    @property
    def due(self) -> bool:
        """True once `minutes` have passed since the last restart."""
        return time.monotonic() - self._since >= 60 * self.minutes

    def restart(self) -> None:
        """Start the interval anew."""
        self._since = time.monotonic()
