"""What the tabs share: the page of a chosen project, errors as messages, components, and the panel of a run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
from gradio.components import Component

from common.errors import REFUSALS, DataError, UsageError
from studio.jobs.jobs import Job, Jobs
from studio.page.guide import WAITING, write_guide
from studio.project import Project, find_project
from studio.wording import without_folders

Function = TypeVar("Function", bound=Callable[..., Any])
SECONDS = 2.0  # between updates of a run
SHOWN = 10.0  # seconds that an error stays
# For events: on an error, Gradio would put the word "Error" over every field that an event fills.
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# For events that choose a project: the choice made as a page loads could otherwise arrive after a later one.
IN_TURN: dict[str, Any] = {"concurrency_id": "project", "concurrency_limit": 1}


@dataclass(frozen=True)
class Context:
    """The folder of all projects, whether to compute on the CPU only, and the runs of commands."""

    projects: Path
    cpu: bool
    jobs: Jobs

    def shorten(self, text: str) -> str:
        """Remove the folders of this machine from a message."""
        return without_folders(text, self.projects)

    def in_words(self, function: Function) -> Function:
        """Turn user errors and refusals of the system into messages of the page. Paths start at the folder of projects."""

        @functools.wraps(function)
        def call(*values: Any) -> Any:
            try:
                return function(*values)
            except (DataError, UsageError) as error:
                words = str(error)
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
                place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
                words = f"{place}{error.strerror}"
            raise gr.Error(self.shorten(words), duration=SHOWN, print_exception=False)  # the log gets no traceback

        return call  # type: ignore[return-value]


@dataclass(frozen=True)
class ProjectPage:
    """The page, and the field with the project that is chosen above the tabs."""

    context: Context
    field: gr.Dropdown

    def on(
        self,
        events: Any,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        clears: bool = False,
        **options: Any,
    ) -> None:
        """Call a function with the chosen project and the values of `inputs`. It returns those of `outputs`.

        Without a project there is a message, or with `clears` the outputs are emptied.
        """

        @functools.wraps(function)
        def call(name: str | None, *values: Any) -> Any:
            try:
                project = find_project(self.context.projects, name)
            except (DataError, UsageError):
                if not clears:
                    raise
                empty = tuple(None if isinstance(one, Component) else gr.update(visible=False) for one in outputs)
                return empty if len(outputs) > 1 else empty[0]
            return function(project, *values)

        gr.on(events, self.context.in_words(call), [self.field, *inputs], outputs, **HIDDEN, **options)

    def add_run(self, starts: Sequence[RunButton], stop: gr.Button | None = None) -> gr.State:
        """Add the state and the last output of the newest of some runs, and connect the buttons that start and pause them.

        `stop` pauses a run of the first kind. Returns a state that changes with the project, and when a run starts or ends.
        """
        jobs, kinds = self.context.jobs, [start.kind for start in starts]
        guide = gr.HTML(elem_id=f"{kinds[-1]}-guide", elem_classes="guide")
        message = gr.Textbox(label="State", interactive=False, lines=1, visible=False, elem_id=f"{kinds[-1]}-state")
        with gr.Accordion("Output", open=False, visible=False) as fold:
            output = gr.Textbox(
                show_label=False, interactive=False, lines=6, max_lines=14, elem_id=f"{kinds[-1]}-output"
            )
        key = gr.State("")
        outputs = [guide, message, fold, output, key, *([stop] if stop else [])]

        def watch(project: Project) -> tuple[Any, ...]:
            job = newest_job(jobs, project, kinds)
            state = f"{project.name} {job.run.identity} {job.state.value}" if job else project.name
            shown = self.context.shorten(write_guide(kinds[0], project, job)) if kinds[0] in WAITING else ""
            message, output = run_values(self.context, job)
            panel = gr.Textbox(message, visible=bool(message)), gr.Accordion(visible=bool(output)), output
            pausing = [gr.Button(visible=bool(job and job.is_active))] if stop else []
            return shown, *panel, state, *pausing  # each time: an answer may not reach the page

        def run(start: RunButton, project: Project, *values: Any) -> tuple[Any, ...]:
            jobs.start(project, start.kind, start.argv(project, *values))
            return watch(project)

        def pause(project: Project) -> tuple[Any, ...]:
            jobs.pause(project, kinds[0])
            return watch(project)

        for start in starts:
            self.on(start.button.click, functools.partial(run, start), start.options, outputs)
        if stop:
            self.on(stop.click, pause, [], outputs)
        looks = [gr.Timer(SECONDS).tick, self.field.change]
        self.on(looks, watch, [], outputs, clears=True, trigger_mode="multiple")
        return key


@dataclass(frozen=True)
class RunButton:
    """A button that starts a command: the kind of its run, its arguments by the project and the values of the options."""

    button: gr.Button
    kind: str
    argv: Callable[..., list[str]]
    options: Sequence[Any] = ()


def newest_job(jobs: Jobs, project: Project, kinds: Sequence[str]) -> Job | None:
    """Return the newest run of some commands of a project; None without one."""
    found = [job for kind in kinds if (job := jobs.find(project, kind))]
    return max(found, key=lambda job: job.run.started, default=None)


def run_values(context: Context, job: Job | None) -> tuple[str, str]:
    """Return the state and the last lines of output of a run."""
    return (context.shorten(job.message), context.shorten(job.tail())) if job else ("", "")


def make_audio(label: str, name: str, **options: Any) -> gr.Audio:
    """Make a player for finished audio that offers the wav file as a download."""
    return gr.Audio(label=label, interactive=False, format="wav", buttons=["download"], elem_id=name, **options)


def make_picture(name: str, text: str) -> gr.Image:
    """Make a picture. `text` describes it to screen readers; the visible title is part of the picture."""
    looks: dict[str, Any] = {"show_label": False, "format": "png", "buttons": ["fullscreen", "download"]}
    return gr.Image(alt_text=text, interactive=False, elem_id=name, visible=False, **looks)
