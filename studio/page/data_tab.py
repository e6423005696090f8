"""The Data tab: a project, its recordings, the recorder of the reading script, their preparation, and the review of the clips."""

from __future__ import annotations

from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from common.progress import counted
from studio.page import editing
from studio.page.events import HIDDEN, IN_TURN, Context, ProjectPage, RunButton, make_audio
from studio.page.reading import check_take, first_open, keep_take, kept_takes, make_take, read_script
from studio.page.recordings import describe_storage, fates_table, list_recordings, prepare_argv, store_files
from studio.prepare.review import NO, YES, ClipRow
from studio.project import Project, create_project, find_project, list_projects

WIDTHS: list[str | int] = ["8%", "16%", "42%", "24%", "10%"]
Edits = dict[str, editing.Edit]
ABOUT = """**Rights.** Use recordings of your own voice, or of a speaker who has agreed to this use.

Drop recordings here (wav, flac, mp3, m4a …), and transcripts with the same names (txt, srt, json …) if you have any."""
LANGUAGE = "a code such as es; empty: the one that Whisper hears, if it is installed, else English"
READING = (
    "Read each sentence as the voice should speak, with half a second of silence before and after it. "
    "The sentences contain nearly all pairs of sounds of English, in about six minutes."
)


def add_data_tab(page: ProjectPage) -> None:
    add_new_project(page)
    gr.Markdown(ABOUT)
    stored = add_files(page)
    recorder = gr.Group()
    with gr.Accordion("Options", open=False):
        language = gr.Textbox(label="Language", placeholder=LANGUAGE, max_lines=1, elem_id="language")
        several = gr.Checkbox(label="Continue even if there are several speakers", elem_id="several")
    with gr.Row():
        button = gr.Button("Prepare", variant="primary", elem_id="prepare")
        stop = gr.Button("Stop", visible=False, elem_id="prepare-stop")
    key = page.add_run([RunButton(button, "prepare", prepare_argv, [language, several])], stop)
    with recorder:
        add_reading(page, key, stored)
    add_review(page, key)
    page.on(key.change, lambda project: "\n".join(list_recordings(project)), [], [stored], clears=True)


def add_new_project(page: ProjectPage) -> None:
    """Add the field for a new project's name."""
    projects = page.context.projects
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
        if name in list_projects(projects):  # made elsewhere after this page was loaded
            gr.Info(f"project {name}: it exists already, and is chosen now")
        else:
            name = create_project(projects, name).name
        return gr.Dropdown(list_projects(projects), value=name), ""

    events = [create.click, name.submit]
    gr.on(events, page.context.in_words(make), name, [page.field, name], **IN_TURN, **HIDDEN)


def add_files(page: ProjectPage) -> gr.Textbox:
    """Add the drop zone for files, and the list of the project's files."""
    files = gr.File(
        label="Recordings and transcripts", file_count="multiple", type="filepath", height=150, elem_id="files"
    )
    stored = gr.Textbox(
        label="Files of this project", interactive=False, lines=1, max_lines=8, visible="hidden", elem_id="stored"
    )
    # Shown once it has content, whichever event that is from.
    stored.change(lambda names: gr.Textbox(visible=True if names else "hidden"), stored, stored, **HIDDEN)
    store = page.context.in_words(partial(store_dropped, page.context))
    gr.on([files.upload, page.field.change], store, [files, page.field], [files, stored], **HIDDEN)
    return stored


def store_dropped(context: Context, paths: list[str] | None, name: str | None) -> tuple[Any, Any]:
    """Store dropped files and empty the drop zone; without a project they stay there until there is one."""
    if not paths:
        return gr.skip(), gr.skip()
    if not name:
        return gr.skip(), f"these files wait for a project, create one or choose one above: {len(set(paths))}"
    chosen = find_project(context.projects, name)
    return None, describe_storage(chosen, store_files(chosen, [Path(path) for path in paths]))


