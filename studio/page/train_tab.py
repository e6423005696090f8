"""The Train tab: start, pause and resume, with losses, pictures and sounds meanwhile."""

from __future__ import annotations

from typing import Any

import gradio as gr

from studio.page.events import ProjectPage, RunButton, make_audio, make_picture
from studio.page.training_view import NOTHING_SEEN, Keys, ReportView, TrainingView, newest_model, studio_train_argv
from studio.plan.file import MODELS
from studio.project import Project
from studio.voice.verdict import read_verdict

NEWEST = "newest"
SOUNDS = 4  # sounds of an evaluation to show
SECONDS = 3.0  # between updates
ABOUT = (
    "Trains the models as planned, writes the voice and judges it. Training continues when you close this page or stop the server. "
    "Pause saves first, and Start resumes from there."
)


def add_train_tab(page: ProjectPage) -> None:
    """Add the tab."""
    gr.Markdown(ABOUT)
    with gr.Row():
        start = gr.Button("Start or resume", variant="primary", elem_id="train")
        pause = gr.Button("Pause", elem_id="pause")
    key = page.add_run([RunButton(start, "train", studio_train_argv)], pause)
    verdict = gr.Textbox(label="Verdict on the voice", interactive=False, lines=2, max_lines=8, elem_id="verdict")
    page.on(key.change, lambda project: "\n".join(read_verdict(project.voice).lines), [], [verdict], clears=True)
    model = gr.Radio([NEWEST, *MODELS], value=NEWEST, label="Model", elem_id="model")
    progress = gr.Textbox(label="Progress", interactive=False, lines=2, elem_id="progress")
    losses = make_picture("losses", "Loss by optimizer step, of training and validation")
    alignment = make_picture("alignment", "Alignment of decoder steps and symbols of a validation clip")
    mel = make_picture("mel", "Target and predicted mel spectrogram of a validation clip")
    sounds = [make_audio("", f"sound-{number}", visible=False) for number in range(SOUNDS)]
    seen, view = gr.State(NOTHING_SEEN), TrainingView()

    def look(project: Project, model: str | None, before: Keys | None) -> tuple[Any, ...]:
        name = newest_model(project) if model in (None, NEWEST) else str(model)
        sight = view.look(project, name, before or NOTHING_SEEN)
        curve = gr.skip() if before and sight.keys.curve == before.curve else show(sight.losses)
        report = [gr.skip()] * (2 + SOUNDS) if sight.report is None else show_report(sight.report)
        return sight.words, curve, *report, sight.keys

    outputs = [progress, losses, alignment, mel, *sounds, seen]
    events = [gr.Timer(SECONDS).tick, page.field.change, model.change]
    page.on(events, look, [model, seen], outputs, clears=True, trigger_mode="multiple")


def show(pixels: Any) -> gr.Image:
    """Return the value of a picture's component, hidden without a picture."""
    return gr.Image(value=pixels, visible=pixels is not None)


def show_report(report: ReportView) -> list[Any]:
    """Return the values of a report's components; those without content are hidden."""
    sounds: list[Any] = [
        gr.Audio(value=(speech.rate, speech.samples), label=f"step {speech.step:,}: {speech.text}", visible=True)
        for speech in report.speeches[:SOUNDS]
    ]
    hidden = [gr.Audio(value=None, visible=False)] * (SOUNDS - len(sounds))
    return [show(report.alignment), show(report.mel), *sounds, *hidden]
