"""The guide of each tab: what the step found, whether that is enough, and the one next thing to do, as HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from html import escape
from typing import Any

from common.errors import DataError, listed
from common.progress import MINUTE, counted, duration
from common.training.options import TrainOptions
from studio.jobs.jobs import Job, State
from studio.page.editing import read_rows
from studio.page.recordings import list_recordings
from studio.plan import proposal
from studio.plan.commands import Figures
from studio.plan.file import NEED, Plan, read_plan
from studio.prepare.report import minutes
from studio.prepare.review import YES, ClipRow
from studio.project import Project, check_inside
from studio.voice.verdict import UNDECIDED_ADVICE, read_verdict

ENOUGH = 20.0  # minutes of speech that make a good voice (docs/own-voice.md)
NAMED = 6  # clips to look at
RECORD = "record the reading script, about six minutes, or drop more recordings"
# By the least minutes of speech: what to expect of a voice.
EXPECTED = {
    ENOUGH: "Expect a voice that is like the speaker and reads clearly.",
    proposal.FEWEST_MINUTES: "Expect a voice that is somewhat like the speaker, with words that are hard to understand.",
    0.0: "Expect a rough voice, which stumbles and is hardly like the speaker.",
}
WAITING = {
    "prepare": "The recordings are being cut into clips, and their words checked; the output below says how far it is.",
    "plan": "Each model is tried on this machine, which takes about two minutes.",
    "train": "The voice is learning. You may close this page; nothing is to be done until it is finished.",
}

Sentences = Iterator[str]


def write_guide(step: str, project: Project, job: Job | None) -> str:
    """Return the guide of a step, "prepare", "plan" or "train", or what is wrong with the project's files: the page goes on.

    `job` is the step's newest run.
    """
    steps: dict[str, Callable[[Project], Sentences]] = {
        "prepare": _after_data,
        "plan": _after_plan,
        "train": _after_training,
    }
    if job is not None and job.is_active:
        lines = ["Saving before it stops." if job.state is State.STOPPING else WAITING[step]]
    else:
        failed = job is not None and job.state not in (State.FINISHED, State.PAUSED)
        lines = [_next("read what went wrong below, mend it, and start this step again.")] if failed else []
        try:
            lines = lines or [*steps[step](project)]
        except DataError as error:
            lines = [escape(str(error))]
    return "".join(line if line.startswith("<") else f"<p>{line}</p>" for line in lines)


def _next(words: str) -> str:
    return f'<p class="next"><strong>Next:</strong> {escape(words)}</p>'


def length(minutes_of_speech: float) -> str:
    """Name a length of speech: in seconds where it is short."""
    return f"{minutes_of_speech:.0f} minutes" if minutes_of_speech >= 2 else f"{60 * minutes_of_speech:.0f} s"


def _after_data(project: Project) -> Sentences:
    rows = read_rows(project)
    if not rows:
        if names := list_recordings(project):
            yield f"{counted(len(names), 'file')} stored."
            yield _next("press Prepare, which cuts them into clips and checks their words.")
        else:
            least = f"{proposal.FEWEST_MINUTES:.0f} are the least"
            yield f"No recordings yet. {ENOUGH:.0f} minutes of one speaker make a good voice; {least}."
            yield _next(f"{RECORD}.")
        return
    used = [row for row in rows if row.use == YES]
    found = minutes(used)
    yield f"Found {length(found)} of usable speech in {counted(len(used), 'clip')} of {len(rows)}. {_enough(found)}"
    label = f"{length(found)} of speech, of {length(ENOUGH)}"
    yield f'<progress max="{ENOUGH:.0f}" value="{min(found, ENOUGH):.2f}" aria-label="{label}"></progress>'
    worth = sorted((row for row in rows if row.use != YES and row.text), key=lambda row: -minutes([row]))
    if found < ENOUGH:
        yield _next(
            f"{RECORD}, then press Prepare again. Still wanted: {_wanted(ENOUGH - found)} for a good voice{_least(found)}."
        )
        yield f"Or go on to the tab Plan as it is. {expectation(found)}"
    elif worth:
        yield _next(f"open the tab Plan. The voice has enough; {_clips(worth)} would add {length(minutes(worth))}.")
    else:
        yield _next("open the tab Plan and make a plan.")
    if found < ENOUGH and worth:
        yield f"Some speech is there and not used: look at {escape(_clips(worth))} in the table below."


def _enough(found: float) -> str:
    if found >= ENOUGH:
        return "That is enough for a good voice."
    return "That is too little for a good voice." if found >= proposal.FEWEST_MINUTES else "That is too little."


def _least(found: float) -> str:
    least = proposal.FEWEST_MINUTES - found
    return f", {_wanted(least)} for the least" if least > 0 else ""


def _wanted(lacking: float) -> str:
    return counted(math.ceil(lacking), "minute")


def _clips(rows: list[ClipRow]) -> str:
    names = listed([row.clip for row in rows[:NAMED]])
    return f"{counted(len(rows), 'clip')} that {'is' if len(rows) == 1 else 'are'} left out ({names})"


def expectation(minutes_of_speech: float) -> str:
    """Say what to expect of a voice."""
    return next(words for least, words in EXPECTED.items() if minutes_of_speech >= least)


def _plan_of(project: Project) -> Plan | None:
    return read_plan(check_inside(project, project.plan)) if project.plan.exists() else None


def _after_plan(project: Project) -> Sentences:
    if not project.training_list.exists():
        yield "There is nothing to plan for yet."
        yield _next("prepare recordings in the tab Data.")
    elif (plan := _plan_of(project)) is None:
        yield "No plan yet."
        yield _next("press Make a plan. It tries each model on this machine and proposes what suits your clips.")
    else:
        yield f"The plan trains {' and then '.join(plan.models)}{_takes(plan)}."
        material = plan.notes.get("material")
        if isinstance(material, dict) and isinstance(material.get("minutes"), (int, float)):
            yield f"It has {length(material['minutes'])} of speech to learn from. {expectation(material['minutes'])}"
        if need := plan.notes.get(NEED):
            yield f"<p><strong>{escape(str(need))}.</strong></p>"
        yield _next("open the tab Train and press Start.")


def _takes(plan: Plan) -> str:
    """Say how long a plan takes, where it was measured: the models, their sharpening and the verdict."""
    total = 0.0
    for name, options in plan.models.items():
        if (figures := figures_of(plan, name)) is None or not figures.step_seconds:
            return ""
        total += expected_seconds(options, figures)
    verdict = plan.studio.verdict_minutes
    total += MINUTE * (plan.studio.sharpen_minutes + (proposal.MOST_VERDICT if verdict is None else verdict))
    return f": about {duration(total)} in all"


def expected_seconds(options: TrainOptions, figures: Figures) -> float:
    """Estimate the time of a model's training, with its start."""
    run = options.run
    return figures.seconds(run.epochs, run.epochs_per_validation, run.max_minutes)