def add_reading(page: ProjectPage, key: gr.State, stored: gr.Textbox) -> None:
    """Add the recorder of the reading script, one sentence at a time; `stored` lists the project's files."""
    number = gr.State(0)
    with gr.Accordion("Record the reading script", open=False, elem_id="reading"):
        gr.Markdown(READING)
        sentence = gr.HTML(elem_id="sentence")
        take = gr.Audio(sources=["microphone"], format="wav", editable=False, label="Take", elem_id="take")
        message = gr.Textbox(label="This take", interactive=False, lines=1, max_lines=3, elem_id="take-check")
        with gr.Row():
            names = ("Previous sentence", -1), ("Next sentence", 1), ("Again", 0)
            moves = [(gr.Button(words, elem_id=f"take-{words.split()[0].lower()}"), step) for words, step in names]
            keep = gr.Button("Keep", variant="primary", elem_id="take-keep")

    def show(project: Project, place: int) -> tuple[Any, ...]:
        return place, describe(project, place), None, ""  # without a take

    def move(step: int, project: Project, place: int | None) -> tuple[Any, ...]:
        return show(project, ((place or 0) + step) % len(read_script()))

    def store(project: Project, place: int, recorded: Any) -> tuple[Any, ...]:
        keep_take(project, place, make_take(recorded))
        return *show(project, first_open(project, place)), "\n".join(list_recordings(project))

    outputs = [number, sentence, take, message]
    check = page.context.in_words(lambda recorded: check_take(make_take(recorded)).message if recorded else "")
    take.stop_recording(check, take, message, **HIDDEN)
    page.on(keep.click, store, [number, take], [*outputs, stored])
    for button, step in moves:
        page.on(button.click, partial(move, step), [number], outputs)
    page.on(key.change, lambda project: show(project, first_open(project)), [], outputs, clears=True)


def describe(project: Project, place: int) -> str:
    """Return a sentence with its place, as HTML."""
    kept = kept_takes(project)
    has_one = ", which has a take" if place in kept else ""
    count = f"Sentence {place + 1} of {len(read_script())}{has_one}; {len(kept)} kept"
    return f'<p>{count}</p><p class="sentence">{escape(read_script()[place])}</p>'


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
        """The components that hold edits, in the order of `editing.note_edit`."""
        return [self.edits, self.clip, self.use, self.text]


def add_review(page: ProjectPage, key: gr.State) -> None:
    """Add the table and the panel of a clip, which are refreshed when `key` changes."""
    with gr.Column(visible=False) as place:  # until there are clips
        with gr.Accordion("Clips in figures", open=False):
            summary = gr.Textbox(show_label=False, interactive=False, lines=2, max_lines=12, elem_id="summary")
        files = gr.HTML(elem_id="fates", elem_classes="settings")
        table = gr.Dataframe(
            headers=list(editing.COLUMNS),
            interactive=False,
            wrap=True,
            max_height=360,
            column_widths=WIDTHS,
            label="Clips, the worst first",
            elem_id="clips",
        )
        previous, following = add_neighbours()
        panel = add_clip_panel()
        save = gr.Button("Save and apply", variant="primary", elem_id="save")
    outputs = [place, summary, files, table, *panel]
    page.on(key.change, partial(review, page.context), [], outputs, clears=True)

    def save_all(project: Project, *values: Any) -> tuple[Any, ...]:
        page.context.jobs.check_free(project)
        edits = editing.note_edit(editing.read_rows(project), *values)
        editing.save_edits(project, edits)
        return review(page.context, project, values[1], f"saved: {counted(len(edits), 'clip')}")

    def go(distance: int, project: Project, *values: Any, clip: str = "") -> tuple[Any, ...]:
        rows = editing.read_rows(project)
        edits, chosen = editing.note_edit(rows, *values), editing.neighbour(rows, clip or values[1], distance)
        return clip_values(project, chosen, edits)

    def select(project: Project, edits: Edits, clip: str, use: str | None, text: str, event: gr.SelectData) -> Any:
        return go(0, project, edits, clip, use, text, clip=str(event.row_value[1]))

    page.on(save.click, save_all, panel.inputs, outputs)
    page.on(table.select, select, panel.inputs, panel)
    page.on(previous.click, partial(go, -1), panel.inputs, panel)
    page.on(following.click, partial(go, 1), panel.inputs, panel)


def add_neighbours() -> tuple[gr.Button, gr.Button]:
    """Add the buttons to the clip before and to the one after."""
    with gr.Row():
        previous = gr.Button("Previous clip", min_width=120, elem_id="previous")
        following = gr.Button("Next clip", min_width=120, elem_id="next")
    return previous, following


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
    rows = editing.read_rows(project)
    about = context.shorten(editing.summarize(project, rows)), fates_table(project, rows), editing.table_of(rows)
    return gr.Column(visible=bool(rows)), *about, *clip_values(project, editing.neighbour(rows, clip, 0), {}, message)


def clip_values(project: Project, row: ClipRow | None, edits: Edits, message: str = "") -> tuple[Any, ...]:
    """Return the panel's values for a clip, with its edit; empty ones without a clip."""
    words = message or editing.describe_edits(edits)
    if row is None:
        return "", None, "", "", "", None, edits, words
    edit = edits.get(row.clip, editing.Edit(row.use, row.text))
    sound = editing.read_clip(project, row.clip)
    return row.clip, sound, row.faults or "none", row.recognised, edit.text, edit.use, edits, words
