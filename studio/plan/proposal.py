"""The decisions of a plan as pure functions: from the data, the machine and the request to settings with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.errors import DataError
from common.files import display_path
from common.progress import HOUR, MINUTE, counted, duration, size
from common.run.memory import USABLE, split_batch
from common.spec import Advice, ModelSpec
from common.training.checkup import WITHOUT_PACKAGES
from studio.plan.commands import Figures
from studio.plan.file import Group
from studio.plan.inputs import Material, Start

REPORTS = 20  # a run
PATIENCE = 10  # reports without a gain
LINES = 12  # of a report at most
# Of the time limit, for models that take hours, where no vocoder takes minutes.
SHARES = {"acoustic": 0.6, "vocoder": 0.4}
QUICK_SHARE = 0.25  # at most, for one that takes minutes
SPARE = 2.0  # times the expected time: a model that needs less than its share leaves the rest to those after it
REPORT_SHARE = 0.2  # of the time
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


class Proposal(NamedTuple):
    """A model's flags of train.py with their reasons, and what was measured and is expected of them."""

    group: Group
    reasons: dict[str, str]
    figures: Figures
    usual: int  # epochs for this much data
    fitting: int  # of them, in the model's hours
    seconds: float  # expected
    hours: float  # its time limit, before sharpening; 0: none
    sharpen_minutes: float


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What the user asks for, for one model."""

    start: Start | None
    audio: dict[str, Any] = field(default_factory=dict)  # settings of sound of the plan's starts
    hours: float | None = None  # for this model
    gpu: bool = False  # train on one
    half: bool = False  # the device is fast in half precision


def choose_start(spec: ModelSpec, request: PlanRequest, material: Material) -> Proposed:
    """Describe the warm start; warn about random weights for little data."""
    if request.start:
        return Proposed(display_path(request.start.path), "a trained model only has the voice left to learn")
    if spec.takes_minutes:
        return Proposed(None, "all weights start at random: this model learns in minutes")
    few = material.minutes < 60
    warning = f"; {material.minutes:.0f} min of speech are rarely enough for that: leave out --from none" if few else ""
    return Proposed(None, f"--from none: all weights start at random{warning}")


def advise(spec: ModelSpec, material: Material, request: PlanRequest) -> Advice:
    """Return the model's own advice, with --amp if that is fast, and a warning about very little data.

    With another alphabet nothing is frozen.
    """
    advice = spec.advise(material.minutes, request.start.weights if request.start else 0, request.gpu)
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


def choose_batch(wanted: int, figures: Figures) -> dict[str, Proposed]:
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
        one = Proposed(1, "the whole batch fits")
        return {"batch_size": Proposed(wanted, f"{reason}; it fits: {memory}"), "grad_accumulation_steps": one}
    batch, steps = split_batch(wanted, int(largest))
    split = f"{steps} batches of {batch} make one step of {batch * steps} clips"
    return {
        "batch_size": Proposed(batch, f"{wanted} clips do not fit, {largest} do: {memory}"),
        "grad_accumulation_steps": Proposed(steps, split),
    }


def choose_reports(epochs: int, lines: int, figures: Figures, hours: float | None) -> dict[str, Proposed]:
    """Choose the epochs between reports and their lines: at most twenty reports, and a fifth of a model's hours.

    There are at least two, of fewer lines if need be: train.py reports after the first epoch and after the last.
    """
    many = Proposed(lines, f"lines of validation that each report speaks, {LINES} at most")
    reports, report = REPORTS, figures.report_seconds
    if hours is not None and reports * report > (most := REPORT_SHARE * HOUR * hours):
        reports = max(FEWEST_REPORTS, int(most / report))
        each_line = (report - figures.validation_seconds) / lines
        if reports * report > most and each_line:
            fitting = int((most / reports - figures.validation_seconds) / each_line)
            many = Proposed(min(max(1, fitting), lines), f"as many as a fifth of {duration(HOUR * hours)} has room for")
    every = interval(epochs, reports)
    return {
        "epochs_per_validation": Proposed(every, f"{reports} reports at most in {counted(epochs, 'epoch')}, or as fit"),
        "evaluate_lines": many,
    }


def interval(epochs: int, reports: int = REPORTS) -> int:
    """Return the epochs between so many reports, of which the first and the last epoch have one each."""
    return max(1, -(-(epochs - 1) // max(1, reports - 1)))


def minutes_of_steps(figures: Figures, hours: float | None) -> float | None:
    """Return the minutes of a model's hours that its start leaves, a second at least."""
    return None if hours is None else max(MINUTE * hours - figures.start_seconds / MINUTE, 1 / MINUTE)


def choose_minutes(minutes: float, before: float, fitting: int, epochs: int) -> Proposed:
    """Choose the time limit of a model's training, in which train.py fits its epochs; `before`: minutes of earlier runs."""
    reason = f"{duration(MINUTE * minutes)}, with room for about {fitting} of {counted(epochs, 'epoch')}"
    if before:
        reason += f", beside {duration(MINUTE * before)} of earlier runs"
    return Proposed(round(minutes + before, 2), reason)


def describe_need(found: Mapping[str, Proposal], limit: float) -> str:
    """Say how many hours the usual epochs of all models need, where the limit, in hours, allows far fewer; else ""."""
    short = {name: model for name, model in found.items() if model.fitting < FAR * model.usual}
    if not short:
        return ""
    seconds = sum(model.figures.seconds(model.usual, interval(model.usual)) for model in found.values())
    whole = ", ".join(f"{model.usual} of {name} (this plan: {model.fitting})" for name, model in short.items())
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


def choose_warmup(advised: int, steps: int) -> Proposed:
    """Choose the warm-up steps: as advised, or a tenth of a short run, which would otherwise never reach the full rate."""
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


def needed_hours(hours: float, expected: float) -> float:
    """Return a model's hours, or fewer if it is expected to take far fewer; `expected` in seconds."""
    return min(hours, SPARE * expected / HOUR)


def choose_measure(spec: ModelSpec, material: Material) -> Proposed:
    """Choose the measure that selects the best checkpoint and ends the run."""
    if spec.takes_minutes:
        return Proposed("loss", "a small model that learns one thing: the validation loss says how well")
    if not material.hearing.missing:
        return Proposed("wer", WORDS_WIN)
    measure = WITHOUT_PACKAGES[spec.role]
    return Proposed(measure, f"{material.hearing.not_installed}: {measure.replace('_', ' ')} instead of words")


def choose_ending(spec: ModelSpec, material: Material) -> dict[str, Proposed]:
    """Choose the schedule of the learning rate, the measure and the patience that end a run, and what recognises its words."""
    falls = "the rate falls to 0 over the epochs, with no step to place by guesswork"
    return {
        "lr_schedule": Proposed("cosine", falls),
        "best_by": choose_measure(spec, material),
        "language": Proposed(material.hearing.code, "as studio.prepare found it, or was told"),
        "recogniser": Proposed(material.hearing.recogniser, "likewise"),
        "early_stop_patience": Proposed(PATIENCE, f"the run ends after {PATIENCE} reports without a gain"),
    }
