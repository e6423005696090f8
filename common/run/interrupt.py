"""Stop requests by signal (Ctrl-C, SIGTERM, a closed terminal), a time limit, and saving by the clock."""

from __future__ import annotations

import errno
import itertools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

from common.run.child import LAUNCHED
from common.system import signals

NOHUP = [(number, signal.SIG_IGN) for number in signals("SIGHUP")]


class Stopped(BaseException):
    """A request to stop where nothing has to be saved first. No Exception, which libraries that are called may catch."""


class StopRequest:
    """Context manager: the first signal sets `is_requested`; a later Ctrl-C ends the process at once.

    Another SIGTERM or SIGHUP does not: schedulers and launchers repeat and forward theirs, and end a process with SIGKILL. Nor
    does a launcher's Ctrl-C: it limits the time to save by itself. SIGHUP, which a closing terminal sends, stays ignored under
    nohup. Outside the main thread, which alone gets signals, there are no requests. With `last`, the process ends after a request:
    until then a repeated SIGTERM or SIGHUP has no effect, and Ctrl-C ends it at once, as all is saved.
    """

    SIGNALS = signals("SIGINT", "SIGTERM", "SIGHUP")
    ECHO = 2.0  # seconds in which a parent may forward a Ctrl-C that the terminal has already sent to each process

    def __init__(self, last: bool = False) -> None:
        self.last = last
        self.signal: signal.Signals | None = None
        self._calls = itertools.count()  # next() is atomic: a second signal may interrupt the first's handler
        self._since = math.inf
        self._at_once = False

    @property
    def is_requested(self) -> bool:
        """True after the first signal."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C and 129 after SIGHUP, as shells expect; 0 after SIGTERM, which schedulers send to free a machine."""
        return 0 if self.signal in (None, signal.SIGTERM) else 128 + self.signal

    def check(self) -> None:
        """Raise Stopped after a request."""
        if self.is_requested:
            raise Stopped

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise Stopped on a request within the block, wherever it is, or for one before: for work of which nothing is kept."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    def __enter__(self) -> StopRequest:
        heard = self.SIGNALS if threading.current_thread() is threading.main_thread() else ()
        numbers = [number for number in heard if (number, signal.getsignal(number)) not in NOHUP]
        self._before = {number: signal.signal(number, self._request) for number in numbers}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for number, handler in self._before.items():
            if self.last and self.is_requested:  # not a function of Python's: it would be lost at the interpreter's end
                handler = signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if next(self._calls):
            is_users = number == signal.SIGINT and LAUNCHED not in os.environ
            if is_users and time.monotonic() - self._since > self.ECHO:
                raise KeyboardInterrupt("nothing was saved since the last checkpoint")
            return
        self.signal, self._since = signal.Signals(number), time.monotonic()
        if number in signals("SIGHUP"):
            drop_closed_terminals()
        again = "; once more to stop without saving" if number == signal.SIGINT and LAUNCHED not in os.environ else ""
        with suppress(OSError, RuntimeError):  # of a closed terminal; of one that is written to at this moment
            print(f"stopping{'' if self._at_once else f' after this step{again}'}", file=sys.stderr, flush=True)
        if self._at_once:
            raise Stopped


def drop_closed_terminals() -> None:
    """Let what is written to a terminal that has been closed go nowhere: it would be an error, and the end of an orderly stop."""
    for number in (1, 2):
        try:
            os.ttyname(number)
        except OSError as error:
            if error.errno == errno.EIO:
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)


class SaveTimer:
    """Timer for saving checkpoints by the clock."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.restart()

    @property
    def due(self) -> bool:
        """True once `minutes` have passed since the last restart."""
        return time.monotonic() - self._since >= 60 * self.minutes

    def restart(self) -> None:
        """Restart the interval."""
        self._since = time.monotonic()
