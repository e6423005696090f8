"""Train the models of a project and write its voice: python -m studio.train NAME, after studio.plan.

Trains each model in turn as plan.json says, with a quality report every few epochs. Ctrl-C saves and stops; the same command
resumes. A model's training ends after its epochs, after several reports without a gain, or at its time limit. The result is
PROJECT/voice/.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import math
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from common.checkpoint.files import find_last, load_checkpoint
from common.data.filelist import check_files, read_filelist
from common.errors import DataError, exit_on_user_error, listed, require_posix
from common.files import display_path
from common.options import from_options
from common.progress import HOUR, MINUTE, counted, duration
from common.run.interrupt import Stopped, StopRequest
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from studio.arguments import project_parser
from studio.plan.commands import counts_words, option_argv, sharpen_command, train_argv, train_command
from studio.plan.file import MODELS, ModelPlan, Plan, read_plan
from studio.project import Project, lock_project
from studio.train.process import RunEnding, run_training, wait_for_earlier
from studio.train.progress import LOG, ModelProgress, RunLog, TrainingLines, TrainingProgress, digest
from studio.voice.voice import best_checkpoint, sharpened, write_voice

START = 10.0  # seconds that train.py takes to start, before its own time limit counts


def main(argv: list[str] | None = None) -> int:
    """Train what is left to train, then write the voice. Returns the exit code."""
    require_posix("python -m studio.train")
    project = parse_args(sys.argv[1:] if argv is None else argv)
    plan = read_plan(project.require(project.plan, "studio.plan"))
    check_packages(plan, project)
    with lock_project(project), StopRequest() as stop:
        progress = TrainingProgress(project.progress)
        progress.forget(name for name in MODELS if not find_last(project.run(name), name))
        check_inputs(plan, project, progress)
        for name in [name for name in MODELS if name in plan.models]:
            if not (train_model(name, plan, project, progress, stop) and sharpen(name, plan, project, stop)):
                print(f"stopped: {project.command('studio.train')} resumes it")
                return stop.exit_code
        print("speaking validation lines for the verdict …", flush=True)
        try:
            with stop.at_once():
                verdict = write_voice(project, plan, progress)
        except Stopped:
            print(f"stopped before the verdict: {project.command('studio.train')} speaks the lines again")
            return stop.exit_code
    voice = display_path(project.voice)
    print("\n".join(["", *verdict, ""]))
    print(f"the voice: {voice}\nnext:\n    python inference.py --voice {shlex.quote(voice)} -i phrases/phrase.txt")
    print(f"    {project.command('studio.share')}")
    return 0


def check_packages(plan: Plan, project: Project) -> None:
    """Raise DataError if the plan counts words but the recogniser is not installed."""
    counting = [name for name, settings in plan.models.items() if settings.best_by == "wer"]
    if counting and not counts_words():
        raise DataError(
            f"{project.plan}: models.{counting[0]}.best_by: wer needs the recogniser: `bash scripts/evaluation.sh` installs it, "
            f"or run {project.command('studio.plan')} again for a measure that needs no packages"
        )


def check_inputs(plan: Plan, project: Project, progress: TrainingProgress) -> None:
    """Raise DataError or UsageError for what would end a training later: missing clips and warm starts, unknown options."""
    acoustic = [name for name, spec in MODELS.items() if spec.role == "acoustic"]
    if plan.models.keys().isdisjoint(acoustic):
        raise DataError(f"{project.plan}: models: expected {' or '.join(acoustic)}, without which no voice speaks")
    waiting = [name for name in plan.models if progress.of(name).finished != digest(name, plan, project)]
    for name in waiting:
        settings = plan.models[name]
        own = train_argv(name, replace(plan, models={name: replace(settings, options={})}), project)
        if twice := [key for key in settings.options if f"--{key.replace('_', '-')}" in own]:
            raise DataError(
                f"{project.plan}: models.{name}.options: {listed(twice)}: studio.train sets this; leave it out"
            )
        parse_training_arguments(train_argv(name, plan, project), REGISTRY, "")
        start = settings.warm_start
        if start and not find_last(project.run(name), name):
            load_checkpoint(Path(start))
    for path in (project.training_list, project.validation_list) if waiting else ():
        check_files(read_filelist(path), path, project.root)


def train_model(name: str, plan: Plan, project: Project, progress: TrainingProgress, stop: StopRequest) -> bool:
    """Train a model, or continue, to the end of its plan. Returns False if a signal stopped it after a save."""
    settings, folder = plan.models[name], project.run(name)
    current, state = digest(name, plan, project), progress.of(name)
    if state.finished == current:
        print(f"{name}: nothing to do, its plan is complete ({state.reason}); {how_to_go_on(project)}", flush=True)
        return True
    wait_for_earlier(folder, name)
    progress.begin(name, current)
    if place_of(folder, name).epochs >= settings.epochs:
        done = counted(settings.epochs, "epoch")
        print(f"{name}: nothing to train, {done} done; {how_to_go_on(project)}", flush=True)
        progress.finish(name, current, all_epochs(settings))
        return True
    left = math.inf if settings.hours is None else HOUR * settings.hours - state.spent
    ending = RunEnding.BUDGET
    if left > 0:
        print(f"{name}: trains {describe_budget(settings, state.spent)}", flush=True)
        argv, lines = limited_argv(name, plan, project, state), TrainingLines(name, folder, settings, state)

        def spend(seconds: float) -> None:
            progress.spend(name, seconds)
            lines.update()

        ending = run_training(train_command(argv), plan.threads, max(left, 1.0), stop, spend)
    if ending is RunEnding.STOPPED:
        return False
    reason = reason_of(ending, settings, place_of(folder, name))
    progress.finish(name, current, reason)
    took = describe_time(state.seconds, RunLog.read(folder / LOG).step_seconds)
    print(f"{name}: trained ({reason}); {took}", flush=True)
    return True


def sharpen(name: str, plan: Plan, project: Project, stop: StopRequest) -> bool:
    """Sharpen the mels of a model's best checkpoint, if the plan has minutes for it. Returns False if a signal stopped it."""
    minutes = plan.models[name].sharpen_minutes
    if not minutes or (target := sharpened(project, name, minutes)).exists():
        return True
    print(f"{name}: sharpens its mels, for {duration(MINUTE * minutes)}", flush=True)
    command = sharpen_command(plan, project, best_checkpoint(project, name), target, minutes)
    if run_training(command, plan.threads, math.inf, stop, lambda seconds: None) is RunEnding.STOPPED:
        return False
    for earlier in target.parent.glob("sharpened*"):  # of other weights or minutes
        if earlier.is_file() and not earlier.name.startswith(target.stem):
            earlier.unlink()
    return True