def _after_training(project: Project) -> Sentences:
    verdict = read_verdict(project.voice)
    plan = _plan_of(project)
    if verdict.lines:
        judged = next((line for line in verdict.lines if " than the embedded one" in line), verdict.lines[0])
        yield f"The voice is finished. {escape(judged)}"
        yield from (escape(line) for line in verdict.lines if line.startswith(("Likeness", "Not measured")))
        is_clear = not any(line.startswith("warning: ") for line in verdict.lines)
        if is_clear:
            yield _next("hear it in the tab Speak, and take it along in the tab Export.")
        elif any(UNDECIDED_ADVICE in line for line in verdict.lines):
            yield _next(
                "listen to it and to the embedded voice in the tab Speak, and judge for yourself; more speech helps most."
            )
        else:
            yield _next("record more in the tab Data, then prepare, plan and train again; more speech helps most.")
    elif plan is None:
        yield "There is nothing to train yet."
        yield _next("make a plan in the tab Plan.")
    elif any(project.run(name).exists() for name in plan.models):
        yield "The training is not finished."
        yield _next("press Start or resume; it goes on where it stopped.")
    else:
        yield f"The plan is ready{_takes(plan)}."
        yield _next("press Start. You may close this page meanwhile.")


def figures_of(plan: Plan, name: str) -> Figures | None:
    """Return the measurements in a plan's notes; None if there are none, or they are damaged."""
    machine: Any = plan.notes.get("machine")
    try:
        measured = machine[name]
        return Figures(**{field.name: measured[field.name] for field in fields(Figures) if field.name in measured})
    except (KeyError, TypeError):
        return None
