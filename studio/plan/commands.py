"""train.py for a model of a plan: its command line, its environment, and what it measures on this machine; packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.arguments import option_argv
from common.errors import DataError
from common.quality import MEASURED
from common.run.child import end_with
from common.system import IS_POSIX, usable_cores
from common.training.options import NEEDED
from studio.plan.file import ModelPlan, Plan
from studio.project import ROOT, Project

WORDS = ("moonshine_onnx", "jiwer")  # packages that count wrong words
THREADS = "OMP_NUM_THREADS"
CHECKPOINT_MINUTES = 5
KEPT = 2  # checkpoints beside the best
SLACK = 0.1  # of validation loss: the first checkpoints of a warm start read best, but still have the old voice


def data_argv(name: str, plan: Plan, project: Project) -> list[str]:
    """Return the arguments that name the model, its data, its warm start and its options."""
    settings = plan.models[name]
    argv = ["-m", name, "-d", str(project.root)]
    lists = {"training": project.training_list, "validation": project.validation_list}
    for part, path in lists.items():
        argv += [f"--{part}-files", str(path)]
    if settings.warm_start:
        argv += ["--warm-start", settings.warm_start]
    return [*argv, "--seed", str(plan.seed), *(["--cpu"] if plan.cpu else []), *option_argv(settings.options)]


def train_argv(name: str, plan: Plan, project: Project) -> list[str]:
    """Return all arguments of a model's training; the same ones start a run and resume it."""
    settings = plan.models[name]
    values: dict[str, Any] = {
        "output": project.run(name),
        "batch-size": settings.batch_size,
        "grad-accumulation-steps": settings.grad_accumulation_steps,
        "epochs": settings.epochs,
        "learning-rate": settings.learning_rate,
        "lr-schedule": settings.lr_schedule,
        "warmup-steps": settings.warmup_steps,
        "epochs-per-validation": settings.report_every,
        "evaluate-every": settings.report_every,
        **report_options(settings),
        "best-by": settings.best_by,
        "best-slack": None if settings.best_by == "loss" else SLACK,
        "early-stop-patience": settings.patience,
        "epochs-per-checkpoint": settings.report_every,
        "checkpoint-every-minutes": CHECKPOINT_MINUTES,
        "keep-checkpoints": KEPT,
        "resume-from-last": True,
    }
    return [*data_argv(name, plan, project), *option_argv(values)]


def report_options(settings: ModelPlan) -> dict[str, Any]:
    """Return the options of the reports: their lines, and the measures to leave out, all but the one that selects."""
    without = [measure for measure in MEASURED if measure != NEEDED.get(settings.best_by)]
    return {"evaluate-lines": settings.report_lines, "evaluate-without": without}


def sharpen_command(plan: Plan, project: Project, checkpoint: Path, output: Path, minutes: float) -> list[str]:
    """Return the command that sharpens the mels of a checkpoint."""
    command = [sys.executable, "-m", "scripts.sharpen_mels", str(checkpoint), str(project.training_list)]
    values = {
        "output": output,
        "minutes": minutes,
        "dataset-path": project.root,
        "seed": plan.seed,
        "cpu": plan.cpu or None,
    }
    return [*command, *option_argv(values)]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Measurements of one model's training on this machine; bytes and seconds."""

    model: str
    parameters: int
    device: str
    clips: int
    batch_size: int
    clips_per_step: int
    steps_per_epoch: int
    always: int  # bytes used without any clip
    clip: int  # bytes of the longest clip
    available: int
    step_seconds: list[float]  # of ten steps; empty if the batch does not fit
    first_seconds: float = 0.0  # what the first epoch takes beyond the others
    validation_seconds: float = 0.0  # the part of a report that does not depend on its lines
    report_seconds: float = 0.0  # a validation with its quality report
    start_seconds: float = 0.0  # from process start to the first step


def measure(argv: Sequence[str], threads: int) -> Figures:
    """Run train.py --dry-run --measure with these arguments. Raises DataError with train.py's message if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        began = time.time()
        run_train([*argv, "--dry-run", "--measure", str(path)], threads, "measuring")
        values = json.loads(path.read_text())
    values["start_seconds"] = max(0.0, values["began"] - began)
    return Figures(**{field.name: values[field.name] for field in fields(Figures)})


def run_train(argv: Sequence[str], threads: int, task: str) -> None:
    """Run train.py to its end. Raises DataError with its message if the task fails."""
    command, variables = train_command(argv), environment(threads)
    ends = partial(end_with, os.getpid()) if IS_POSIX else None
    done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace", preexec_fn=ends)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        start = next((number for number, line in enumerate(lines) if line.startswith("error: ")), len(lines) - 1)
        raise DataError(f"{task} failed: {chr(10).join(lines[start:]).removeprefix('error: ')}")


def train_command(argv: Sequence[str]) -> list[str]:
    """Return the command line of train.py."""
    return [sys.executable, str(ROOT / "train.py"), *argv]


def environment(threads: int) -> Mapping[str, str]:
    """Return the environment of train.py, with a fixed number of threads: with another a resumed run may round differently."""
    return {**os.environ, THREADS: str(threads)}


def usable_threads() -> int:
    """Return OMP_NUM_THREADS if it is set, else the number of cores this process may use."""
    named = os.environ.get(THREADS, "")
    return int(named) if named.isdecimal() and int(named) else len(usable_cores())


def counts_words() -> bool:
    """Return True if the recogniser of requirements/eval.txt is installed."""
    return all(find_spec(name) is not None for name in WORDS)
