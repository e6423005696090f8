"""A project's training on the page: progress in words, losses, and the newest pictures and sounds."""

from __future__ import annotations

import io
import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from common.data.filelist import read_filelist
from common.data.pictures import figure_pixels, plot_losses, read_png
from common.errors import DataError
from common.training.checkup import spread
from studio.plan.file import MODELS, settings_of
from studio.project import Project, check_inside
from studio.train.progress import ModelProgress, TrainingProgress
from studio.train.run_log import RunLog
from studio.voice.lines import LOG, describe

TENSORBOARD = "tensorboard"  # of a model's run folder
CURVE_SECONDS = 10.0  # between updates of the curve
SIZES = {"images": 1, "audio": 1, "scalars": 1, "histograms": 1, "tensors": 1, "compressedHistograms": 1}
MEL, ALIGNMENT = ("free_running_mel_0", "mel"), ("free_running_alignment_0", "alignment")  # in order of preference
EVALUATION = "evaluation/"


class Picture(NamedTuple):
    """Pixels (height, width, 3) of a validation at an optimizer step."""

    pixels: npt.NDArray[np.uint8]
    step: int


class SpokenLine(NamedTuple):
    """A line synthesised by an evaluation at an optimizer step: rate in Hz, samples (N,) and the text."""

    rate: int
    samples: npt.NDArray[np.int16]
    text: str
    step: int


class RunPictures:
    """The event files of a model's run; `update` reads the events added since the last call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events: Any = None
        self._inode = 0

    def update(self) -> bool:
        """Read new events. Returns False if there are no event files yet."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second

        try:
            inode = self.folder.stat().st_ino
        except OSError:
            self._events = None
            return False
        if self._events is None or inode != self._inode:
            self._events, self._inode = EventAccumulator(str(self.folder), size_guidance=SIZES), inode
        self._events.Reload()
        return True

    def picture(self, names: tuple[str, ...]) -> Picture | None:
        """Return the newest picture of the first name found among the validations; None if there is none."""
        tags = self._events.Tags()["images"] if self._events else []
        for name in names:
            if (tag := f"validation/{name}") in tags:
                event = self._events.Images(tag)[-1]
                return Picture(read_png(event.encoded_image_string), event.step)
        return None

    def speeches(self, texts: list[str]) -> list[SpokenLine]:
        """Return the newest sound of each line of an evaluation; `texts` are the lines."""
        tags = [tag for tag in (self._events.Tags()["audio"] if self._events else []) if tag.startswith(EVALUATION)]
        found = []
        for tag in sorted(tags, key=lambda tag: int(tag.removeprefix(EVALUATION))):
            event, index = self._events.Audio(tag)[-1], int(tag.removeprefix(EVALUATION))
            samples, rate = soundfile.read(io.BytesIO(event.encoded_audio_string), dtype="int16")
            found.append(SpokenLine(rate, samples, texts[index] if index < len(texts) else "", event.step))
        return found


def evaluation_texts(project: Project, lines: int) -> list[str]:
    """Return the texts of an evaluation's lines; [] if the filelist cannot be read."""
    try:
        return [row.text for row in spread(read_filelist(project.validation_list), lines)]
    except DataError:
        return []


class Keys(NamedTuple):
    """Keys of the curve and the report on a page."""

    curve: str = ""
    report: str = ""


NOTHING_SEEN = Keys()


@dataclass
class RunView:
    """The readers of a run, and the step and time of the newest curve."""

    log: RunLog
    pictures: RunPictures
    curve_step: int = 0
    curve_time: float = -math.inf

    def curve_key(self) -> str:
        """Return text that changes with new losses, but at most every CURVE_SECONDS for training losses."""
        if self.log.step < self.curve_step or time.monotonic() - self.curve_time >= CURVE_SECONDS:
            self.curve_step, self.curve_time = self.log.step, time.monotonic()
        return f"{self.log.path} {self.curve_step} {len(self.log.losses.validation)}"

    def report_key(self, progress: ModelProgress) -> str:
        """Return text that changes with each validation and report, and at the end."""
        return f"{self.log.path} {len(self.log.losses.validation)} {self.log.report} {progress.finished}"


class ReportView(NamedTuple):
    """The newest pictures and sounds of a training."""

    alignment: Picture | None = None
    mel: Picture | None = None
    speeches: tuple[SpokenLine, ...] = ()


class Sight(NamedTuple):
    """A model's training at a moment; `losses` and `report` are None if the page shows them already."""

    keys: Keys
    words: str
    losses: npt.NDArray[np.uint8] | None
    report: ReportView | None


class TrainingView:
    """Readers of the runs of all projects, shared by all pages."""

    def __init__(self) -> None:
        self._views: dict[Path, RunView] = {}
        self._lock = threading.Lock()

    def look(self, project: Project, name: str, seen: Keys = NOTHING_SEEN) -> Sight:
        """Read the run of a model; pictures whose keys are in `seen` are left out."""
        with self._lock:
            folder = check_inside(project, project.run(name))
            new = RunView(RunLog(folder / LOG), RunPictures(folder / TENSORBOARD / name))
            view = self._views.setdefault(folder, new)
            view.log.update()
            log, settings, progress = view.log, settings_of(project.plan, name), progress_of(project, name)
            keys = Keys(view.curve_key(), view.report_key(progress))
            curve = report = None
            if log.step and keys.curve != seen.curve:
                curve = figure_pixels(plot_losses(log.losses.training, log.losses.validation, f"{name}: loss"))
            if keys.report != seen.report:
                view.pictures.update()
                texts = evaluation_texts(project, settings.report_lines) if settings else []
                speeches = tuple(view.pictures.speeches(texts))
                report = ReportView(view.pictures.picture(ALIGNMENT), view.pictures.picture(MEL), speeches)
            return Sight(keys, describe(name, log, settings, progress), curve, report)


def newest_model(project: Project) -> str:
    """Return the model that was trained last, or the first if none was."""
    times = {name: _time_of_change(project.run(name) / LOG) for name in MODELS}
    return max(times, key=lambda name: times[name])


def _time_of_change(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def progress_of(project: Project, name: str) -> ModelProgress:
    """Return a model's progress; empty if the file cannot be read."""
    try:
        return TrainingProgress(project.progress).of(name)
    except DataError:
        return ModelProgress()


def studio_train_argv(project: Project) -> list[str]:
    """Return the arguments of `studio.train`. Raises DataError without a plan."""
    project.require(project.plan, "studio.plan")
    return ["studio.train", project.name, "--projects", str(project.projects)]
