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
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from common import precision
from common.arguments import seed
from common.audio.stft import AudioConfig
from common.errors import DataError, exit_on_user_error
from common.files import display_path
from common.options import ABOVE_ZERO, add_fields, check_fields, from_options, option
from common.progress import HOUR, MINUTE, counted, duration
from common.quality.evaluators import INSTALL
from common.spec import ModelSpec
from studio.arguments import project_parser
from studio.plan import proposal
from studio.plan.commands import (
    Figures,
    counts_words,
    data_argv,
    measure,
    option_argv,
    report_options,
    run_train,
    train_argv,
    usable_threads,
)
from studio.plan.file import MODELS, NEED, VERDICT, ModelPlan, Plan, write_plan
from studio.plan.inputs import EMBEDDED_NAME, Material, Starts, audio_of, count_weights, find_starts, read_material
from studio.project import Project

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
    plan = Plan(seed=options.seed, threads=usable_threads(), cpu=options.cpu, models={})
    verdict = proposal.verdict_minutes(options.budget)
    waiting, left = trainable_models(), None if options.budget is None else options.budget - verdict * MINUTE / HOUR
    usual, measured = dict[str, int](), dict[str, Figures]()
    while waiting:
        spec, done = waiting[0], [MODELS[name] for name in plan.models]
        quick = [other.name for other in done if other.takes_minutes and other.role == "vocoder"]
        hours = proposal.hours_of(spec, waiting, left, quick)
        waiting = waiting[1:]
        if words := proposal.describe_hopeless(spec, None, hours, quick):
            print(words, flush=True)
            continue
        request = make_request(starts[spec.name], hours, options.cpu)
        print(f"{spec.name}: measuring ten steps and one report …", flush=True)
        found = propose(spec, material, request, plan, project, _audio_of(starts))
        if words := proposal.describe_hopeless(spec, (found.settings.epochs, found.usual_epochs), hours, quick):
            print(words, flush=True)
            continue
        plan = replace(plan, models={**plan.models, spec.name: found.settings})
        if options.find_lr:
            plan = with_tested_rate(spec, plan, project)
        if left is not None and hours is not None:
            left -= (found.settings.hours or hours) + found.settings.sharpen_minutes * MINUTE / HOUR
        usual[spec.name], measured[spec.name] = found.usual_epochs, found.figures
        print("\n".join(describe(spec, plan, project, found.figures)), flush=True)
    write(plan, options, material, usual, measured, verdict)


def write(
    plan: Plan,
    options: PlanOptions,
    material: Material,
    usual: dict[str, int],
    measured: dict[str, Figures],
    verdict: float,
) -> None:
    """Write the plan with notes for people, and print what a time limit lacks and the next command."""
    project, notes = options.project, dict[str, Any]({"material": asdict(material)})
    notes["machine"] = {name: asdict(figures) for name, figures in measured.items()}
    if options.budget is not None:
        notes[VERDICT] = verdict
        print(f"the verdict: {duration(MINUTE * verdict)} of the limit")
    planned = {name: settings.epochs for name, settings in plan.models.items()}
    if need := proposal.describe_need(usual, planned, measured, options.budget or 0.0):
        notes[NEED] = need
        print(need)
    models = {name: plan.models[name] for name in MODELS if name in plan.models}
    write_plan(project.plan, replace(plan, models=models, notes=notes))
    print(f"{display_path(project.plan)}: edit it, then run {project.command('studio.train')}")


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


def make_request(start: Path | None, hours: float | None, cpu: bool) -> proposal.PlanRequest:
    """Return the request for one model."""
    gpu = not cpu and precision.gpu_count() > 0
    half = gpu or precision.has_fast_half(torch.device("cpu"))
    path, weights = (display_path(start), count_weights(start)) if start else (None, 0)
    return proposal.PlanRequest(warm_start=path, weights=weights, hours=hours, gpu=gpu, half=half)


def check_rate(material: Material, starts: Starts) -> None:
    """Raise DataError if the clips have another rate than the warm start."""
    rate = _audio_of(starts).get("sampling_rate", AudioConfig.sampling_rate)
    if material.sampling_rate != rate:
        expected = f"expected {rate} Hz, as the warm start has; prepare them again with -sr {rate}"
        raise DataError(f"the clips have {material.sampling_rate} Hz, {expected}")


def _audio_of(starts: Starts) -> dict[str, Any]:
    return next((audio_of(path) for path in starts.values() if path), {})


class Proposal(NamedTuple):
    """A model's settings, what was measured with them, and the epochs that are usual for this much data."""

    settings: ModelPlan
    figures: Figures
    usual_epochs: int


