"""train.py for a model of a plan: its command line, its environment, and what it measures on this machine; packages."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from common.arguments import option_argv
from common.errors import DataError
from common.run.child import end_with
from common.system import IS_POSIX, usable_cores
from common.training.time_plan import TimePlan
from studio.plan.file import Group, Plan, write_plan
from studio.project import ROOT, Project

THREADS = "OMP_NUM_THREADS"


def train_command(name: str, plan: Path, *argv: str) -> list[str]:
    """Return the command line of train.py for a model of a plan; the same one starts a run and resumes it."""
    return [sys.executable, str(ROOT / "train.py"), "-m", name, "--config-file", str(plan), *argv]


def sharpen_command(name: str, plan: Plan, project: Project, checkpoint: Path, output: Path) -> list[str]:
    """Return the command that sharpens the mels of a checkpoint."""
    run = plan.models[name].run
    values = {
        "output": output,
        "minutes": plan.studio.sharpen_minutes,
        "dataset-path": project.root,
        "seed": run.seed,
        "cpu": run.cpu or None,
    }
    command = [sys.executable, "-m", "scripts.sharpen_mels", str(checkpoint), str(project.training_list)]
    return [*command, *option_argv(values)]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Measurements of one model's training on this machine; bytes and seconds."""

    model: str
    parameters: int
    device: str
    clips: int
    steps_per_epoch: int
    always: int  # bytes used without any clip
    clip: int  # bytes of the longest clip
    available: int
    step_seconds: list[float]  # of ten steps; empty if the batch does not fit
    first_seconds: float = 0.0  # what the first epoch takes beyond the others
    validation_seconds: float = 0.0  # the part of a report that does not depend on its lines
    report_seconds: float = 0.0  # a validation with its quality report
    start_seconds: float = 0.0  # from process start to the first step

    def expect(self, epochs: int, every: int, minutes: float | None = None) -> TimePlan:
        """Forecast a run with a validation every so many epochs as train.py does. Raises DataError if no step was measured."""
        if not self.step_seconds:
            raise DataError(f"{self.model}: no step was measured, because the batch does not fit into memory")
        seconds = self.steps_per_epoch * statistics.median(self.step_seconds)
        plan = TimePlan(spent=self.first_seconds, timed=1, step_seconds=seconds, report_seconds=self.report_seconds)
        plan.start(minutes, epochs, every, done=0)
        return plan

    def seconds(self, epochs: int, every: int, minutes: float | None = None) -> float:
        """Estimate the time of a run, with its start."""
        return self.start_seconds + self.first_seconds + self.expect(epochs, every, minutes).time_left(done=0)

    def with_lines(self, measured: int, lines: int) -> Figures:
        """Return the figures for reports of other lines than the measured ones."""
        speaking = self.report_seconds - self.validation_seconds
        return replace(self, report_seconds=self.validation_seconds + speaking * lines / measured)


def measure(name: str, groups: dict[str, Group], threads: int) -> Figures:
    """Run train.py --dry-run --measure with the flags of a plan. Raises DataError with train.py's message if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        began = time.time()
        run_train(name, groups, threads, "--dry-run", "--measure", str(path))
        values = json.loads(path.read_text())
    values["start_seconds"] = max(0.0, values["began"] - began)
    return Figures(**{field.name: values[field.name] for field in fields(Figures)})


def run_train(name: str, groups: dict[str, Group], threads: int, task: str, *argv: str) -> None:
    """Run train.py with the flags of a plan to the end of a task, such as --find-lr. Raises DataError with its message."""
    ends = partial(end_with, os.getpid()) if IS_POSIX else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan.json")
        write_plan(path, groups)
        command, variables = train_command(name, path, task, *argv), environment(threads)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace", preexec_fn=ends)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        start = next((number for number, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1)
        raise DataError(f"{task} failed: {chr(10).join(lines[start:]).removeprefix('error: ')}")


def environment(threads: int) -> Mapping[str, str]:
    """Return the environment of train.py, with a fixed number of threads: with another a resumed run may round differently."""
    return {**os.environ, THREADS: str(threads)}


def usable_threads() -> int:
    """Return OMP_NUM_THREADS if it is set, else the number of cores this process may use."""
    named = os.environ.get(THREADS, "")
    return int(named) if named.isdecimal() and int(named) else len(usable_cores())
