"""Propose training settings for a project: python -m studio.plan NAME, after studio.prepare.

Reads the clips, times ten steps and one quality report of each model on this machine, and writes PROJECT/plan.json with a reason
for each setting. You may edit the file; `python -m studio.train NAME` follows it.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from common import precision
from common.arguments import seed
from common.audio.stft import AudioConfig
from common.checkpoint.files import find_last, load_checkpoint
from common.errors import DataError, exit_on_user_error
from common.files import display_path
from common.options import ABOVE_ZERO, add_fields, check_fields, from_options, option
from common.progress import HOUR, MINUTE, duration
from common.quality import MEASURED
from common.quality.evaluators import INSTALL
from common.spec import ModelSpec
from common.training.arguments import NOTES, STUDIO
from common.training.options import NEEDED
from studio.arguments import project_parser
from studio.plan import proposal
from studio.plan.commands import Figures, measure, run_train, usable_threads
from studio.plan.file import MODELS, NEED, SHARED, Group, StudioSettings, write_plan
from studio.plan.inputs import EMBEDDED_NAME, Material, Start, audio_of, find_starts, read_material
from studio.plan.proposal import Proposal, Proposed
from studio.project import Project

CHECKPOINT_MINUTES = 5
KEPT = 2  # checkpoints beside the best
SLACK = 0.1  # of validation loss: the first checkpoints of a warm start read best, but still have the old voice
LEARNING_RATE = "learning_rate"  # a project's folder of range tests


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of the command. Raises UsageError for a budget out of range."""

    project: Project
    start: list[str]
    hours: float | None = option(None, "time limit for training all models, in hours", metavar="H", check=ABOVE_ZERO)
    minutes: float | None = option(None, "the same in minutes", metavar="M", check=ABOVE_ZERO)
    find_lr: bool = option(
        False, "test learning rates first, in about 100 steps a model, and plan with the suggested one"
    )
    seed: int = option(1, "random seed of the trainings", type=seed)
    cpu: bool = option(False, "train on the CPU even if there is a GPU")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def budget(self) -> float | None:
        """The time limit in hours."""
        return self.hours if self.minutes is None else self.minutes / 60


