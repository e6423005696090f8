"""Stop requests by signals (Ctrl-C, SIGTERM, a closed terminal), on which a run saves; a limit of time; saving by the clock."""

from __future__ import annotations

import itertools
import math
import signal
import sys
import time
from contextlib import suppress
from types import FrameType, TracebackType

NOHUP = (signal.SIGHUP, signal.SIG_IGN)


class StopRequest:
    """Context manager: the first signal sets `is_requested`; a later one ends the process at once.

    SIGHUP, which a terminal sends as it closes, is left alone where it is ignored, as nohup has it.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
        """130 after Ctrl-C and 129 after SIGHUP, as shells expect; 0 after SIGTERM, which schedulers send to free a machine."""
        return 0 if self.signal in (None, signal.SIGTERM) else 128 + self.signal

    def __enter__(self) -> StopRequest:
        numbers = [number for number in self.SIGNALS if (number, signal.getsignal(number)) != NOHUP]
        self._before = {number: signal.signal(number, self._request) for number in numbers}
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
        again = "; once more to stop without saving" if number == signal.SIGINT else ""
        with suppress(OSError):  # of a closed terminal
            print(f"stopping after this step{again}", file=sys.stderr, flush=True)


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


class TimeLimit:
    """Limit of a run's time in minutes, from its creation on; math.inf is none. Runs end with an epoch, for a last validation."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self._start = self._last = time.monotonic()
        self._longest = 0.0

    def is_near(self) -> bool:
        """True where another epoch as long as the longest might not fit; call this once after the steps of each epoch.

        The time between two calls also has a validation, so that the last one fits too.
        """
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        return now + self._longest > self._start + 60 * self.minutes
