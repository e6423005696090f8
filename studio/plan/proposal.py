"""The decisions of a plan as pure functions: from the data, the machine and the request to settings with reasons."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from common.errors import DataError
from common.progress import HOUR, MINUTE, counted, duration, size
from common.run.memory import USABLE, split_batch
from common.spec import Advice, ModelSpec
from common.training.checkup import WITHOUT_PACKAGES
from studio.plan.commands import Figures
from studio.plan.inputs import Material

REPORTS = 20  # a run
PATIENCE = 10  # reports without a gain
LINES = 12  # of a report at most
# Of the time limit, for models that take hours, where no vocoder takes minutes.
SHARES = {"acoustic": 0.6, "vocoder": 0.4}
QUICK_SHARE = 0.25  # at most, for one that takes minutes
SPARE = 2.0  # times the expected time: a model that needs less than its share leaves the rest to those after it
OVERHEAD = 0.9  # share of the time for the start, steps and reports; checkpoints take the rest
REPORT_SHARE = 0.2  # of that time
FEWEST_REPORTS = 2  # after the first epoch and after the last
FEWEST_MINUTES = 5.0
CHANCE = 1.0  # of the usual epochs, without which WaveGlow's likelihood is worth less than a vocoder of minutes, by far
WORTH_MEASURING = 5 / 60  # hours for one that takes hours; with fewer it could not win
FAR = 0.5  # of the usual epochs; a limit that allows fewer is named as too short
VERDICT, MOST_VERDICT = 0.1, 6.0  # of the time limit; at most, in minutes
SHARPENING, MOST_SHARPENING, FEWEST_SHARPENING = 0.2, 20.0, 2.0  # of a model's hours; at most and at least, in minutes
WORDS_WIN = (
    "the recogniser is installed: among checkpoints close to the lowest validation loss, the fewest wrong words win"
)


class Proposed(NamedTuple):
    """A setting, and the reason for it."""

    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What the user asks for, for one model."""

    warm_start: str | None
    weights: int = 0  # of the warm start
    hours: float | None = None  # for this model
    gpu: bool = False  # train on one
    half: bool = False  # the device is fast in half precision


def choose_start(spec: ModelSpec, request: PlanRequest, material: Material) -> Proposed:
    """Describe the warm start; warn about random weights for little data."""
    if request.warm_start:
        return Proposed(request.warm_start, "a trained model only has the voice left to learn")
    if spec.takes_minutes:
        return Proposed(None, "all weights start at random: this model learns in minutes")
    few = material.minutes < 60
    warning = f"; {material.minutes:.0f} min of speech are rarely enough for that: leave out --from none" if few else ""
    return Proposed(None, f"--from none: all weights start at random{warning}")


def advise(spec: ModelSpec, material: Material, request: PlanRequest) -> Advice:
    """Return the model's own advice, with --amp if that is fast, and a warning about very little data.

    With another alphabet nothing is frozen.
    """
    advice = spec.advise(material.minutes, request.weights, request.gpu)
    if material.text_options and "freeze" in advice.options:
        options = {name: value for name, value in advice.options.items() if name != "freeze"}
        reason = "the texts are not English: the model learns to read them as well as the voice"
        advice = advice._replace(options=options, reason=reason)
    if request.half:
        options = {**advice.options, "amp": True}
        advice = advice._replace(options=options, reason=f"{advice.reason}; half precision is fast on this device")
    if material.minutes >= FEWEST_MINUTES:
        return advice
    return advice._replace(
        reason=f"{advice.reason} (under {FEWEST_MINUTES:.0f} minutes of speech: expect a rough voice)"
    )


def choose_batch(wanted: int, figures: Figures) -> tuple[Proposed, Proposed]:
    """Choose a batch size and accumulation steps that fit into 90 % of memory. Raises DataError if not even one clip fits."""
    room = USABLE * figures.available // 100 - figures.always
    largest = room // figures.clip if figures.clip > 0 else wanted
    always, clip, available = map(size, (figures.always, figures.clip, figures.available))
    memory = f"{always} and {clip} for each clip of the longest, of {available}"
    if largest < 1:
        raise DataError(f"{figures.model}: not even one clip fits into memory ({memory}): prepare shorter clips")
    if wanted <= largest:
        small = f"all {counted(figures.clips, 'clip')} in one step" if figures.clips <= wanted else ""
        reason = small or f"{counted(wanted, 'clip')} a step suit this much data"
        return Proposed(wanted, f"{reason}; it fits: {memory}"), Proposed(1, "the whole batch fits")
    batch, accumulation = split_batch(wanted, int(largest))
    return (
        Proposed(batch, f"{wanted} clips do not fit, {largest} do: {memory}"),
        Proposed(accumulation, f"{accumulation} batches of {batch} make one step of {batch * accumulation} clips"),
    )


