"""The review in the Data tab: the table of clips, one clip with its sound, and unsaved edits."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import gradio as gr

from common.progress import counted
from studio.page.editing import (
    COLUMNS,
    Edit,
    describe_edits,
    neighbour,
    note_edit,
    read_clip,
    read_rows,
    save_edits,
    summarize,
    table_of,
)
from studio.page.events import Context, ProjectPage, make_audio
from studio.page.recordings import fates_table
from studio.prepare.review import NO, YES, ClipRow
from studio.project import Project

WIDTHS: list[str | int] = ["8%", "16%", "42%", "24%", "10%"]
Edits = dict[str, Edit]


class ClipPanel(NamedTuple):
    """The components of the chosen clip, and the unsaved edits, in the order of `clip_values`."""

    clip: gr.Textbox
    audio: gr.Audio
    faults: gr.Textbox
    recognised: gr.Textbox
    text: gr.Textbox
    use: gr.Radio
    edits: gr.State
    message: gr.Textbox

    @property
    def inputs(self) -> list[Any]:
        """The components that hold edits, in the order of `note`."""
        return [self.edits, self.clip, self.use, self.text]


def add_review(page: ProjectPage, key: gr.State) -> None:
    """Add the table and the panel of a clip, which are refreshed when `key` changes."""
    summary = gr.Textbox(label="Clips", interactive=False, lines=2, max_lines=12, elem_id="summary")
    files = gr.HTML(elem_id="fates", elem_classes="settings")
    table = gr.Dataframe(
        headers=list(COLUMNS),
        interactive=False,
        wrap=True,
        max_height=360,
        column_widths=WIDTHS,
        label="Clips, the worst first",
        elem_id="clips",
    )
    with gr.Row():
        previous = gr.Button("Previous clip", min_width=120, elem_id="previous")
        following = gr.Button("Next clip", min_width=120, elem_id="next")
    panel = add_clip_panel()
    save = gr.Button("Save and apply", variant="primary", elem_id="save")
    outputs = [summary, files, table, *panel]
    page.on(key.change, partial(review, page.context), [], outputs, clears=True)

    def save_all(project: Project, *values: Any) -> tuple[Any, ...]:
        page.context.jobs.check_free(project)
        edits = note(read_rows(project), *values)
        save_edits(project, edits)
        return review(page.context, project, values[1], f"saved: {counted(len(edits), 'clip')}")

    def go(distance: int, project: Project, *values: Any, clip: str = "") -> tuple[Any, ...]:
        rows = read_rows(project)
        return clip_values(project, neighbour(rows, clip or values[1], distance), note(rows, *values))

    def select(
        project: Project, edits: Edits, clip: str, use: str | None, text: str, event: gr.SelectData
    ) -> tuple[Any, ...]:
        return go(0, project, edits, clip, use, text, clip=str(event.row_value[1]))

    page.on(save.click, save_all, panel.inputs, outputs)
    page.on(table.select, select, panel.inputs, panel)
    page.on(previous.click, partial(go, -1), panel.inputs, panel)
    page.on(following.click, partial(go, 1), panel.inputs, panel)


def add_clip_panel() -> ClipPanel:
    """Add the components of one clip."""
    clip = gr.Textbox(label="Clip", interactive=False, max_lines=1, elem_id="clip")
    audio = make_audio("Sound", "clip-audio")
    with gr.Row():
        faults = gr.Textbox(label="Faults", interactive=False, min_width=260, elem_id="faults")
        recognised = gr.Textbox(label="Recognised words", interactive=False, min_width=260, elem_id="recognised")
    text = gr.Textbox(label="Transcript", lines=2, elem_id="transcript")
    use = gr.Radio([YES, NO], label="Use this clip", elem_id="use")
    message = gr.Textbox(label="Edits", interactive=False, lines=1, max_lines=3, elem_id="edits")
    return ClipPanel(clip, audio, faults, recognised, text, use, gr.State({}), message)


def review(context: Context, project: Project, clip: str = "", message: str = "") -> tuple[Any, ...]:
    """Return the values of all components, without edits; `clip` is the chosen one, if it is there."""
    rows = read_rows(project)
    about = context.shorten(summarize(project, rows)), fates_table(project, rows), table_of(rows)
    return *about, *clip_values(project, neighbour(rows, clip, 0), {}, message)


def note(rows: list[ClipRow], edits: Edits | None, clip: str, use: str | None, text: str) -> Edits:
    """Return the edits together with the panel's."""
    return note_edit(rows, edits or {}, clip, Edit(use or NO, " ".join((text or "").split())))


def clip_values(project: Project, row: ClipRow | None, edits: Edits, message: str = "") -> tuple[Any, ...]:
    """Return the panel's values for a clip, with its edit; empty ones without a clip."""
    words = message or describe_edits(edits)
    if row is None:
        return "", None, "", "", "", None, edits, words
    edit = edits.get(row.clip, Edit(row.use, row.text))
    sound = read_clip(project, row.clip)
    return row.clip, sound, row.faults or "none", row.recognised, edit.text, edit.use, edits, words
