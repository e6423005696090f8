"""The Data tab: a project, its recordings, and their preparation."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gradio as gr

from studio.page.context import Context
from studio.page.events import HIDDEN, IN_TURN, add_run_panel, choose, connect_run, in_words
from studio.page.reading_panel import add_reading
from studio.page.recordings import describe_storage, list_recordings, prepare_argv, store_files
from studio.page.review_panel import add_review
from studio.prepare.arguments import TextConfig
from studio.project import create_project, list_projects

RIGHTS = "**Rights.** Use recordings of your own voice, or of a speaker who has agreed to this use."
FILES = "Drop recordings here (wav, flac, mp3, m4a …), and transcripts with the same names (txt, srt, json …) if you have any."
RUN = "prepare"


def add_data_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    add_new_project(context, project)
    gr.Markdown(f"{RIGHTS}\n\n{FILES}")
    stored = add_files(context, project)
    recorder = gr.Group()
    with gr.Accordion("Options", open=False):
        language = gr.Textbox(TextConfig.language, label="Language", max_lines=1, elem_id="language")
        several = gr.Checkbox(label="Continue even if there are several speakers", elem_id="several")
    with gr.Row():
        start = gr.Button("Prepare", variant="primary", elem_id="prepare")
        stop = gr.Button("Stop", elem_id="prepare-stop")
    panel = add_run_panel(RUN)

    def begin(name: str | None, language: str, several: bool) -> None:
        chosen = choose(context, name)
        context.jobs.start(chosen, RUN, prepare_argv(chosen, language, several))

    key = connect_run(context, project, panel, RUN, begin, start, stop, [language, several])
    with recorder:
        add_reading(context, project, key, stored)
    add_review(context, project, key)

    def list_files(name: str | None) -> str:
        return "\n".join(list_recordings(choose(context, name))) if name else ""

    key.change(in_words(context, list_files), project, stored, **HIDDEN)


def add_new_project(context: Context, project: gr.Dropdown) -> None:
    """Add the field for a new project's name."""
    with gr.Row(equal_height=True):
        name = gr.Textbox(
            label="Name of a new project",
            placeholder="Latin letters, digits, - and _",
            max_lines=1,
            min_width=160,
            elem_id="new-project",
        )
        create = gr.Button("Create project", min_width=140, elem_id="create")

    def make(name: str) -> tuple[Any, str]:
        if name in list_projects(context.projects):  # made elsewhere after this page was loaded
            gr.Info(f"project {name}: it exists already, and is chosen now")
            new = name
        else:
            new = create_project(context.projects, name).name
        return gr.Dropdown(list_projects(context.projects), value=new), ""

    gr.on([create.click, name.submit], in_words(context, make), name, [project, name], **IN_TURN, **HIDDEN)


def add_files(context: Context, project: gr.Dropdown) -> gr.Textbox:
    """Add the drop zone for files, and the list of the project's files."""
    files = gr.File(
        label="Recordings and transcripts", file_count="multiple", type="filepath", height=150, elem_id="files"
    )
    stored = gr.Textbox(label="Files of this project", interactive=False, lines=1, max_lines=8, elem_id="stored")

    store = in_words(context, functools.partial(store_dropped, context))
    gr.on([files.upload, project.change], store, [files, project], [files, stored], **HIDDEN)
    return stored


def store_dropped(context: Context, paths: list[str] | None, name: str | None) -> tuple[Any, Any]:
    """Store dropped files and empty the drop zone; without a project they stay there until there is one."""
    if not paths:
        return gr.skip(), gr.skip()
    if not name:
        return gr.skip(), f"these files wait for a project, create one or choose one above: {len(set(paths))}"
    chosen = choose(context, name)
    return None, describe_storage(chosen, store_files(chosen, [Path(path) for path in paths]))
