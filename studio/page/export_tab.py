"""The Export tab: pack the voice, export it for other runtimes, download the files; and the commands that do the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import gradio as gr

from common.errors import UsageError
from exports.targets import TARGETS, missing_parts
from studio.export import describe_commands, list_downloads
from studio.page.context import Context
from studio.page.events import HIDDEN, add_run_panel, choose, connect_run, in_words, shorten
from studio.project import Project

RUNS = SHARE, EXPORT = "share", "export"


def add_export_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    share = gr.Button("Pack the voice", variant="primary", elem_id="share")
    missing = {target: missing_parts(target) for target in TARGETS}
    installed = [target for target in TARGETS if not missing[target]]
    targets = gr.CheckboxGroup(
        installed, label="Other runtimes", info="docs/exports.md compares them.", elem_id="targets"
    )
    button = gr.Button("Export", elem_id="export")
    if any(missing.values()):
        lines = [f"- {target}: {shorten(context, words)}" for target, words in missing.items() if words]
        gr.Markdown("Not available here yet:\n\n" + "\n".join(lines), elem_id="missing-targets")
    panel = add_run_panel(EXPORT)
    files, commands = gr.HTML(elem_id="downloads"), gr.Markdown(elem_id="export-commands")
    starts = [(share, partial(start_share, context), []), (button, partial(start_export, context), [targets])]
    key = connect_run(context, project, panel, RUNS, starts)
    tab: Any = share.parent
    gr.on([key.change, tab.select], in_words(context, partial(show, context)), project, [files, commands], **HIDDEN)


def start_share(context: Context, name: str | None) -> None:
    """Start studio.share. Raises DataError without a voice."""
    _start(context, name, SHARE, [])


def start_export(context: Context, name: str | None, targets: Sequence[str] | None) -> None:
    """Start studio.export. Raises UsageError without a target, DataError without a voice."""
    known = [target for target in TARGETS if target in (targets or [])]
    if not known:
        raise UsageError("choose a runtime first")
    _start(context, name, EXPORT, known)


def _start(context: Context, name: str | None, run: str, targets: Sequence[str]) -> None:
    project = choose(context, name)
    project.require(project.voice, "studio.train")
    argv = [f"studio.{run}", project.name, *targets, "--projects", str(context.projects)]
    context.jobs.start(project, run, argv)


def show(context: Context, name: str | None) -> tuple[str, str]:
    """Return the files for download, as HTML, and the commands, as Markdown."""
    if not name:
        return "", ""
    project = choose(context, name)
    return links(project), "\n".join(["The same on the command line:\n\n```", *describe_commands(project), "```"])


def links(project: Project) -> str:
    """List the files for download as HTML."""
    items = []
    for found in list_downloads(project):
        size = f"{found.size / 1e6:.1f} MB" if found.size >= 1e5 else f"{found.size / 1e3:.1f} kB"
        name = escape(found.name)
        items.append(f'<li><a href="download/{project.name}/{name}" download>{name}</a> ({size})</li>')
    return f'<ul class="downloads">{"".join(items)}</ul>' if items else "<p>No files yet.</p>"
