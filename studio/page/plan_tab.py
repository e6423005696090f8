"""The Plan tab: training settings with their reasons, and plan.json to edit."""

from __future__ import annotations

from typing import Any

import gradio as gr

from studio.page.context import Context
from studio.page.events import HIDDEN, add_run_panel, choose, connect_run, html_table, in_words, make_picture
from studio.page.plan_review import (
    UNITS,
    plan_argv,
    read_explanations,
    read_need,
    read_rate_plot,
    read_text,
    save_plan,
    start_choices,
)
from studio.plan.file import MODELS
from studio.project import Project

RUN = "plan"
ABOUT = (
    "Times ten steps and one quality report of each model on this machine, and proposes settings that suit the clips."
)
EDITING = "`options` takes any other option of train.py by name, with `_` instead of `-`."


def add_plan_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    gr.Markdown(ABOUT)
    choices = start_choices(context.projects)
    with gr.Row():
        start = gr.Dropdown(choices, value=choices[0][1], label="Start from", min_width=200, elem_id="start")
        limit = gr.Textbox(label="Time limit", placeholder="no limit", max_lines=1, min_width=120, elem_id="limit")
        unit = gr.Radio(list(UNITS), value="hours", label="Unit", min_width=160, elem_id="unit")
    find_lr = gr.Checkbox(label="Test learning rates first (about 100 steps a model)", elem_id="find-lr")
    with gr.Row():
        button = gr.Button("Make a plan", variant="primary", elem_id="plan")
        stop = gr.Button("Stop", elem_id="plan-stop")
    panel = add_run_panel(RUN)

    def begin(name: str | None, start: str, limit: str, unit: str, find_lr: bool) -> None:
        chosen = choose(context, name)
        context.jobs.start(chosen, RUN, plan_argv(chosen, start, limit, unit, find_lr, context.cpu))

    key = connect_run(context, project, panel, [RUN], [(button, begin, [start, limit, unit, find_lr])], stop)
    need = gr.Textbox(label="Time that is needed", interactive=False, visible=False, elem_id="plan-need")
    views = [need, *(component for name in MODELS for component in add_model(name))]
    text, save, result = add_editor()

    def show(name: str | None) -> tuple[Any, ...]:
        chosen = choose(context, name) if name else None
        return *explanations(chosen), read_text(chosen) if chosen else ""

    def save_text(name: str | None, text: str) -> tuple[Any, ...]:
        chosen = choose(context, name)
        context.jobs.check_free(chosen)
        save_plan(chosen, text)
        return *show(name), "saved"

    key.change(in_words(context, show), project, [*views, text], **HIDDEN)
    save.click(in_words(context, save_text), [project, text], [*views, text, result], **HIDDEN)
    project.change(lambda: gr.Dropdown(start_choices(context.projects)), None, start, **HIDDEN)


def add_model(name: str) -> list[Any]:
    """Add the components of one model, in the order of `explanations`."""
    label = f"plan-{name.lower()}"
    with gr.Accordion(name, open=True):
        expected = gr.Textbox(label="Time", interactive=False, lines=1, elem_id=f"{label}-time")
        table = gr.HTML(elem_id=f"{label}-settings", elem_classes="settings")
        plot = make_picture(f"{label}-rates", f"Learning-rate test of {name}: loss over the rate")
        command = gr.Textbox(
            label="Command", interactive=False, lines=2, max_lines=8, buttons=["copy"], elem_id=f"{label}-command"
        )
    return [expected, table, plot, command]


def add_editor() -> tuple[gr.Code, gr.Button, gr.Textbox]:
    """Add the text of plan.json."""
    with gr.Accordion("plan.json", open=False):
        gr.Markdown(EDITING)
        text = gr.Code(language="json", label="plan.json", max_lines=30, elem_id="plan-text")
        save = gr.Button("Check and save", elem_id="plan-save")
        result = gr.Textbox(label="Result", interactive=False, max_lines=1, elem_id="plan-result")
    return text, save, result


def explanations(project: Project | None) -> list[Any]:
    """Return the values of the note and of all models' components; empty ones without a plan."""
    found, need = (read_explanations(project), read_need(project)) if project else ({}, "")
    values: list[Any] = [gr.Textbox(value=need, visible=bool(need))]
    for name in MODELS:
        if project is None or name not in found:
            values += ["", "", gr.Image(value=None, visible=False), ""]
            continue
        plot = read_rate_plot(project, name)
        image = gr.Image(value=plot, visible=plot is not None)
        settings = html_table(("setting", "value", "reason"), found[name].settings)
        values += [found[name].expected, settings, image, found[name].command]
    return values
