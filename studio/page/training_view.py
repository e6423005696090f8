"""The training of a project, as a page shows it: progress in words, losses, and the newest pictures and sounds."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.data.pictures import figure_pixels, plot_losses
from common.errors import DataError
from models import REGISTRY
from studio.page.run_pictures import ALIGNMENT, MEL, Picture, RunPictures, Speech, evaluation_texts
from studio.plan.file import ModelPlan, read_plan
from studio.project import Project, check_inside
from studio.train.progress import ModelProgress, Progress
from studio.train.run_log import RunLog
from studio.voice.measures import describe_measures
from studio.wording import HOUR, duration

LOG, TENSORBOARD = "nvlog.json", "tensorboard"  # of a model's run folder
CURVE_SECONDS = 10.0  # between two curves while steps go on


class Keys(NamedTuple):
    """Keys of the curve and of the report that a page shows."""

    curve: str = ""
    report: str = ""


NOTHING_SEEN = Keys()


@dataclass
class RunView:
    """The readers of one model's run, and the step of the newest curve with its time."""

    log: RunLog
    pictures: RunPictures
    curve_step: int = 0
    curve_time: float = -math.inf

    def curve_key(self) -> str:
        """Return text that changes with new losses, but at most every CURVE_SECONDS while steps go on."""
        if self.log.step < self.curve_step or time.monotonic() - self.curve_time >= CURVE_SECONDS:
            self.curve_step, self.curve_time = self.log.step, time.monotonic()
        return f"{self.log.path} {self.curve_step} {len(self.log.losses.validation)}"

    def report_key(self, progress: ModelProgress) -> str:
        """Return text that changes when a validation or a report has come, and at the end."""
        return f"{self.log.path} {len(self.log.losses.validation)} {self.log.report} {progress.finished}"


class Report(NamedTuple):
    """The newest pictures and sounds of a training."""

    alignment: Picture | None = None
    mel: Picture | None = None
    speeches: tuple[Speech, ...] = ()


class Sight(NamedTuple):
    """A model's training at a moment: its progress in words. losses and report: None where the page shows them already."""

    keys: Keys
    words: str
    losses: npt.NDArray[np.uint8] | None
    report: Report | None


class TrainingView:
    """Readers of the runs of all projects, for several pages at once."""

    def __init__(self) -> None:
        self._views: dict[Path, RunView] = {}
        self._lock = threading.Lock()

    def look(self, project: Project, name: str, seen: Keys = NOTHING_SEEN) -> Sight:
        """Read the run of a model; pictures whose keys are `seen` already are left out."""
        with self._lock:
            folder = check_inside(project, project.run(name))
            new = RunView(RunLog(folder / LOG), RunPictures(folder / TENSORBOARD / name))
            view = self._views.setdefault(folder, new)
            view.log.update()
            log, settings, progress = view.log, settings_of(project, name), progress_of(project, name)
            keys = Keys(view.curve_key(), view.report_key(progress))
            curve = report = None
            if log.step and keys.curve != seen.curve:
                curve = figure_pixels(plot_losses(log.losses.training, log.losses.validation, f"{name}: loss"))
            if keys.report != seen.report:
                view.pictures.update()
                texts = evaluation_texts(project, settings.report_lines) if settings else []
                speeches = tuple(view.pictures.speeches(texts))
                report = Report(view.pictures.picture(ALIGNMENT), view.pictures.picture(MEL), speeches)
            return Sight(keys, describe(name, log, settings, progress), curve, report)


def newest_model(project: Project) -> str:
    """Return the model that was trained last; the first one where none was."""
    times = {name: _time_of_change(project.run(name) / LOG) for name in REGISTRY}
    return max(times, key=lambda name: times[name])


def _time_of_change(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def settings_of(project: Project, name: str) -> ModelPlan | None:
    """Return a model's settings; None without a plan that can be read."""
    try:
        return read_plan(project.plan).models.get(name)
    except DataError:
        return None


def progress_of(project: Project, name: str) -> ModelProgress:
    """Return the time spent and the end of a model's training; empty where the file cannot be read."""
    try:
        return Progress(project.root / "runs" / "progress.json").of(name)
    except DataError:
        return ModelProgress()


def describe(name: str, log: RunLog, settings: ModelPlan | None, progress: ModelProgress) -> str:
    """Describe a model's progress: step, epoch, loss, time left, and the newest report."""
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
        lines.append(f"Report of epoch {log.report[0] + 1}: {words}.")
    return "\n".join(lines)


def seconds_left(steps: int, seconds: float, settings: ModelPlan | None, progress: ModelProgress) -> float:
    """Return the seconds of the steps that are left, or those of the plan's hours where they are fewer."""
    left = max(0, steps) * seconds
    if settings and settings.hours is not None:
        left = min(left, max(0.0, HOUR * settings.hours - progress.spent))
    return left


def train_words(project: Project) -> list[str]:
    """Return the words of `studio.train`. Raises DataError without a plan."""
    project.require(project.plan, "studio.plan")
    return ["studio.train", project.name, "--projects", str(project.projects)]