def main(argv: list[str] | None = None) -> None:
    """Measure, decide, write and print."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    project = options.project
    material, starts = read_material(project), find_starts(options.start)
    check_rate(material, starts)
    groups = {SHARED: shared_settings(options)}
    verdict = proposal.verdict_minutes(options.budget)
    waiting, left = trainable_models(), None if options.budget is None else options.budget - verdict * MINUTE / HOUR
    found = dict[str, Proposal]()
    while waiting:
        spec = waiting[0]
        quick = [name for name in found if MODELS[name].takes_minutes and MODELS[name].role == "vocoder"]
        hours = proposal.hours_of(spec, waiting, left, quick)
        waiting = waiting[1:]
        if words := proposal.describe_hopeless(spec, None, hours, quick):
            print(words, flush=True)
            continue
        print(f"{spec.name}: measuring ten steps and one report …", flush=True)
        model = propose(spec, material, make_request(starts, spec, hours, options.cpu), groups, project)
        if words := proposal.describe_hopeless(spec, (model.fitting, model.usual), hours, quick):
            print(words, flush=True)
            continue
        if options.find_lr:
            model = with_tested_rate(spec.name, model, groups, project)
        found[spec.name] = model
        if left is not None:
            left -= model.hours + model.sharpen_minutes * MINUTE / HOUR
        print("\n".join(describe(spec.name, model, project)), flush=True)
    write(found, groups, options, material, verdict)


def write(
    found: Mapping[str, Proposal], groups: dict[str, Group], options: PlanOptions, material: Material, verdict: float
) -> None:
    """Write the plan with notes for people, and print what a time limit lacks and the next command."""
    project, notes = options.project, Group({"material": asdict(material)})
    notes["machine"] = {name: asdict(model.figures) for name, model in found.items()}
    notes["reasons"] = {name: model.reasons for name, model in found.items()}
    if options.budget is not None:
        print(f"the verdict: {duration(MINUTE * verdict)} of the limit")
        if need := proposal.describe_need(found, options.budget):
            notes[NEED] = need
            print(need)
    studio = StudioSettings(
        threads=usable_threads(),
        sharpen_minutes=max((model.sharpen_minutes for model in found.values()), default=0.0),
        verdict_minutes=None if options.budget is None else verdict,
    )
    models = {name: found[name].group | {"resume_from_last": True} for name in MODELS if name in found}
    write_plan(project.plan, groups | models | {STUDIO: asdict(studio), NOTES: notes})
    print(f"{display_path(project.plan)}: edit it, then run {project.command('studio.train')}")


def shared_settings(options: PlanOptions) -> Group:
    """Return the flags that all models of a plan share."""
    project = options.project
    return {
        "dataset_path": str(project.root),
        "training_files": str(project.training_list),
        "validation_files": str(project.validation_list),
        "checkpoint_every_minutes": CHECKPOINT_MINUTES,
        "keep_checkpoints": KEPT,
        "seed": options.seed,
        "cpu": options.cpu,
    }


def trainable_models() -> list[ModelSpec]:
    """Return the models in the order of planning: those of minutes, acoustic ones, and vocoders of hours, for what time is left.

    One whose packages are missing is named and left out.
    """
    found = []
    for spec in MODELS.values():
        missing = [name for name in spec.training_packages if find_spec(name) is None]
        if missing:
            print(f"{spec.name}: left out, not installed: {', '.join(missing)}; {INSTALL}")
        else:
            found.append(spec)
    return sorted(found, key=lambda spec: (not spec.takes_minutes, spec.role == "vocoder"))


def make_request(
    starts: Mapping[str, Start | None], spec: ModelSpec, hours: float | None, cpu: bool
) -> proposal.PlanRequest:
    """Return the request for one model."""
    gpu = not cpu and precision.gpu_count() > 0
    half = gpu or precision.has_fast_half(torch.device("cpu"))
    return proposal.PlanRequest(start=starts[spec.name], audio=audio_of(starts), hours=hours, gpu=gpu, half=half)


def check_rate(material: Material, starts: Mapping[str, Start | None]) -> None:
    """Raise DataError if the clips have another rate than the warm start."""
    rate = audio_of(starts).get("sampling_rate", AudioConfig.sampling_rate)
    if material.sampling_rate != rate:
        expected = f"expected {rate} Hz, as the warm start has; prepare them again with -sr {rate}"
        raise DataError(f"the clips have {material.sampling_rate} Hz, {expected}")


def propose(
    spec: ModelSpec, material: Material, request: proposal.PlanRequest, groups: dict[str, Group], project: Project
) -> Proposal:
    """Choose the settings of a model, and measure its steps with them."""
    chosen, threads = begin(spec, material, request), usable_threads()
    figures = measure(spec.name, groups | {spec.name: group_of(chosen)}, threads)
    chosen |= proposal.choose_batch(chosen["batch_size"].value, figures)
    if not figures.step_seconds:
        figures = measure(spec.name, groups | {spec.name: group_of(chosen)}, threads)
    sharpening, hours = proposal.choose_sharpening(spec, request.hours)
    epochs, lines = chosen["epochs"].value, chosen["evaluate_lines"].value
    chosen |= proposal.choose_reports(epochs, lines, figures, hours)
    figures = figures.with_lines(lines, chosen["evaluate_lines"].value)
    every, minutes = chosen["epochs_per_validation"].value, proposal.minutes_of_steps(figures, hours)
    run, seconds = figures.expect(epochs, every, minutes), figures.seconds(epochs, every, minutes)
    if hours is not None:
        hours = proposal.needed_hours(hours, seconds)
        before = minutes_before(project.run(spec.name), spec.name)
        minutes = proposal.minutes_of_steps(figures, hours) or 0.0
        chosen["max_minutes"] = proposal.choose_minutes(minutes, before, run.last, epochs)
    chosen["warmup_steps"] = proposal.choose_warmup(chosen["warmup_steps"].value, run.last * figures.steps_per_epoch)
    return Proposal(
        group={"output": str(project.run(spec.name)), **group_of(chosen)},
        reasons={name: choice.reason for name, choice in (chosen | sharpening).items()},
        figures=figures,
        usual=epochs,
        fitting=run.last,
        seconds=seconds,
        hours=hours or 0.0,
        sharpen_minutes=sharpening["sharpen_minutes"].value if sharpening else 0.0,
    )


def begin(spec: ModelSpec, material: Material, request: proposal.PlanRequest) -> dict[str, Proposed]:
    """Choose the settings that need no measurement: enough to measure steps and a report."""
    advice = proposal.advise(spec, material, request)
    own = {name: value for name, value in request.audio.items() if value != getattr(AudioConfig, name)}
    advised = (own if request.start is None else {}) | advice.options  # a start has its own audio
    if "text_cleaners" in spec.stored_options:
        advised |= material.text_options
    chosen = {"warm_start": proposal.choose_start(spec, request, material)}
    chosen |= {name: Proposed(value, advice.reason) for name, value in advised.items()}
    defaults = spec.training
    batch = min(advised.get("batch_size", defaults.batch_size), material.clips)
    rate = advised.get("learning_rate", defaults.learning_rate)
    return chosen | {
        "epochs": Proposed(advised.get("epochs", defaults.epochs), "usual for this much data"),
        "batch_size": Proposed(batch, ""),  # before memory limits it
        "learning_rate": Proposed(rate, "usual for this start; --find-lr tests it"),
        "warmup_steps": Proposed(advised.get("warmup_steps", 0), ""),
        "evaluate_lines": Proposed(min(proposal.LINES, material.validation_clips), ""),
        **proposal.choose_ending(spec, material),
    }


def group_of(chosen: Mapping[str, Proposed]) -> Group:
    """Return the flags of train.py for chosen settings. Reports leave out all measures but the one that selects."""
    values = {name: choice.value for name, choice in chosen.items()}
    measure, every = values["best_by"], values.get("epochs_per_validation", 1)
    values |= dict.fromkeys(("evaluate_every", "epochs_per_checkpoint"), every)
    values["evaluate_without"] = [name for name in MEASURED if name != NEEDED.get(measure)]
    return values | {"best_slack": None if measure == "loss" else SLACK}


def minutes_before(folder: Path, name: str) -> float:
    """Return the minutes of earlier runs under a time limit, which train.py counts too."""
    path = find_last(folder, name)
    stored = load_checkpoint(path).get("time_plan", {}) if path else {}
    return float(stored.get("spent", 0.0)) / MINUTE


def with_tested_rate(name: str, model: Proposal, groups: dict[str, Group], project: Project) -> Proposal:
    """Run train.py --find-lr, and set the rate it suggests. Raises DataError with its message if it fails."""
    folder = project.root / LEARNING_RATE
    run_train(name, groups | {name: model.group}, usable_threads(), "--find-lr", "-o", str(folder))
    result = json.loads((folder / f"learning_rate_{name}.json").read_text())
    plot = display_path(folder / f"learning_rate_{name}.png")
    reason = f"a tenth of {result['limit']:.2g}, at which the range test had its lowest loss: {plot}"
    rate = float(f"{result['suggestion']:.2g}")
    return model._replace(
        group=model.group | {"learning_rate": rate}, reasons=model.reasons | {"learning_rate": reason}
    )


def describe(name: str, model: Proposal, project: Project) -> Iterator[str]:
    """Yield lines on the settings with their reasons, the expected time and the command."""
    yield f"\n{name}, {model.figures.parameters:,} parameters"
    values = model.group | {"sharpen_minutes": model.sharpen_minutes}
    for reason, settings in groupby(explain(values, model.reasons), key=lambda row: row[2]):
        yield f"  {', '.join(f'{setting} {value}' for setting, value, _ in settings)}: {reason}"
    yield f"  expected: {duration(model.seconds)} at most on {model.figures.device}, {describe_source(model.figures)}"
    yield f"  {command_of(name, project)}\n"


def explain(values: Mapping[str, Any], reasons: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the settings of a model that have a reason, as rows (setting, value, reason)."""
    shown = {name: json.dumps(values.get(name)) for name in reasons}
    return [(name, shown[name].strip('"'), reason) for name, reason in reasons.items()]


def describe_source(figures: Figures) -> str:
    """Say what an expected time is made from."""
    start = f"{duration(figures.start_seconds)} of it to start"
    return f"{start}; an estimate from {len(figures.step_seconds)} measured steps and one report"


def command_of(name: str, project: Project) -> str:
    """Return the command line that trains a model as plan.json says."""
    command = ["python", "train.py", "-m", name, "--config-file", display_path(project.plan)]
    return shlex.join(command)


def parse_args(argv: list[str]) -> PlanOptions:
    parser = project_parser("studio.plan", __doc__, "project made by studio.prepare")
    start = "checkpoints or voice folders to start from; `embedded`: the built-in voice; `none`: random weights"
    parser.add_argument("--from", dest="start", nargs="+", default=[EMBEDDED_NAME], metavar="CHECKPOINT", help=start)
    add_fields(parser.add_mutually_exclusive_group(), PlanOptions, "hours", "minutes")
    add_fields(parser, PlanOptions, "find_lr", "seed", "cpu")
    return from_options(PlanOptions, vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
