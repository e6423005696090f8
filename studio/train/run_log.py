"""The log of a training, read while it grows: losses, epochs, seconds a step."""

from __future__ import annotations

import re
import statistics
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.run.nvlog import NON_FINITE, parse_line

PLACE_NAME = "glob_iter/iters_per_epoch"
PLACE = re.compile(r"(\d+)/(\d+)")  # steps before this one, and steps of an epoch
MEASURE = "evaluation_"
RECENT = 50  # steps from which the time left is estimated


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
