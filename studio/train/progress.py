"""The log of a training, read while it grows, and in words."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.progress import MINUTE, duration
from common.run.nvlog import NON_FINITE, place_of, records
from common.training.checkup import LOGGED_AS
from common.training.options import TrainOptions

LOG = "nvlog.json"  # of a model's run folder
REPORT = "Report of epoch"
EVERY = 60.0  # seconds between lines; a report has its line at once
MEASURE = "evaluation_"
RECENT = 50  # steps from which the time left is estimated
DECIMAL = re.compile(r"\d+\.\d+")  # NvLog writes its own times as texts
PERCENT = 100.0
CAPPED = LOGGED_AS["wer"]
# Measures in the log that readers of the page understand, in the page's order: their words, and a factor for the number.
WORDS: dict[str, tuple[str, float]] = {
    CAPPED: ("wrong words", PERCENT),
    "cer": ("wrong letters", PERCENT),
    "ran_to_limit": ("lines that do not stop", PERCENT),
    "coverage": ("text that attention reads", PERCENT),
    "mos": ("naturalness, 1 to 5", 1),
    "mcd": ("distance from the recordings in dB (MCD)", 1),
    "mel_distance": ("distance of mels from the recordings", 1),
}


@dataclass
class Losses:
    """Losses by the number of optimizer steps; a resumed run repeats its last steps, and replaces them."""

    training: dict[int, float] = field(default_factory=dict)
    validation: dict[int, float] = field(default_factory=dict)


class RunLog:
    """The records of nvlog.json; `update` reads those added since the last call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    @classmethod
    def read(cls, path: Path) -> RunLog:
        """Read all of a log; empty without one."""
        log = cls(path)
        log.update()
        return log

    def _forget(self) -> None:
        self.losses = Losses()
        self.reports: dict[int, dict[str, float]] = {}  # measures and val_loss by epoch
        self.step, self.epoch, self.steps_per_epoch = 0, -1, 0
        self.epochs = 0  # of the run, as it plans them now; 0: not known yet
        self.finished = False  # by itself: no signal stopped it
        self.seconds, self._clock = 0.0, 0.0  # of all runs, without their starts; of the newest
        self.report: tuple[int, dict[str, float]] | None = None  # the newest: its epoch, and its measures
        self.step_seconds = 0.0  # of all steps, including repeated ones
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._file, self._position = (0, 0), 0

    @property
    def seconds_per_step(self) -> float | None:
        """The median of the last steps; None before the first."""
        return statistics.median(self._seconds) if self._seconds else None

    def update(self) -> bool:
        """Read new records, or a new log from its start. Returns True if there were any."""
        try:
            with self.path.open("rb") as file:
                status = self.path.stat()
                if (status.st_dev, status.st_ino) != self._file or status.st_size < self._position:
                    self._forget()
                    self._file = (status.st_dev, status.st_ino)
                file.seek(self._position)
                content = file.read()
        except OSError:
            return False
        complete = content[: content.rfind(b"\n") + 1]
        self._position += len(complete)
        for record in records(complete.decode("utf-8", "replace").split("\n")):
            if record.get("type") == "LOG" and isinstance(record.get("data"), dict):
                self._add(record.get("step"), record["data"], place_of(record))
                self._count(number(record.get("elapsedtime")))
        return bool(complete)

    def _count(self, elapsed: float) -> None:
        """Count the time since the last record; the clock of each run begins at 0."""
        if elapsed >= 0:
            self.seconds += elapsed - self._clock if elapsed >= self._clock else elapsed
            self._clock = elapsed

    def _add(self, step: Any, data: dict[str, Any], place: tuple[int, int] | None) -> None:
        """Add a record of a step [epoch, iteration], of a validation [epoch], or of the end of a run []."""
        if not isinstance(step, list) or not all(type(part) is int for part in step):
            return
        self.finished = not step
        if len(step) == 2 and place and "train_loss" in data:
            self.epoch, self.step, self.steps_per_epoch = step[0], place[0] + 1, place[1]
            self.losses.training[self.step] = number(data["train_loss"])
            if (seconds := number(data.get("train_iter_time"))) > 0:
                self._seconds.append(seconds)
                self.step_seconds += seconds
        elif len(step) == 1:
            if (planned := number(data.get("planned_epochs"))) > 0:
                self.epochs = int(planned)
            measures = {name.removeprefix(MEASURE): number(data[name]) for name in data if name.startswith(MEASURE)}
            if measures:
                self.report = (step[0], dict(measures))
            if "val_loss" in data:
                self.losses.validation[self.step] = measures["val_loss"] = number(data["val_loss"])
            if measures:
                self.reports.setdefault(step[0], {}).update(measures)  # a resumed run repeats the last epochs


