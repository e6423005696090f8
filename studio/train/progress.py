"""The progress of a training: PROJECT/runs/progress.json, with seconds spent and plans finished; its log; and both in words."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.files import parse_json, write_text
from common.progress import HOUR, duration
from common.run.nvlog import NON_FINITE, parse_line
from common.training.checkup import LOGGED_AS
from studio.plan.commands import train_argv
from studio.plan.file import ModelPlan, Plan
from studio.project import Project

LOG = "nvlog.json"  # of a model's run folder
REPORT = "Report of epoch"
EVERY = 60.0  # seconds between lines; a report has its line at once
PLACE_NAME = "glob_iter/iters_per_epoch"
PLACE = re.compile(r"(\d+)/(\d+)")  # steps before this one, and steps of an epoch
MEASURE = "evaluation_"
RECENT = 50  # steps from which the time left is estimated
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
class ModelProgress:
    """Time spent on a model."""

    seconds: float = 0.0  # under all plans
    plan: str = ""  # digest of the newest plan
    spent: float = 0.0  # seconds under it
    finished: str = ""  # digest of the plan that is complete
    reason: str = ""  # why it ended

    def __post_init__(self) -> None:
        self.seconds, self.spent = float(self.seconds), float(self.spent)


class TrainingProgress:
    """The progress of all models, written on each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.models: dict[str, ModelProgress] = {}
        try:
            self.models = {name: ModelProgress(**value) for name, value in parse_json(path.read_bytes()).items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: cannot be read ({error}); delete it to forget the time spent") from None

    def of(self, name: str) -> ModelProgress:
        """Return a model's progress."""
        return self.models.setdefault(name, ModelProgress())

    def forget(self, names: Iterable[str]) -> None:
        """Forget the time spent on models and their finished plans, as for those whose checkpoints were deleted."""
        for name in names:
            self.models.pop(name, None)

    def begin(self, name: str, plan: str) -> None:
        """Record the digest of a model's plan. A changed plan has all its hours again."""
        model = self.of(name)
        if model.plan != plan:
            model.plan, model.spent, model.finished, model.reason = plan, 0.0, "", ""

    def spend(self, name: str, seconds: float) -> None:
        """Add seconds of training under the current plan."""
        self.of(name).seconds += seconds
        self.of(name).spent += seconds
        self._write()

    def finish(self, name: str, plan: str, reason: str) -> None:
        """Record the end of a model's plan."""
        self.of(name).finished, self.of(name).reason = plan, reason
        self._write()

    def _write(self) -> None:
        write_text(self.path, json.dumps({name: asdict(value) for name, value in self.models.items()}, indent=1))


def digest(name: str, plan: Plan, project: Project) -> str:
    """Digest what decides a model's training: its settings and the filelists.

    The project's folder is left out of paths, since the page and a terminal spell it differently.
    """
    root = str(project.root)
    argv = [item.replace(root, "", 1) if item.startswith(root) else item for item in train_argv(name, plan, project)]
    paths = (project.training_list, project.validation_list)
    lists = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
    settings = [argv, plan.models[name].hours, lists]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()


# --- the log of a training, read while it grows: losses, epochs, seconds a step ---


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
        for line in complete.decode("utf-8", "replace").split("\n"):
            record = parse_line(line)
            if record and record.get("type") == "LOG" and isinstance(record.get("data"), dict):
                self._add(record.get("step"), record["data"])
        return bool(complete)

    def _add(self, step: Any, data: dict[str, Any]) -> None:
        """Add a record of a step [epoch, iteration], or of a validation [epoch]."""
        if not isinstance(step, list) or not all(type(part) is int for part in step):
            return
        place = PLACE.fullmatch(str(data.get(PLACE_NAME, "")))
        if len(step) == 2 and place and "train_loss" in data:
            self.epoch, self.step, self.steps_per_epoch = step[0], int(place[1]) + 1, int(place[2])
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
        return float(value) if value in NON_FINITE else float("nan")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")


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
    epochs = log.epochs or (settings.epochs if settings else 0)
    total = epochs * log.steps_per_epoch
    most = (
        "at most " if settings and settings.hours is not None and not log.epochs else ""
    )  # train.py fits them to the time
    steps = f"step {log.step:,}" + (f" of {most}{total:,}" if total else "")
    lines = [f"{name}: {steps}, epoch {log.epoch + 1}" + (f" of {most}{epochs}" if epochs else "")]
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


def describe_measures(values: Mapping[str, float]) -> str:
    """Describe the known measures of a report."""
    parts = []
    for name, (words, factor) in WORDS.items():
        value = values.get(name, math.nan)
        if not math.isnan(value):
            unit = " %" if factor == PERCENT else ""
            parts.append(f"{words} {factor * value:.3g}{unit}")
    return ", ".join(parts)
