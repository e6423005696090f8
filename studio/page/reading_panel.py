"""The recorder in the Data tab: the reading script, one sentence at a time, with the level of the microphone."""

from __future__ import annotations

import functools
from html import escape
from typing import Any

import gradio as gr

from studio.page.context import Context
from studio.page.events import HIDDEN, choose, in_words
from studio.page.reading import LOUD, QUIET, check_take, first_open, keep_take, kept_takes, make_take, read_script
from studio.page.recordings import list_recordings

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
