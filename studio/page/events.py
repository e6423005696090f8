"""What the tabs share: errors as messages, components, and the panel of a run."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, TypeVar

import gradio as gr

from common.errors import REFUSALS, DataError, UsageError
from studio.jobs.jobs import Job
from studio.page.context import Context
from studio.project import Project, find_project
from studio.wording import without_folders

Function = TypeVar("Function", bound=Callable[..., Any])
SECONDS = 2.0  # between updates of a run
SHOWN = 10.0  # seconds that an error stays
# For events: on an error, Gradio would put the word "Error" over every field that an event fills.
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# For events that choose a project: the choice made as a page loads could otherwise arrive after a later one.
IN_TURN: dict[str, Any] = {"concurrency_id": "project", "concurrency_limit": 1}


@contextmanager
def errors_in_words(context: Context) -> Iterator[None]:
    """Turn user errors and refusals of the system into messages of the page. Paths start at the folder of projects."""
    try:
        yield
    except (DataError, UsageError) as error:
        raise message(context, str(error)) from None
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        raise message(context, f"{place}{error.strerror}") from None


def in_words(context: Context, function: Function) -> Function:
    """Wrap a function in errors_in_words."""

    @functools.wraps(function)
    def call(*values: Any) -> Any:
        with errors_in_words(context):
            return function(*values)

    return call  # type: ignore[return-value]


def message(context: Context, text: str) -> gr.Error:
    """Return the message that the page shows for a user's mistake, for a while; the log gets no traceback."""
    return gr.Error(shorten(context, text), duration=SHOWN, print_exception=False)


def shorten(context: Context, text: str) -> str:
    """Remove the folders of this machine from a message."""
    return without_folders(text, context.projects)


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as an HTML table, the first cell of each its heading: Gradio's would hide the last columns on a phone."""
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    cells = [[escape(cell) for cell in row] for row in rows]
    lines = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def make_audio(label: str, name: str) -> gr.Audio:
    """Make a player for finished audio that offers the wav file as a download."""
    return gr.Audio(label=label, interactive=False, format="wav", buttons=["download"], elem_id=name)


def make_picture(name: str, text: str) -> gr.Image:
    """Make a picture. `text` describes it to screen readers; the visible title is part of the picture."""
    looks: dict[str, Any] = {"show_label": False, "format": "png", "buttons": ["fullscreen", "download"]}
    return gr.Image(alt_text=text, interactive=False, elem_id=name, visible=False, **looks)


def choose(context: Context, name: str | None) -> Project:
    """Return the project chosen above the tabs. Raises DataError if there is none."""
    return find_project(context.projects, name)


def add_run_panel(name: str) -> list[Any]:
    """Add the components that show a run, in the order of `run_values`: its state, and its last lines of output."""
    message = gr.Textbox(label="State", interactive=False, lines=1, elem_id=f"{name}-state")
    with gr.Accordion("Output", open=False):
        output = gr.Textbox(show_label=False, interactive=False, lines=6, max_lines=14, elem_id=f"{name}-output")
    return [message, output]


def run_values(context: Context, job: Job | None) -> tuple[str, str]:
    """Return the values of a panel."""
    if job is None:
        return "", ""
    return shorten(context, job.message), shorten(context, job.tail())


def newest_job(context: Context, name: str | None, kinds: Sequence[str]) -> Job | None:
    """Return the newest run of some commands of the chosen project; None without a run or a project."""
    try:
        jobs = [context.jobs.find(choose(context, name), kind) for kind in kinds]
    except (DataError, UsageError):
        return None
    return max(filter(None, jobs), key=lambda job: job.run.started, default=None)


def connect_run(
    context: Context,
    project: gr.Dropdown,
    panel: list[Any],
    kinds: Sequence[str],
    starts: Sequence[tuple[gr.Button, Callable[..., None], list[Any]]],
    stop: gr.Button | None = None,
) -> gr.State:
    """Connect the buttons of runs, and show the progress of the newest one.

    Each of `starts` is a button, what it calls with the project's name and its options, and the options; `stop` pauses a run of
    the first kind. Returns a state that changes with the project, and when a run starts or ends.
    """
    key = gr.State("")
    outputs = [*panel, key]

    def watch(name: str | None) -> tuple[Any, ...]:
        job = newest_job(context, name, kinds)
        state = f" {job.run.identity} {job.state.value}" if job else ""
        return *run_values(context, job), f"{name}{state}"  # each time: an answer may not reach the page

    def run(begin: Callable[..., None], name: str | None, *values: Any) -> tuple[Any, ...]:
        begin(name, *values)
        return watch(name)

    def pause(name: str | None) -> tuple[Any, ...]:
        context.jobs.pause(choose(context, name), kinds[0])
        return watch(name)

    for start, begin, options in starts:
        start.click(in_words(context, functools.partial(run, begin)), [project, *options], outputs, **HIDDEN)
    if stop:
        stop.click(in_words(context, pause), project, outputs, **HIDDEN)
    looks = [gr.Timer(SECONDS).tick, project.change]
    gr.on(looks, in_words(context, watch), project, outputs, trigger_mode="multiple", **HIDDEN)
    return key