def limited_argv(name: str, plan: Plan, project: Project, state: ModelProgress) -> list[str]:
    """Return the arguments of a training that fits its epochs to the plan's hours; train.py counts those of earlier plans, too."""
    hours, before = plan.models[name].hours, state.seconds - state.spent
    minutes = None if hours is None else max(1.0, before + HOUR * hours - START) / MINUTE
    return [*train_argv(name, plan, project), *option_argv({"max-minutes": minutes})]


class RunPlace(NamedTuple):
    """How far a run is: complete epochs, and reports since the best one."""

    epochs: int
    waited: int


def place_of(folder: Path, name: str) -> RunPlace:
    """Return how far a run's last checkpoint is; (0, 0) without one, or if it is damaged, which train.py reports."""
    path = find_last(folder, name)
    if path is None:
        return RunPlace(0, 0)
    try:
        checkpoint = load_checkpoint(path, resuming=True)
    except DataError:
        return RunPlace(0, 0)
    epochs = int(checkpoint["epoch"]) + bool(checkpoint.get("epoch_complete", True))
    return RunPlace(epochs, checkpoint["best"]["since"])


def all_epochs(settings: ModelPlan) -> str:
    """Name the epochs of a plan, all of which are done."""
    return "its one epoch" if settings.epochs == 1 else f"all {settings.epochs} epochs"


def how_to_go_on(project: Project) -> str:
    """Say how to train on after the end of a plan."""
    again = project.command("studio.plan", "--minutes", "M")
    return f"to train on, raise `epochs`, `hours` or `patience` in {display_path(project.plan)}, or run {again}"


def describe_budget(settings: ModelPlan, spent: float) -> str:
    """Describe the limits of a training: its epochs, and the plan's time with what is spent of it."""
    epochs = f"to epoch {settings.epochs} at most"
    if settings.hours is None:
        return epochs
    before = f", {duration(spent)} of it already spent" if spent else ""
    return f"{epochs}, for {duration(HOUR * settings.hours)} at most with reports{before}"


def describe_time(seconds: float, steps: float) -> str:
    """Describe the time that a model took in all its runs, of which `steps` seconds were optimizer steps."""
    rest = duration(max(0.0, seconds - steps))
    return f"{duration(seconds)} in all: {duration(steps)} of steps, {rest} of starts, reports and checkpoints"


def reason_of(ending: RunEnding, settings: ModelPlan, place: RunPlace) -> str:
    """Say why a training ended."""
    if place.epochs >= settings.epochs:
        return all_epochs(settings)
    if settings.hours is None or (ending is RunEnding.FINISHED and place.waited >= settings.patience):
        return f"no gain in {settings.patience} reports"
    return f"its time limit of {duration(HOUR * settings.hours)}"


def parse_args(argv: list[str]) -> Project:
    """Return the project that the command line names."""
    parser = project_parser("studio.train", __doc__, "project planned by studio.plan")
    return from_options(Project, vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
