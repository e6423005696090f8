"""The log file and the TensorBoard folder that a training run writes to.

Several runs may share one --output. Each run has a log of its own, and OUTPUT/nvlog.json is the log of the newest run:

- A fresh run renames an older nvlog.json to nvlog_1.json, or to nvlog_2.json and so on: the first free number.
- A resumed run continues its own log. If that is nvlog_1.json, the two swap names.
- TensorBoard has one folder a model, OUTPUT/tensorboard/MODEL. A fresh run of the same model renames it to MODEL_1 and so on.

A log belongs to the model that its first PARAMETER record `model_name` names. A log without one belongs to no model and is moved
aside. Of several logs of a model, a resumed run continues the newest that has its checkpoint's last step, or else the newest.
Files are renamed one after the other. A process killed in between loses none, and the next run finds its own log.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from common.errors import DataError
from common.files import move_aside
from common.run.nvlog import PARAMETER, PREFIX, parse_line


class Head(NamedTuple):
    """The first records of a log: the time its run began, and its model; empty strings where there are none."""

    began: str  # seconds since 1970, in as many digits in every log
    model_name: str


def prepare(path: Path, tensorboard: Path, model_name: str, steps_done: int) -> str:
    """Make `path` the file, and `tensorboard` the folder, that this run may append to. Returns a sentence on the renames.

    steps_done is the checkpoint's number of optimizer steps for a run that resumes in this folder, 0 for a fresh run.
    Raises DataError where the system refuses a rename.
    """
    logs = find_logs(path, model_name) if steps_done else []
    own = next((log for log in logs if holds_step(log, steps_done)), next(iter(logs), None))
    renames = []
    try:
        if own != path:
            renames.append((path, move_aside(path)))
        if own and own != path:
            own.rename(path)
            renames.append((own, path))
        if not steps_done or (own and own != logs[0]):  # the folder belongs to the model's newest log
            renames.append((tensorboard, move_aside(tensorboard)))
    except OSError as error:
        message = f"cannot move an older log aside ({error.strerror}); choose another --output"
        raise DataError(f"{path}: {message}") from error
    moved = ", ".join(f"{before} is now {after}" for before, after in renames if after)
    return f"older logs: {moved}" if moved else ""


def find_logs(path: Path, model_name: str) -> list[Path]:
    """List the logs of a model: `path` and those moved aside from it; the newest run's first."""
    aside = re.compile(rf"{re.escape(path.stem)}_\d+{re.escape(path.suffix)}")
    files = [path, *(file for file in path.parent.glob("*") if aside.fullmatch(file.name))]
    heads = [(read_head(file), file) for file in files if file.is_file()]
    own = [(head.began, file) for head, file in heads if head.model_name == model_name]
    return [file for _, file in sorted(own, reverse=True)]


def read_head(path: Path) -> Head:
    """Read a log up to the record that names its model; ends at the first line that is no record."""
    began = None
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            record = parse_line(line)
            if not record:
                break
            began = str(record.get("timestamp", "")) if began is None else began
            data = record.get("data")
            if record.get("step") == PARAMETER and isinstance(data, dict) and "model_name" in data:
                return Head(began, str(data["model_name"]))
    return Head(began or "", "")


def holds_step(path: Path, steps_done: int) -> bool:
    """Return True if a log has the record of the optimizer step with this number, counted from 1."""
    record = re.compile(rb'"glob_iter/iters_per_epoch": "%d/' % (steps_done - 1))
    with path.open("rb") as file:
        return any(line.startswith(PREFIX.encode()) and record.search(line) for line in file)
