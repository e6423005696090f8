"""The Train tab: start, pause and resume, with losses, pictures and sounds meanwhile."""

from __future__ import annotations

import functools
from typing import Any

import gradio as gr

from studio.page.context import Context
from studio.page.events import HIDDEN, add_run_panel, choose, connect_run, in_words, make_picture
from studio.page.training_view import NOTHING_SEEN, Keys, ReportView, TrainingView, newest_model, studio_train_argv
from studio.plan.file import MODELS
from studio.voice.verdict import read_verdict

RUN = "train"
NEWEST = "newest"
SOUNDS = 4  # sounds of an evaluation to show
SECONDS = 3.0  # between updates
ABOUT = (
    "Trains the models as planned, writes the voice and judges it. Training continues when you close this page or stop the server. "
    "Pause saves first, and Start resumes from there."
)


def add_train_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    gr.Markdown(ABOUT)
    with gr.Row():
        start = gr.Button("Start or resume", variant="primary", elem_id="train")
        pause = gr.Button("Pause", elem_id="pause")
    panel = add_run_panel(RUN)

    def begin(name: str | None) -> None:
        chosen = choose(context, name)
        context.jobs.start(chosen, RUN, studio_train_argv(chosen))

    key = connect_run(context, project, panel, [RUN], [(start, begin, [])], pause)
    verdict = gr.Textbox(label="Verdict on the voice", interactive=False, lines=2, max_lines=8, elem_id="verdict")
    key.change(in_words(context, functools.partial(find_verdict, context)), project, verdict, **HIDDEN)
    model = gr.Radio([NEWEST, *MODELS], value=NEWEST, label="Model", elem_id="model")
    progress = gr.Textbox(label="Progress", interactive=False, lines=2, elem_id="progress")
    losses = make_picture("losses", "Loss by optimizer step, of training and validation")
    alignment = make_picture("alignment", "Alignment of decoder steps and symbols of a validation clip")
    mel = make_picture("mel", "Target and predicted mel spectrogram of a validation clip")
    sounds = [
        gr.Audio(interactive=False, format="wav", buttons=["download"], visible=False, elem_id=f"sound-{number}")
        for number in range(SOUNDS)
    ]
    seen, view = gr.State(NOTHING_SEEN), TrainingView()

    def look(name: str | None, model: str | None, before: Keys) -> tuple[Any, ...]:
        if not name:
            return "", show(None), *show_report(ReportView()), NOTHING_SEEN
        chosen = choose(context, name)
        sight = view.look(chosen, newest_model(chosen) if model in (None, NEWEST) else str(model), before)
        is_same = sight.keys.curve == before.curve
        curve = gr.skip() if is_same else show(sight.losses)
        report = [gr.skip()] * (2 + SOUNDS) if sight.report is None else show_report(sight.report)
        return sight.words, curve, *report, sight.keys

    outputs = [progress, losses, alignment, mel, *sounds, seen]
    triggers = [gr.Timer(SECONDS).tick, project.change, model.change]
    gr.on(triggers, in_words(context, look), [project, model, seen], outputs, trigger_mode="multiple", **HIDDEN)


def find_verdict(context: Context, name: str | None) -> str:
    """Return the verdict on a project's finished voice; "" without one."""
    return "\n".join(read_verdict(choose(context, name).voice).lines) if name else ""


def show(pixels: Any) -> gr.Image:
    """Return the value of a picture's component, hidden without a picture."""
    return gr.Image(value=pixels, visible=pixels is not None)


def show_report(report: ReportView) -> list[Any]:
    """Return the values of a report's components; those without content are hidden."""
    pictures = [show(picture.pixels if picture else None) for picture in (report.alignment, report.mel)]
    sounds: list[Any] = [
        gr.Audio(value=(speech.rate, speech.samples), label=f"step {speech.step:,}: {speech.text}", visible=True)
        for speech in report.speeches[:SOUNDS]
    ]
    return [*pictures, *sounds, *[gr.Audio(value=None, visible=False)] * (SOUNDS - len(sounds))]