def step_seconds(figures: Figures) -> float:
    """Return the median of the measured steps. Raises DataError if there are none."""
    if not figures.step_seconds:
        raise DataError(f"{figures.model}: no step was measured, because the batch does not fit into memory")
    return statistics.median(figures.step_seconds)


def count_reports(epochs: int, every: int) -> int:
    """Count the reports of a run: after the first epoch, every `every` epochs from there, and after the last."""
    return (epochs - 1) // every + 1 + ((epochs - 1) % every > 0)


def choose_length(advised: int, lines: int, figures: Figures, hours: float | None) -> dict[str, Proposed]:
    """Choose the number of epochs, the epochs between reports and their lines: as advised, or as fit into a model's hours.

    The start and the reports come off the time first; reports take at most a fifth. There are at least two, of fewer lines if need
    be: train.py reports after the first epoch and after the last.
    """
    steps, seconds = figures.steps_per_epoch, step_seconds(figures)
    each = f"an epoch is {steps} step{'s' if steps > 1 else ''} of {seconds:.2f} s"
    many = Proposed(lines, f"lines of validation that each report speaks, {LINES} at most")
    if hours is None:
        reason = f"usual for this much data; {each}"
        return {
            "epochs": Proposed(advised, reason),
            "report_every": choose_reports(advised, REPORTS),
            "report_lines": many,
        }
    room = max(0.0, OVERHEAD * hours * HOUR - figures.start_seconds - figures.first_seconds)
    report, reports, most = figures.report_seconds, REPORTS, REPORT_SHARE * room
    if REPORTS * report > most:
        reports = max(FEWEST_REPORTS, int(most / report))
    if reports * report > most:
        each_line = (report - figures.validation_seconds) / lines
        fitting = int((most / reports - figures.validation_seconds) / each_line) if each_line else lines
        many = Proposed(min(max(1, fitting), lines), f"as many as a fifth of {duration(HOUR * hours)} has room for")
        report = with_lines(figures, lines, many.value).report_seconds
    epochs = int((room - reports * report) / (steps * seconds))
    if epochs >= advised:
        reason = f"usual for this much data, and within {duration(HOUR * hours)}; {each}"
        epochs = advised
    else:
        rest = f"beside {duration(figures.start_seconds)} to start and reports of {duration(report)}"
        reason = f"as many as fit into {duration(HOUR * hours)} {rest}, instead of the usual {advised}; {each}"
        if epochs < 1:
            reason = f"{duration(HOUR * hours)} may be too short for one epoch {rest}; {each}"
    epochs = max(1, epochs)
    return {"epochs": Proposed(epochs, reason), "report_every": choose_reports(epochs, reports), "report_lines": many}


def with_lines(figures: Figures, measured: int, lines: int) -> Figures:
    """Return figures for reports of other lines than the measured ones."""
    speaking = figures.report_seconds - figures.validation_seconds
    return replace(figures, report_seconds=figures.validation_seconds + speaking * lines / measured)


def expected_seconds(epochs: int, report_every: int, figures: Figures) -> float:
    """Estimate the time of a training from what was measured: steps, reports and the start."""
    steps = epochs * figures.steps_per_epoch * step_seconds(figures) + figures.first_seconds
    return steps + count_reports(epochs, report_every) * figures.report_seconds + figures.start_seconds


def describe_need(
    usual: Mapping[str, int], planned: Mapping[str, int], figures: Mapping[str, Figures], limit: float
) -> str:
    """Say how many hours the usual epochs of all models need, where the limit, in hours, allows far fewer; else ""."""
    short = [name for name, epochs in usual.items() if planned[name] < FAR * epochs]
    if not short:
        return ""
    every = {name: choose_reports(epochs, REPORTS).value for name, epochs in usual.items()}
    seconds = sum(expected_seconds(epochs, every[name], figures[name]) for name, epochs in usual.items()) / OVERHEAD
    whole = ", ".join(f"{usual[name]} of {name} (this plan: {planned[name]})" for name in short)
    return f"{duration(HOUR * limit)} is far too little here: about {seconds / HOUR:.1f} h are needed for the usual epochs, {whole}"


def verdict_minutes(hours: float | None) -> float:
    """Choose the minutes of a time limit in which the finished voice is judged."""
    return MOST_VERDICT if hours is None else round(min(MOST_VERDICT, VERDICT * hours * HOUR / MINUTE), 2)


