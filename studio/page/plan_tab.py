"""The Plan tab: training settings with their reasons, and plan.json to edit, which is checked before it is saved."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import numpy.typing as npt

from common.data.pictures import read_png
from common.errors import DataError, UsageError
from common.inference.voice_folder import about_voice
from common.parser import Parser
from common.progress import duration
from common.spec import ModelSpec
from common.training.arguments import model_parser
from studio.page.events import HIDDEN, ProjectPage, RunButton
from studio.page.guide import expected_seconds, figures_of
from studio.plan.__main__ import LEARNING_RATE, command_of, describe_source, explain
from studio.plan.file import MODELS, SHARED, Plan, parse_plan, read_plan, write_plan
from studio.plan.inputs import EMBEDDED_NAME, NOTHING
from studio.project import Project, check_inside, list_projects
from studio.wording import html_table
from synthesizer import EMBEDDED

ABOUT = (
    "Times ten steps and one quality report of each model on this machine, and proposes settings that suit the clips."
)
EDITING = "A model's group takes any option of train.py by name, with `_` instead of `-`."
OPTION = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
PATH_OPTIONS = frozenset({"dataset_path", "log_file"})  # paths that are parsed as plain text
UNITS = {"hours": 1.0, "minutes": 1 / 60}


def add_plan_tab(page: ProjectPage) -> None:
    context = page.context
    gr.Markdown(ABOUT)
    choices = start_choices(context.projects)
    with gr.Row():
        start = gr.Dropdown(choices, value=choices[0][1], label="Start from", min_width=200, elem_id="start")
        limit = gr.Textbox(label="Time limit", placeholder="no limit", max_lines=1, min_width=120, elem_id="limit")
        unit = gr.Radio(list(UNITS), value="hours", label="Unit", min_width=160, elem_id="unit")
    find_lr = gr.Checkbox(label="Test learning rates first (about 100 steps a model)", elem_id="find-lr")
    with gr.Row():
        button = gr.Button("Make a plan", variant="primary", elem_id="plan")
        stop = gr.Button("Stop", visible=False, elem_id="plan-stop")
    options = [start, limit, unit, find_lr]
    key = page.add_run([RunButton(button, "plan", partial(plan_argv, cpu=context.cpu), options)], stop)
    plan = gr.Markdown(elem_id="plan-models", elem_classes="settings")
    plots = gr.Gallery(label="Tests of learning rates: loss over the rate", visible=False, elem_id="plan-rates")
    with gr.Accordion("plan.json", open=False, visible=False) as fold:
        gr.Markdown(EDITING)
        text = gr.Code(language="json", label="plan.json", max_lines=30, elem_id="plan-text")
        save = gr.Button("Check and save", elem_id="plan-save")
        result = gr.Textbox(label="Result", interactive=False, max_lines=1, elem_id="plan-result")

    def show(project: Project) -> tuple[Any, ...]:
        found = read_rate_plots(project)
        words, content = describe_plan(project), read_text(project)
        return words, gr.Gallery(value=found, visible=bool(found)), gr.Accordion(visible=bool(content)), content, ""

    def save_text(project: Project, text: str) -> tuple[Any, ...]:
        context.jobs.check_free(project)
        save_plan(project, text)
        return *show(project)[:-1], "saved"

    outputs = [plan, plots, fold, text, result]
    page.on(key.change, show, [], outputs, clears=True)
    page.on(save.click, save_text, [text], outputs)
    page.field.change(lambda: gr.Dropdown(start_choices(context.projects)), None, start, **HIDDEN)


def start_choices(projects: Path) -> list[tuple[str, str]]:
    """Return the warm starts to choose from, as (label, key)."""
    voices = [name for name in list_projects(projects) if (projects / name / "voice").is_dir()]
    own = [(f"voice of project {name}", f"voice:{name}") for name in voices]
    speaker = about_voice(EMBEDDED).speaker
    embedded = f"the embedded voice ({speaker}'s, English)" if speaker else "the embedded voice"
    return [(embedded, EMBEDDED_NAME), ("no voice: random weights, for hours of speech", NOTHING), *own]


def plan_argv(project: Project, start: str, limit: str, unit: str, find_lr: bool, cpu: bool) -> list[str]:
    """Return the arguments of `studio.plan`. Raises DataError for an unknown start, UsageError for a bad time limit."""
    argv = ["studio.plan", project.name, "--projects", str(project.projects)]
    if start not in [name for _, name in start_choices(project.projects)]:
        raise DataError(f"start from {start!r}: this voice no longer exists; choose another")
    if start.startswith("voice:"):
        other = Project(name=start.removeprefix("voice:"), projects=project.projects)
        start = str(check_inside(other, other.voice))
    hours = parse_hours(limit or "", unit)
    argv += ["--from", start, *(["--hours", str(hours)] if hours else [])]
    return [*argv, *(["--find-lr"] if find_lr else []), *(["--cpu"] if cpu else [])]


def parse_hours(limit: str, unit: str) -> float | None:
    """Parse a time limit into hours, None for an empty one. Raises UsageError unless it is above 0 and finite."""
    if not (text := limit.strip()):
        return None
    with suppress(ValueError):
        if 0 < (hours := float(text) * UNITS.get(unit, math.nan)) < math.inf:
            return hours
    raise UsageError(f"time limit: {text!r}, expected a number of {unit} above 0, or nothing")


def describe_plan(project: Project) -> str:
    """Describe a plan, model by model, in Markdown; "" without one. Raises DataError for a damaged one."""
    if not project.plan.exists():
        return ""
    plan = read_plan(check_inside(project, project.plan))
    parts = []
    for name, options in plan.models.items():
        reasons = plan.notes.get("reasons", {}).get(name, {})
        values = plan.groups[name] | {"sharpen_minutes": plan.studio.sharpen_minutes}
        figures, expected = figures_of(plan, name), ""
        if figures and figures.step_seconds:
            seconds = duration(expected_seconds(options, figures))
            expected = f"expected: {seconds} at most on {figures.device}, {describe_source(figures)}"
        table = html_table(("setting", "value", "reason"), explain(values, reasons))
        parts += [f"### {name}", f"<p>{escape(expected)}</p>", table, f"```\n{command_of(name, project)}\n```"]
    whole = "\n\n".join(parts)
    return f"<details><summary>Settings, with their reasons, and the commands</summary>\n\n{whole}\n\n</details>"


def read_rate_plots(project: Project) -> list[tuple[npt.NDArray[np.uint8], str]]:
    """Return the plots of the learning-rate tests as pixels, each with its model."""
    paths = {name: project.root / LEARNING_RATE / f"learning_rate_{name}.png" for name in MODELS}
    found = {name: check_inside(project, path) for name, path in paths.items() if path.is_file()}
    return [(read_png(path.read_bytes()), name) for name, path in found.items()]


def read_text(project: Project) -> str:
    """Return the text of plan.json; "" without one."""
    try:
        return check_inside(project, project.plan).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def save_plan(project: Project, text: str) -> None:
    """Check the text of a plan and write plan.json. Raises DataError for all bad values; then no file has changed.

    Visitors may name no file outside the folder of all projects, except the embedded voice.
    """
    plan = parse_plan(text, project.plan.name)
    if problems := [problem for name in plan.models for problem in path_problems(name, plan, project)]:
        raise DataError("\n".join(f"{project.plan.name}: {problem}" for problem in dict.fromkeys(problems)))
    write_plan(check_inside(project, project.plan), plan.groups)


def path_problems(name: str, plan: Plan, project: Project) -> Iterator[str]:
    """Yield the settings of a model that name files elsewhere, or smuggle a flag into a name or a value."""
    paths = path_options(MODELS[name])
    for group in (SHARED, name):
        for option, value in plan.groups.get(group, {}).items():
            place, values = f"{group}.{option}", value if isinstance(value, list) else [value]
            named = [str(item) for item in values if item is not None]
            start = option == "warm_start"
            folders = [project.projects, EMBEDDED] if start else [project.root]
            if not OPTION.fullmatch(option):
                yield f"{place}: expected an option's name: a-z, 0-9 and _"
            elif any(isinstance(item, str) and item.startswith("-") for item in values):
                yield f"{place}: {json.dumps(value)}, expected a value that does not begin with -"
            elif option in paths and not all(any(is_below(path, folder) for folder in folders) for path in named):
                wanted = "a checkpoint of a project or of the embedded voice" if start else "a file inside the project"
                yield f"{place}: {json.dumps(value)}, expected {wanted}"


def path_options(spec: ModelSpec) -> frozenset[str]:
    """Return the training options of a model that name a file or a folder."""
    actions = model_parser(spec, Parser(add_help=False))._actions
    files = [action for action in actions if action.type is Path or action.metavar == "PATH"]
    return PATH_OPTIONS | {flag.lstrip("-").replace("-", "_") for action in files for flag in action.option_strings}


def is_below(path: str, folder: Path) -> bool:
    """True for a path in a folder, with links followed."""
    return "\0" not in path and Path(path).resolve().is_relative_to(folder.resolve())
