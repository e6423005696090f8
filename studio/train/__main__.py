"""Train the models of a project and write its voice: python -m studio.train NAME, after studio.plan.

Trains each model in turn as plan.json says, with a quality report every few epochs. Ctrl-C saves and stops; the same command
resumes. A model's training ends after its epochs, after several reports without a gain, or at its time limit. The result is
PROJECT/voice/.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import sys

from common.checkpoint.files import find_last, load_checkpoint
from common.data.filelist import check_files, read_filelist
from common.errors import DataError, exit_on_user_error, require_posix
from common.files import display_path
from common.options import from_options
from common.progress import MINUTE, duration
from common.run.interrupt import Stopped, StopRequest
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from studio.arguments import project_parser
from studio.plan.commands import sharpen_command, train_command
from studio.plan.file import MODELS, Plan, read_plan
from studio.project import Project, lock_project, recogniser_of, speaking_command
from studio.train.process import run_training, wait_for_earlier
from studio.train.progress import TrainingLines, reason_of
from studio.voice.voice import best_checkpoint, sharpened, write_voice


def main(argv: list[str] | None = None) -> int:
    """Train what is left to train, then write the voice. Returns the exit code."""
    require_posix("python -m studio.train")
    project = parse_args(sys.argv[1:] if argv is None else argv)
    plan = read_plan(project.require(project.plan, "studio.plan"))
    check_packages(plan, project)
    with lock_project(project), StopRequest() as stop:
        check_inputs(plan, project)
        for name in plan.models:
            if not (train_model(name, plan, project, stop) and sharpen(name, plan, project, stop)):
                print(f"stopped: {project.command('studio.train')} resumes it")
                return stop.exit_code
        print("speaking validation lines for the verdict …", flush=True)
        try:
            with stop.at_once():
                verdict = write_voice(project, plan)
        except Stopped:
            print(f"stopped before the verdict: {project.command('studio.train')} speaks the lines again")
            return stop.exit_code
    print("\n".join(["", *verdict, ""]))
    print(f"the voice: {display_path(project.voice)}\nnext:\n    {speaking_command(project)}")
    print(f"    {project.command('studio.share')}")
    return 0


def check_packages(plan: Plan, project: Project) -> None:
    """Raise DataError if the plan counts words but the recogniser is not installed."""
    counting = [name for name, options in plan.models.items() if options.evaluation.best_by == "wer"]
    hearing = recogniser_of(project)
    if counting and hearing.missing:
        raise DataError(
            f"{project.plan}: {counting[0]}.best_by: wer counts words, and {hearing.not_installed}; or run"
            f" {project.command('studio.plan')} again for a measure that needs no packages"
        )


def check_inputs(plan: Plan, project: Project) -> None:
    """Raise DataError or UsageError for what would end a training later: missing clips and warm starts, files elsewhere."""
    acoustic = [name for name, spec in MODELS.items() if spec.role == "acoustic"]
    if plan.models.keys().isdisjoint(acoustic):
        raise DataError(f"{project.plan}: expected {' or '.join(acoustic)}, without which no voice speaks")
    for name, options in plan.models.items():
        places = {
            "output": (options.run.output, project.run(name)),
            "training_files": (options.data.training_files, project.training_list),
            "validation_files": (options.data.validation_files, project.validation_list),
        }
        for flag, (found, wanted) in places.items():
            if found.resolve() != wanted.resolve():
                again = f"run {project.command('studio.plan')} again if the project has moved"
                raise DataError(f"{project.plan}: {name}.{flag}: {found}, expected {wanted}; {again}")
        parse_training_arguments(train_command(name, project.plan)[2:], REGISTRY, "")
        if options.start.warm_start and not find_last(options.run.output, name):
            load_checkpoint(options.start.warm_start)
    for path in (project.training_list, project.validation_list):
        check_files(read_filelist(path), path, project.root)


def train_model(name: str, plan: Plan, project: Project, stop: StopRequest) -> bool:
    """Train a model, or continue, to its end. Returns False if a signal stopped it after a save."""
    options = plan.models[name]
    wait_for_earlier(options.run.output, name)
    limit = options.run.max_minutes
    most = f", for {duration(MINUTE * limit)} at most with reports" if limit else ""
    print(f"{name}: trains to epoch {options.run.epochs} at most{most}", flush=True)
    lines = TrainingLines(name, options)
    before = lines.log.step
    if not run_training(train_command(name, project.plan), plan.studio.threads, stop, lines.update):
        return False
    log = lines.log
    rest = duration(max(0.0, log.seconds - log.step_seconds))
    took = f"{duration(log.seconds)} in all: {duration(log.step_seconds)} of steps, {rest} of reports and checkpoints"
    print(f"{name}: trained ({reason_of(log, options)}); {took}", flush=True)
    if log.step == before:
        again = project.command("studio.plan", "--minutes", "M")
        ways = "`epochs`, `max_minutes` or `early_stop_patience`"
        print(f"to train on, raise {ways} in {display_path(project.plan)}, or run {again}", flush=True)
    return True


def sharpen(name: str, plan: Plan, project: Project, stop: StopRequest) -> bool:
    """Sharpen the mels of a model's best checkpoint, if the plan has minutes for it. Returns False if a signal stopped it."""
    minutes = plan.studio.sharpen_minutes
    if not minutes or MODELS[name].role != "acoustic" or (target := sharpened(project, name, minutes)).exists():
        return True
    print(f"{name}: sharpens its mels, for {duration(MINUTE * minutes)}", flush=True)
    command = sharpen_command(name, plan, project, best_checkpoint(project, name), target)
    if not run_training(command, plan.studio.threads, stop, lambda: None):
        return False
    for earlier in target.parent.glob("sharpened*"):  # of other weights or minutes
        if earlier.is_file() and not earlier.name.startswith(target.stem):
            earlier.unlink()
    return True


def parse_args(argv: list[str]) -> Project:
    """Return the project that the command line names."""
    parser = project_parser("studio.train", __doc__, "project planned by studio.plan")
    return from_options(Project, vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
