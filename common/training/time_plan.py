"""The fit of a run to --max-minutes: as many of --epochs as the time has room for, with the whole schedule squeezed into them."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import Any

from common.progress import MINUTE

MEASURING = 0.1  # share of the time in which every epoch adjusts the fit; later it only shrinks, where the time would not suffice
SPARE = 0.02  # share of the time for epochs that take longer than the others
LATE, GRACE = (
    0.1,
    0.5,
)  # share of the time, and minutes, beyond the limit in which an epoch and its validation may still end


@dataclass
class TimePlan:
    """What a run has measured, and the epochs that fit; a checkpoint stores it, so that a resumed run goes on with the same plan.

    Without a time limit all of `asked` are trained, at the intervals that the flags name.
    """

    minutes: float = 0.0  # the time limit for all runs together; 0: none
    epochs: int = 0  # that fit; 0: not known yet
    spent: float = 0.0  # seconds so far
    timed: int = 0  # epochs whose steps were timed; the first of all, which fills caches, only counts while it is alone
    step_seconds: float = 0.0  # of their steps
    report_seconds: float = 0.0  # the longest validation, with what else comes between two epochs

    _asked, _every, _clock = 1, 1, 0.0  # of this process, set by start

    def start(self, minutes: float | None, asked: int, every: int, done: int) -> None:
        """Start the clock of this run: `asked` epochs, `done` of them before, with a validation every so many epochs.

        A time limit other than that of the runs before is fitted anew.
        """
        self._asked, self._every, self._clock = asked, every, time.monotonic()
        if self.minutes != (minutes or 0.0):
            self.minutes, self.epochs = minutes or 0.0, 0
            if self.minutes and self.timed:
                self.epochs = self._fitting(done)

    @property
    def last(self) -> int:
        """The epochs of the whole run."""
        return min(self.epochs, self._asked) if self.minutes and self.epochs else self._asked

    @property
    def squeeze(self) -> float:
        """The share of `asked` that is trained, by which milestones and intervals shrink."""
        return self.last / self._asked

    def interval(self, epochs: int) -> int:
        """Squeeze an interval between validations or checkpoints."""
        return max(1, round(epochs * self.squeeze))

    def end_steps(self, done: int, seconds: float) -> None:
        """Count an epoch whose steps took these seconds, before its validation, and fit the rest; `done` includes it."""
        self._tick()
        if self.timed == 1:
            self.step_seconds = 0.0
        self.timed += 1
        self.step_seconds += seconds
        if not self.minutes:
            return
        fitting = self._fitting(done)
        measuring = self.timed <= 2 or self.spent < MEASURING * MINUTE * self.minutes
        self.epochs = fitting if measuring else min(self.epochs, fitting)

    def end_epoch(self) -> None:
        """Count what came after the steps of an epoch: a validation, a checkpoint."""
        self.report_seconds = max(self.report_seconds, self._tick())

    def time_left(self, done: int) -> float:
        """Estimate the seconds from now to the end of the run, of which `done` epochs are trained."""
        left = self._cost(self.last, done)
        return max(0.0, min(left, MINUTE * self.minutes - self.spent) if self.minutes else left)

    @property
    def over_in(self) -> float:
        """The minutes from now until a run ends in mid-epoch, since not even the epoch under way fits; inf without a limit."""
        if not self.minutes:
            return math.inf
        return (1 + LATE) * self.minutes + GRACE - (self.spent + time.monotonic() - self._clock) / MINUTE

    def stored(self) -> dict[str, Any]:
        """Return the plan for a checkpoint, with the time up to now."""
        return asdict(self) | {"spent": self.spent + time.monotonic() - self._clock}

    def _tick(self) -> float:
        """Count the time since the last call. Returns its seconds."""
        now = time.monotonic()
        seconds = now - self._clock
        self._clock = now
        self.spent += seconds
        return seconds

    def _fitting(self, done: int) -> int:
        """The largest number of epochs, of which `done` are trained, that the time has room for."""
        choices = range(done, self._asked + 1)
        room = (1 - SPARE) * MINUTE * self.minutes - self.spent
        return max(done, done + bisect_right(choices, room, key=lambda epochs: self._cost(epochs, done)) - 1)

    def _cost(self, epochs: int, done: int) -> float:
        """The seconds of a run of so many epochs after `done` of them, whose last one is not validated yet."""
        every = max(1, round(self._every * epochs / self._asked))  # a shorter run validates as often in all
        # Epochs that are multiples of `every`, counted from 0, from the last one trained on, and the very last epoch if it is none.
        reports = (epochs - 1) // every - (max(done, 1) - 2) // every
        if (epochs - 1) % every:
            reports += 1
        counted = self.timed - 1 if self.timed > 1 else 1  # the first one filled caches, and step_seconds leaves it out
        each = self.step_seconds / counted
        return (epochs - done) * each + reports * self.report_seconds
