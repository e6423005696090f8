"""The Export tab: pack the voice, export it for other runtimes, download the files; and the commands that do the same."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from common.errors import UsageError
from exports.targets import TARGETS, missing_parts
from studio.export import describe_commands, list_downloads
from studio.page.events import ProjectPage, RunButton
from studio.project import Project


def add_export_tab(page: ProjectPage) -> None:
    share = gr.Button("Pack the voice", variant="primary", elem_id="share")
    missing = {target: missing_parts(target) for target in TARGETS}
    installed = [target for target in TARGETS if not missing[target]]
    targets = gr.CheckboxGroup(
        installed, label="Other runtimes", info="docs/exports.md compares them.", elem_id="targets"
    )
    button = gr.Button("Export", elem_id="export")
    if any(missing.values()):
        lines = [f"- {target}: {page.context.shorten(words)}" for target, words in missing.items() if words]
        gr.Markdown("Not available here yet:\n\n" + "\n".join(lines), elem_id="missing-targets")
    key = page.add_run([RunButton(share, "share", share_argv), RunButton(button, "export", export_argv, [targets])])
    files, commands = gr.HTML(elem_id="downloads"), gr.Markdown(elem_id="export-commands")
    tab: Any = share.parent
    page.on([key.change, tab.select], show, [], [files, commands], clears=True)


def share_argv(project: Project) -> list[str]:
    """Return the arguments of studio.share. Raises DataError without a voice."""
    project.require(project.voice, "studio.train")
    return ["studio.share", project.name, "--projects", str(project.projects)]


def export_argv(project: Project, targets: Sequence[str] | None) -> list[str]:
    """Return the arguments of studio.export. Raises UsageError without a target, DataError without a voice."""
    known = [target for target in TARGETS if target in (targets or [])]
    if not known:
        raise UsageError("choose a runtime first")
    project.require(project.voice, "studio.train")
    return ["studio.export", project.name, *known, "--projects", str(project.projects)]


def show(project: Project) -> tuple[str, str]:
    """Return the files for download, as HTML, and the commands, as Markdown."""
    items = []
    for found in list_downloads(project):
        size = f"{found.size / 1e6:.1f} MB" if found.size >= 1e5 else f"{found.size / 1e3:.1f} kB"
        name = escape(found.name)
        items.append(f'<li><a href="download/{project.name}/{name}" download>{name}</a> ({size})</li>')
    files = f'<ul class="downloads">{"".join(items)}</ul>' if items else "<p>No files yet.</p>"
    return files, "\n".join(["The same on the command line:\n\n```", *describe_commands(project), "```"])
