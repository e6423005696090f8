"""The Plan tab: training settings with their reasons, and plan.json to edit."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from studio.page.events import HIDDEN, ProjectPage, RunButton
from studio.page.plan_review import (
    UNITS,
    describe_plan,
    plan_argv,
    read_rate_plots,
    read_text,
    save_plan,
    start_choices,
)
from studio.project import Project

ABOUT = (
    "Times ten steps and one quality report of each model on this machine, and proposes settings that suit the clips."
)
EDITING = "`options` takes any other option of train.py by name, with `_` instead of `-`."


def add_plan_tab(page: ProjectPage) -> None:
    """Add the tab."""
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
        stop = gr.Button("Stop", elem_id="plan-stop")
    options = [start, limit, unit, find_lr]
    key = page.add_run([RunButton(button, "plan", partial(plan_argv, cpu=context.cpu), options)], stop)
    plan = gr.Markdown(elem_id="plan-models", elem_classes="settings")
    plots = gr.Gallery(label="Tests of learning rates: loss over the rate", visible=False, elem_id="plan-rates")
    with gr.Accordion("plan.json", open=False):
        gr.Markdown(EDITING)
        text = gr.Code(language="json", label="plan.json", max_lines=30, elem_id="plan-text")
        save = gr.Button("Check and save", elem_id="plan-save")
        result = gr.Textbox(label="Result", interactive=False, max_lines=1, elem_id="plan-result")

    def show(project: Project) -> tuple[Any, ...]:
        found = read_rate_plots(project)
        return describe_plan(project), gr.Gallery(value=found, visible=bool(found)), read_text(project), ""

    def save_text(project: Project, text: str) -> tuple[Any, ...]:
        context.jobs.check_free(project)
        save_plan(project, text)
        return *show(project)[:-1], "saved"

    outputs = [plan, plots, text, result]
    page.on(key.change, show, [], outputs, clears=True)
    page.on(save.click, save_text, [text], outputs)
    page.field.change(lambda: gr.Dropdown(start_choices(context.projects)), None, start, **HIDDEN)
