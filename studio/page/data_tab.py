"""The Data tab: a project, its recordings, the recorder of the reading script, and their preparation."""

from __future__ import annotations

import functools
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from studio.page.context import Context
from studio.page.events import HIDDEN, IN_TURN, add_run_panel, choose, connect_run, in_words
from studio.page.reading import LOUD, QUIET, check_take, first_open, keep_take, kept_takes, make_take, read_script
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

    key = connect_run(context, project, panel, [RUN], [(start, begin, [language, several])], stop)
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


# --- the recorder: the reading script, one sentence at a time, with the level of the microphone ---

ABOUT = (
    "Read each sentence as the voice should speak, with half a second of silence before and after it. "
    "The sentences contain nearly all pairs of sounds of English, in about six minutes."
)
METER = (
    '<label for="record-meter">Level of the microphone</label> '
    f'<meter id="record-meter" min="-60" max="0" low="{QUIET:g}" high="{LOUD:g}" optimum="-20" value="-60"></meter>'
)
# Gradio's recorder has no meter. The peak of the last 2,048 samples, in dB, while it records.
START_METER = """async () => {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  const context = new AudioContext(), analyser = context.createAnalyser();
  const samples = new Float32Array(analyser.fftSize);
  context.createMediaStreamSource(stream).connect(analyser);
  window.stopMeter = () => { stream.getTracks().forEach((track) => track.stop()); context.close(); };
  const draw = () => {
    if (context.state === "closed") return;
    analyser.getFloatTimeDomainData(samples);
    const peak = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 1e-3);
    document.getElementById("record-meter").value = 20 * Math.log10(peak);
    requestAnimationFrame(draw);
  };
  draw();
}"""
STOP_METER = "() => { window.stopMeter?.(); }"


def add_reading(context: Context, project: gr.Dropdown, key: gr.State, stored: gr.Textbox) -> None:
    """Add the recorder; `stored` lists the project's files."""
    number = gr.State(0)
    with gr.Accordion("Record the reading script", open=False, elem_id="reading"):
        gr.Markdown(ABOUT)
        sentence = gr.HTML(elem_id="sentence")
        take = gr.Audio(sources=["microphone"], format="wav", editable=False, label="Take", elem_id="take")
        gr.HTML(METER)
        message = gr.Textbox(label="This take", interactive=False, lines=1, max_lines=3, elem_id="take-check")
        with gr.Row():
            names = ("Previous sentence", -1), ("Next sentence", 1), ("Again", 0)
            moves = [(gr.Button(words, elem_id=f"take-{words.split()[0].lower()}"), step) for words, step in names]
            keep = gr.Button("Keep", variant="primary", elem_id="take-keep")

    def show(name: str | None, place: int) -> tuple[Any, ...]:
        return place, describe(context, name, place), None, ""  # without a take

    def move(step: int, name: str | None, place: int) -> tuple[Any, ...]:
        return show(name, (place + step) % len(read_script()))

    def check(recorded: Any) -> str:
        return "" if recorded is None else check_take(make_take(recorded)).message

    def store(name: str | None, place: int, recorded: Any) -> tuple[Any, ...]:
        chosen = choose(context, name)
        keep_take(chosen, place, make_take(recorded))
        return *show(name, first_open(chosen, place)), "\n".join(list_recordings(chosen))

    def begin(name: str | None) -> tuple[Any, ...]:
        return show(name, first_open(choose(context, name)) if name else 0)

    outputs = [number, sentence, take, message]
    take.start_recording(None, None, None, js=START_METER, **HIDDEN)
    take.stop_recording(None, None, None, js=STOP_METER, **HIDDEN)
    take.stop_recording(in_words(context, check), take, message, **HIDDEN)
    keep.click(in_words(context, store), [project, number, take], [*outputs, stored], **HIDDEN)
    for button, step in moves:
        button.click(in_words(context, functools.partial(move, step)), [project, number], outputs, **HIDDEN)
    key.change(in_words(context, begin), project, outputs, **HIDDEN)


def describe(context: Context, name: str | None, place: int) -> str:
    """Return a sentence with its place, as HTML."""
    kept = kept_takes(choose(context, name)) if name else set()
    has_one = ", which has a take" if place in kept else ""
    count = f"Sentence {place + 1} of {len(read_script())}{has_one}; {len(kept)} kept"
    return f'<p>{count}</p><p class="sentence">{escape(read_script()[place])}</p>'
