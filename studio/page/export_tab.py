"""The Export tab: pack the voice, export it for other runtimes, download the files; and the commands that do the same."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from common.errors import UsageError
from exports.targets import TARGETS, missing_parts
from studio import export
from studio.jobs.jobs import Job
from studio.page.context import Context
from studio.page.events import HIDDEN, choose, errors_in_words, shorten
from studio.project import Project

SHARE, EXPORT = "share", "export"  # names of runs
TICK = 1.0  # seconds between updates of a run
LINES = 8  # of its log


class Exporter:
    """The events of the tab."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def share(self, project: str | None) -> list[Any]:
        """Start studio.share; returns the values of `look`. Raises gr.Error."""
        with errors_in_words(self.context):
            self._start(choose(self.context, project), SHARE, [])
        return self.look(project)

    def export(self, project: str | None, targets: list[str]) -> list[Any]:
        """Start studio.export; returns the values of `look`. Raises gr.Error."""
        with errors_in_words(self.context):
            found = choose(self.context, project)
            known = [target for target in TARGETS if target in (targets or [])]
            if not known:
                raise UsageError("choose a runtime first")
            self._start(found, EXPORT, known)
        return self.look(project)

    def look(self, project: str | None) -> list[Any]:
        """Return the newest run's state and log, the files for download, the commands, and an update of the timer."""
        if not project:
            return ["", "", "", "", gr.Timer(active=False)]
        with errors_in_words(self.context):
            found = choose(self.context, project)
            job = self._newest(found)
            state = shorten(self.context, job.message) if job else "Nothing has been exported yet."
            log = shorten(self.context, job.tail(LINES)) if job else ""
            commands = "\n".join(["The same on the command line:\n\n```", *export.describe_commands(found), "```"])
            return [state, log, links(found), commands, gr.Timer(active=bool(job and job.is_active))]

    def _start(self, project: Project, name: str, targets: list[str]) -> None:
        project.require(project.voice, "studio.train")
        argv = [f"studio.{name}", project.name, *targets, "--projects", str(self.context.projects)]
        self.context.jobs.start(project, name, argv)

    def _newest(self, project: Project) -> Job | None:
        jobs = [job for name in (SHARE, EXPORT) if (job := self.context.jobs.find(project, name))]
        return max(jobs, key=lambda job: job.run.started, default=None)


def links(project: Project) -> str:
    """List the files for download as HTML."""
    items = []
    for found in export.list_downloads(project):
        size = f"{found.size / 1e6:.1f} MB" if found.size >= 1e5 else f"{found.size / 1e3:.1f} kB"
        name = escape(found.name)
        items.append(f'<li><a href="download/{project.name}/{name}" download>{name}</a> ({size})</li>')
    return f'<ul class="downloads">{"".join(items)}</ul>' if items else "<p>No files yet.</p>"


def add_export_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    exporter = Exporter(context)
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
    state = gr.Textbox(label="State", interactive=False, lines=1, elem_id="export-state")
    log = gr.Textbox(label="Log", interactive=False, lines=4, max_lines=LINES, elem_id="export-log")
    files = gr.HTML(elem_id="downloads")
    commands = gr.Markdown(elem_id="export-commands")
    timer = gr.Timer(TICK, active=False)
    outputs = [state, log, files, commands, timer]
    tab: Any = share.parent
    share.click(exporter.share, [project], outputs, **HIDDEN)
    button.click(exporter.export, [project, targets], outputs, **HIDDEN)
    gr.on([timer.tick, tab.select], exporter.look, [project], outputs, **HIDDEN)
    gr.on(None, exporter.look, [project], outputs, **HIDDEN)  # at load, and when another project is chosen
