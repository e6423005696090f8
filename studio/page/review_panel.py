"""The review in the Data tab: the table of clips, one clip with its sound, and unsaved edits."""

from __future__ import annotations

from typing import Any, NamedTuple

import gradio as gr

from common.progress import counted
from studio.page.context import Context
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
from studio.page.events import HIDDEN, choose, html_table, in_words, make_audio, shorten
from studio.page.recordings import FileFate, list_fates
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


def add_review(context: Context, project: gr.Dropdown, key: gr.State) -> None:
    """Add the table and the panel of a clip, which are refreshed when `key` changes."""
    summary = gr.Textbox(label="Clips", interactive=False, lines=2, max_lines=12, elem_id="summary")
    files = gr.HTML(elem_id="fates", elem_classes="settings")
    table = add_table()
    with gr.Row():
        previous = gr.Button("Previous clip", min_width=120, elem_id="previous")
        following = gr.Button("Next clip", min_width=120, elem_id="next")
    panel = add_clip_panel()
    save = gr.Button("Save and apply", variant="primary", elem_id="save")

    def show(name: str | None) -> tuple[Any, ...]:
        chosen = choose(context, name) if name else None
        rows = read_rows(chosen) if chosen else []
        first = rows[0] if rows else None
        return (*describe(chosen, rows), table_of(rows), *clip_values(chosen, first, {}))

    def describe(project: Project | None, rows: list[ClipRow]) -> tuple[str, str]:
        if project is None:
            return "", ""
        return shorten(context, summarize(project, rows)), fates_table(list_fates(project, rows))

    def save_all(name: str | None, *values: Any) -> tuple[Any, ...]:
        chosen = choose(context, name)
        context.jobs.check_free(chosen)
        edits, clip = note(read_rows(chosen), *values), values[1]
        save_edits(chosen, edits)
        rows = read_rows(chosen)
        row = neighbour(rows, clip, 0)
        return (
            *describe(chosen, rows),
            table_of(rows),
            *clip_values(chosen, row, {}, f"saved: {counted(len(edits), 'clip')}"),
        )

    outputs = [summary, files, table, *panel]
    key.change(in_words(context, show), project, outputs, **HIDDEN)
    save.click(in_words(context, save_all), [project, *panel.inputs], outputs, **HIDDEN)
    connect_choice(context, project, table, panel, [(previous, -1), (following, 1)])


def add_table() -> gr.Dataframe:
    """Add the table of clips."""
    return gr.Dataframe(
        headers=list(COLUMNS),
        type="array",
        interactive=False,
        wrap=True,
        max_height=360,
        column_widths=WIDTHS,
        label="Clips, the worst first",
        elem_id="clips",
    )


def fates_table(fates: list[FileFate]) -> str:
    """Return what became of each file as an HTML table, folded; "" without any."""
    if not fates:
        return ""
    table = html_table(("file", "minutes used", "minutes not used", "what became of it"), fates)
    return f"<details open><summary>Files</summary>{table}</details>"


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


def connect_choice(
    context: Context, project: gr.Dropdown, table: gr.Dataframe, panel: ClipPanel, steps: list[tuple[gr.Button, int]]
) -> None:
    """Connect the table and the buttons with the panel; leaving a clip notes its edit."""

    def go(name: str | None, distance: int, values: tuple[Any, ...], clip: str) -> tuple[Any, ...]:
        chosen = choose(context, name)
        rows = read_rows(chosen)
        return clip_values(chosen, neighbour(rows, clip, distance), note(rows, *values))

    def select(
        name: str | None, edits: Edits, clip: str, use: str | None, text: str, event: gr.SelectData
    ) -> tuple[Any, ...]:
        return go(name, 0, (edits, clip, use, text), str(event.row_value[1]))

    inputs = [project, *panel.inputs]
    table.select(in_words(context, select), inputs, list(panel), **HIDDEN)
    for button, distance in steps:

        def step(name: str | None, *values: Any, distance: int = distance) -> tuple[Any, ...]:
            return go(name, distance, values, values[1])

        button.click(in_words(context, step), inputs, list(panel), **HIDDEN)


def note(rows: list[ClipRow], edits: Edits, clip: str, use: str | None, text: str) -> Edits:
    """Return the edits together with the panel's."""
    return note_edit(rows, edits, clip, Edit(use or NO, " ".join(text.split()))) if clip else edits


def clip_values(project: Project | None, row: ClipRow | None, edits: Edits, message: str = "") -> tuple[Any, ...]:
    """Return the panel's values for a clip, with its edit; empty ones without a clip."""
    words = message or describe_edits(edits)
    if project is None or row is None:
        return "", None, "", "", "", None, edits, words
    edit = edits.get(row.clip, Edit(row.use, row.text))
    sound = read_clip(project, row.clip)
    return row.clip, sound, row.faults or "none", row.recognised, edit.text, edit.use, edits, words