def describe_hopeless(
    spec: ModelSpec, epochs: tuple[int, int] | None, hours: float | None, quick: Sequence[str]
) -> str:
    """Say why a vocoder of hours is left out: too little time is left beside the `quick` ones, which take minutes; else "".

    epochs: those that the time allows, and the usual ones; None before anything is measured, which takes a minute itself.
    """
    if hours is None or not quick or spec.takes_minutes or spec.role != "vocoder":
        return ""
    if not (epochs[0] < CHANCE * epochs[1] if epochs else hours < WORTH_MEASURING):
        return ""
    few = f"room for {epochs[0]} of its usual {epochs[1]} epochs" if epochs else "too little"
    return f"{spec.name}: left out, since the others leave {duration(HOUR * hours)}, {few}; {', '.join(quick)} sounds better"


def choose_sharpening(spec: ModelSpec, hours: float | None) -> tuple[dict[str, Proposed], float | None]:
    """Choose the minutes after an acoustic model's training in which its postnet learns sharp mels: a fifth of its hours.

    Returns the setting, none for a vocoder, and the hours that are left for the training.
    """
    if spec.role != "acoustic":
        return {}, hours
    minutes = MOST_SHARPENING if hours is None else min(MOST_SHARPENING, SHARPENING * hours * HOUR / MINUTE)
    if minutes < FEWEST_SHARPENING:
        reason = f"{duration(HOUR * (hours or 0.0))} leaves no time to sharpen the mels"
        return {"sharpen_minutes": Proposed(0.0, reason)}, hours
    reason = "a second network teaches the postnet what recorded mels look like: a clearer voice"
    left = None if hours is None else hours - minutes * MINUTE / HOUR
    return {"sharpen_minutes": Proposed(round(minutes, 1), reason)}, left


def choose_warmup(advised: int, epochs: int, figures: Figures) -> Proposed:
    """Choose the warm-up steps: as advised, or a tenth of a short run, which would otherwise never reach the full rate."""
    steps = epochs * figures.steps_per_epoch
    if advised <= steps // 10:
        return Proposed(advised, "the first steps of Adam are small")
    return Proposed(steps // 10, f"a tenth of the run's {counted(steps, 'step')}, instead of the usual {advised}")


def hours_of(spec: ModelSpec, waiting: Sequence[ModelSpec], left: float | None, quick: Sequence[str]) -> float | None:
    """Return a model's share of the hours left; `waiting` are the models that have none yet, itself included.

    Beside a vocoder of minutes, whose names are `quick`, the acoustic model may take all: it decides how much is understood.
    """
    if left is None:
        return None
    if spec.takes_minutes:
        return QUICK_SHARE * left
    rivals = [other for other in waiting if other is spec or not (quick or other.takes_minutes)]
    return SHARES[spec.role] * left / sum(SHARES[other.role] for other in rivals)


def needed_hours(hours: float | None, expected: float) -> float | None:
    """Return a model's hours, or fewer if it is expected to take far fewer; `expected` in seconds."""
    return None if hours is None else min(hours, SPARE * expected / HOUR)


def choose_reports(epochs: int, most: int) -> Proposed:
    """Choose the epochs between reports so that there are at most `most` of them, or two."""
    every = max(1, -(-(epochs - 1) // max(1, most - 1)))
    number = count_reports(epochs, every)
    return Proposed(every, f"{counted(number, 'report')} in {counted(epochs, 'epoch')}")


def choose_measure(spec: ModelSpec, material: Material, counts_words: bool) -> Proposed:
    """Choose the measure that selects the best checkpoint and ends the run."""
    if spec.takes_minutes:
        return Proposed("loss", "a small model that learns one thing: the validation loss says how well")
    if counts_words and not material.text_options:
        return Proposed("wer", WORDS_WIN)
    measure, cause = WITHOUT_PACKAGES[spec.role], "no recogniser is installed (`bash scripts/evaluation.sh`)"
    if counts_words:
        cause = "the recogniser only knows English"
    return Proposed(measure, f"{cause}: {measure.replace('_', ' ')} instead of words")


def choose_ending(spec: ModelSpec, material: Material, epochs: int, counts_words: bool) -> dict[str, Proposed]:
    """Choose the schedule of the learning rate, and the measure and the patience that end a run."""
    return {
        "lr_schedule": Proposed(
            "cosine", f"the rate falls to 0 over {counted(epochs, 'epoch')}, with no step to place by guesswork"
        ),
        "best_by": choose_measure(spec, material, counts_words),
        "patience": Proposed(PATIENCE, f"the run ends after {PATIENCE} reports without a gain"),
    }
