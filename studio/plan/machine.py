"""The training machine: memory and time of steps as train.py measures them, threads, and installed packages."""

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

from common.errors import DataError
from common.run.child import end_with
from common.system import IS_POSIX, usable_cores
from studio.project import ROOT

WORDS = ("moonshine_onnx", "jiwer")  # packages that count wrong words
THREADS = "OMP_NUM_THREADS"


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
