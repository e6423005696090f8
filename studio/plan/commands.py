"""The command line of train.py for a model of a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from common.quality import MEASURED
from common.training.options import NEEDED
from studio.plan.file import ModelPlan, Plan
from studio.project import Project

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


def sharpen_command(plan: Plan, project: Project, checkpoint: Path, output: Path) -> list[str]:
    """Return the command that sharpens the mels of a checkpoint."""
    command = [sys.executable, "-m", "scripts.sharpen_mels", str(checkpoint), str(project.training_list)]
    values = {
        "output": output,
        "dataset-path": project.root,
        "seed": plan.seed,
        "cpu": plan.cpu or None,
    }
    return [*command, *option_argv(values)]


def option_argv(options: dict[str, Any]) -> list[str]:
    """Turn options into arguments: true is the bare flag, false its --no- form, None nothing, and a list several values."""
    argv: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            argv.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            argv += [f"--{flag}", *map(str, value)] if value else []
        elif value is not None:
            argv += [f"--{flag}", str(value)]
    return argv
