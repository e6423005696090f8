"""A training in words: for the page, and as lines that studio.train prints while it runs."""

from __future__ import annotations

import time
from pathlib import Path

from common.progress import HOUR, duration
from studio.plan.file import ModelPlan
from studio.train.progress import ModelProgress
from studio.train.run_log import RunLog
from studio.voice.card import describe_measures

LOG = "nvlog.json"  # of a model's run folder
REPORT = "Report of epoch"
EVERY = 60.0  # seconds between lines; a report has its line at once


class TrainingLines:
    """Prints how far a model's training is, at most once a minute, and each report."""

    def __init__(self, name: str, folder: Path, settings: ModelPlan, progress: ModelProgress) -> None:
        self._name, self._settings, self._progress = name, settings, progress
        self._log = RunLog(folder / LOG)
        self._log.update()
        self._report, self._step, self._printed = self._log.report, self._log.step, time.monotonic()

    def update(self) -> None:
        """Read the log, and print a line if it is time."""
        self._log.update()
        is_new = self._log.report != self._report
        is_time = time.monotonic() - self._printed >= EVERY and self._log.step != self._step
        if not (is_new or is_time) or not self._log.step:
            return
        self._printed, self._report, self._step = time.monotonic(), self._log.report, self._log.step
        first, *others = describe(self._name, self._log, self._settings, self._progress).splitlines()
        print(" ".join([first, *(line for line in others if is_new or not line.startswith(REPORT))]), flush=True)


def describe(name: str, log: RunLog, settings: ModelPlan | None, progress: ModelProgress) -> str:
    """Describe a training: step, epoch, loss, time left, and the newest report."""
    if not log.step:
        return f"{name}: no step yet."
    epochs = settings.epochs if settings else 0
    total = epochs * log.steps_per_epoch
    steps = f"step {log.step:,}" + (f" of {total:,}" if total else "")
    lines = [f"{name}: {steps}, epoch {log.epoch + 1}" + (f" of {epochs}" if epochs else "")]
    lines[0] += f", loss {log.losses.training[log.step]:.4f}."
    if progress.finished:
        lines.append(f"Finished: {progress.reason}.")
    elif log.seconds_per_step and total:
        left = seconds_left(total - log.step, log.seconds_per_step, settings, progress)
        lines.append(f"{log.seconds_per_step:.2f} s a step, about {duration(left)} left at most.")
    if log.report and (words := describe_measures(log.report[1])):
        lines.append(f"{REPORT} {log.report[0] + 1}: {words}.")
    return "\n".join(lines)


def seconds_left(steps: int, seconds: float, settings: ModelPlan | None, progress: ModelProgress) -> float:
    """Return the seconds that the remaining steps take, or those left of the plan's hours if they are fewer."""
    left = max(0, steps) * seconds
    if settings and settings.hours is not None:
        left = min(left, max(0.0, HOUR * settings.hours - progress.spent))
    return left