def propose(
    spec: ModelSpec,
    material: Material,
    request: proposal.PlanRequest,
    plan: Plan,
    project: Project,
    audio: dict[str, Any],
) -> Proposal:
    """Choose the settings of a model, and measure its steps with them."""
    advice = proposal.advise(spec, material, request)
    wanted = min(advice.options.get("batch_size", spec.training.batch_size), material.clips)  # before memory limits it
    usual = {"epochs": spec.training.epochs, "learning_rate": spec.training.learning_rate, "warmup_steps": 0}
    named = {name: advice.options.get(name, value) for name, value in usual.items()}
    advised = {name: value for name, value in advice.options.items() if name not in (*named, "batch_size")}
    options = advised | data_options(spec, material, {} if request.warm_start else audio)  # a start has its own audio
    draft = draft_of(spec, request, options, wanted, material)
    figures = measure(trial_argv(spec.name, replace(plan, models={spec.name: draft}), project), plan.threads)
    batch, accumulation = proposal.choose_batch(wanted, figures)
    if not figures.step_seconds:
        draft = replace(draft, batch_size=batch.value, grad_accumulation_steps=accumulation.value)
        figures = measure(trial_argv(spec.name, replace(plan, models={spec.name: draft}), project), plan.threads)
    sharpening, hours = proposal.choose_sharpening(spec, request.hours)
    length = proposal.choose_length(named["epochs"], draft.report_lines, figures, hours)
    epochs, lines = length["epochs"].value, length["report_lines"].value
    figures = proposal.with_lines(figures, draft.report_lines, lines)
    choices = {
        "warm_start": proposal.choose_start(spec, request, material),
        "batch_size": batch,
        "grad_accumulation_steps": accumulation,
        **length,
        "learning_rate": proposal.Proposed(named["learning_rate"], "usual for this start; --find-lr tests it"),
        "warmup_steps": proposal.choose_warmup(named["warmup_steps"], epochs, figures),
        **proposal.choose_ending(spec, material, epochs, counts_words()),
        **sharpening,
    }
    values = {name: choice.value for name, choice in choices.items()}
    reasons = {"options": advice.reason} | {name: choice.reason for name, choice in choices.items()}
    hours = proposal.needed_hours(hours, proposal.expected_seconds(epochs, length["report_every"].value, figures))
    return Proposal(replace(draft, **values, hours=hours, reasons=reasons), figures, named["epochs"])


def data_options(spec: ModelSpec, material: Material, audio: dict[str, Any]) -> dict[str, Any]:
    """Return the options of train.py for settings of audio, and for texts if the model reads any."""
    options = {name: value for name, value in audio.items() if value != getattr(AudioConfig, name)}
    return options | (material.text_options if "text_cleaners" in spec.stored_options else {})


def draft_of(
    spec: ModelSpec, request: proposal.PlanRequest, options: dict[str, Any], batch: int, material: Material
) -> ModelPlan:
    """Return settings that are enough to measure steps."""
    return ModelPlan(
        warm_start=request.warm_start,
        batch_size=batch,
        grad_accumulation_steps=1,
        epochs=spec.training.epochs,
        learning_rate=spec.training.learning_rate,
        lr_schedule="cosine",
        warmup_steps=0,
        report_every=1,
        report_lines=min(proposal.LINES, material.validation_clips),
        best_by=proposal.choose_measure(spec, material, counts_words()).value,
        patience=proposal.PATIENCE,
        hours=None,
        options=options,
    )


def trial_argv(name: str, plan: Plan, project: Project) -> list[str]:
    """Return the arguments of train.py for a trial: the data, the batch and the reports, without an output folder."""
    settings = plan.models[name]
    batch = {name: getattr(settings, name) for name in ("batch_size", "grad_accumulation_steps", "learning_rate")}
    return [*data_argv(name, plan, project), *option_argv({**batch, "evaluate-every": 1, **report_options(settings)})]


def with_tested_rate(spec: ModelSpec, plan: Plan, project: Project) -> Plan:
    """Run train.py --find-lr, and set the rate it suggests. Raises DataError with its message if it fails."""
    folder = project.root / LEARNING_RATE
    run_train([*trial_argv(spec.name, plan, project), "-o", str(folder), "--find-lr"], plan.threads, "--find-lr")
    result = json.loads((folder / f"learning_rate_{spec.name}.json").read_text())
    settings = plan.models[spec.name]
    plot = display_path(folder / f"learning_rate_{spec.name}.png")
    reason = f"a tenth of {result['limit']:.2g}, at which the range test had its lowest loss: {plot}"
    rate = float(f"{result['suggestion']:.2g}")
    settings = replace(settings, learning_rate=rate, reasons=settings.reasons | {"learning_rate": reason})
    return replace(plan, models=plan.models | {spec.name: settings})


def describe(spec: ModelSpec, plan: Plan, project: Project, figures: Figures) -> list[str]:
    """List the settings with their reasons, the expected time and the command."""
    explained = explain(spec.name, plan, project, figures)
    lines = [f"\n{spec.name}, {figures.parameters:,} parameters"]
    lines += [f"  {name} {value}: {reason}" for name, value, reason in explained.settings]
    return [*lines, f"  {explained.expected}", f"  {explained.command}\n"]


class Explanation(NamedTuple):
    """A model's plan for people: rows (setting, value, reason), the expected time, and the command line of train.py."""

    settings: list[tuple[str, str, str]]
    expected: str
    command: str


def explain(name: str, plan: Plan, project: Project, figures: Figures | None) -> Explanation:
    """Explain the plan of a model, without an expected time if there are no figures."""
    settings = plan.models[name]
    values = {key: getattr(settings, key) for key in settings.reasons}
    rows = [(key, "none" if value == {} else json.dumps(value), settings.reasons[key]) for key, value in values.items()]
    argv = train_argv(name, plan, project)
    expected = ""
    if figures and figures.step_seconds:
        expected = f"expected: {describe_expectation(settings, plan.threads, figures)}"
    return Explanation(rows, expected, shlex.join(["python", "train.py", *argv]))


def describe_expectation(settings: ModelPlan, threads: int, figures: Figures) -> str:
    """Estimate a model's training time from what was measured."""
    total = proposal.expected_seconds(settings.epochs, settings.report_every, figures)
    reports = proposal.count_reports(settings.epochs, settings.report_every)
    reporting = reports * figures.report_seconds
    steps = f"{duration(total - reporting - figures.start_seconds)} of steps"
    rest = f"{duration(reporting)} of {counted(reports, 'report')}, {duration(figures.start_seconds)} to start"
    source = f"an estimate from {len(figures.step_seconds)} measured steps and one report"
    return f"{duration(total)} at most on {figures.device}, {counted(threads, 'thread')}: {steps}, {rest}; {source}"


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