def number(value: Any) -> float:
    """Return a number of a record as a float; nan for anything else."""
    if isinstance(value, str):
        return float(value) if value in NON_FINITE or DECIMAL.fullmatch(value) else float("nan")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")


class TrainingLines:
    """Prints how far a model's training is, at most once a minute, and each report."""

    def __init__(self, name: str, options: TrainOptions) -> None:
        self._name, self._options = name, options
        self.log = RunLog.read(options.run.output / LOG)
        self._report, self._step, self._printed = self.log.report, self.log.step, time.monotonic()

    def update(self) -> None:
        """Read the log, and print a line if it is time."""
        self.log.update()
        is_new = self.log.report != self._report
        is_time = time.monotonic() - self._printed >= EVERY and self.log.step != self._step
        if not (is_new or is_time) or not self.log.step:
            return
        self._printed, self._report, self._step = time.monotonic(), self.log.report, self.log.step
        first, *others = describe(self._name, self.log, self._options).splitlines()
        print(" ".join([first, *(line for line in others if is_new or not line.startswith(REPORT))]), flush=True)


def describe(name: str, log: RunLog, options: TrainOptions | None) -> str:
    """Describe a training: step, epoch, loss, time left, and the newest report."""
    if not log.step:
        return f"{name}: no step yet."
    limit = options.run.max_minutes if options else None
    epochs = log.epochs or (options.run.epochs if options else 0)
    total = epochs * log.steps_per_epoch
    most = "at most " if limit and not log.epochs else ""  # train.py fits them to the time
    steps = f"step {log.step:,}" + (f" of {most}{total:,}" if total else "")
    lines = [f"{name}: {steps}, epoch {log.epoch + 1}" + (f" of {most}{epochs}" if epochs else "")]
    lines[0] += f", loss {log.losses.training[log.step]:.4f}."
    if log.finished and options:
        lines.append(f"Finished: {reason_of(log, options)}.")
    elif log.seconds_per_step and total:
        left = max(0, total - log.step) * log.seconds_per_step
        left = min(left, max(0.0, MINUTE * limit - log.seconds)) if limit else left
        lines.append(f"{log.seconds_per_step:.2f} s a step, about {duration(left)} left at most.")
    if log.report and (words := describe_measures(log.report[1])):
        lines.append(f"{REPORT} {log.report[0] + 1}: {words}.")
    return "\n".join(lines)


def reason_of(log: RunLog, options: TrainOptions) -> str:
    """Say why a training ended by itself."""
    run, done = options.run, log.epoch + 1
    if done >= run.epochs:
        return "its one epoch" if run.epochs == 1 else f"all {run.epochs} epochs"
    whole = log.step == done * log.steps_per_epoch
    if run.max_minutes and (done >= log.epochs or not whole):
        return f"its time limit of {duration(MINUTE * run.max_minutes)}"
    return f"no gain in {run.early_stop_patience} reports"


def describe_measures(values: Mapping[str, float]) -> str:
    """Describe the known measures of a report."""
    parts = []
    for name, (words, factor) in WORDS.items():
        value = values.get(name, math.nan)
        if not math.isnan(value):
            unit = " %" if factor == PERCENT else ""
            parts.append(f"{words} {factor * value:.3g}{unit}")
    return ", ".join(parts)
