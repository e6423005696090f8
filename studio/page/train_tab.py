"""The Train tab: start, pause and resume, with losses, pictures and sounds meanwhile."""

from __future__ import annotations

import io
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
import numpy.typing as npt
import soundfile

from common.data.filelist import read_filelist
from common.data.pictures import figure_pixels, plot_losses, read_png
from common.errors import DataError
from common.training.checkup import spread
from studio.page.events import ProjectPage, RunButton, make_audio, make_picture
from studio.plan.file import MODELS, options_in
from studio.project import Project, check_inside
from studio.train.progress import LOG, RunLog, describe
from studio.voice.verdict import read_verdict

NEWEST = "newest"
SOUNDS = 4  # sounds of an evaluation to show
SECONDS = 3.0  # between updates
ABOUT = (
    "Trains the models as planned, writes the voice and judges it. Training continues when you close this page or stop the server. "
    "Pause saves first, and Start resumes from there."
)
TENSORBOARD = "tensorboard"  # of a model's run folder
CURVE_SECONDS = 10.0  # between updates of the curve
SIZES = {"images": 1, "audio": 1, "scalars": 1, "histograms": 1, "tensors": 1, "compressedHistograms": 1}
MEL, ALIGNMENT = ("free_running_mel_0", "mel"), ("free_running_alignment_0", "alignment")  # in order of preference
EVALUATION = "evaluation/"

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)


def add_train_tab(page: ProjectPage) -> None:
    gr.Markdown(ABOUT)
    with gr.Row():
        start = gr.Button("Start or resume", variant="primary", elem_id="train")
        pause = gr.Button("Pause", visible=False, elem_id="pause")
    key = page.add_run([RunButton(start, "train", studio_train_argv)], pause)
    with gr.Accordion("Verdict on the voice, in figures", open=False, visible=False) as fold:
        verdict = gr.Textbox(show_label=False, interactive=False, lines=2, max_lines=8, elem_id="verdict")

    def judged(project: Project) -> tuple[Any, ...]:
        words = "\n".join(read_verdict(project.voice).lines)
        return gr.Accordion(visible=bool(words)), words

    page.on(key.change, judged, [], [fold, verdict], clears=True)
    model = gr.Radio([NEWEST, *MODELS], value=NEWEST, label="Model", visible=False, elem_id="model")
    progress = gr.Textbox(label="Progress", interactive=False, lines=2, visible=False, elem_id="progress")
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
        begun = sight.has_begun
        return gr.Radio(visible=begun), gr.Textbox(sight.words, visible=begun), curve, *report, sight.keys

    outputs = [model, progress, losses, alignment, mel, *sounds, seen]
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


class SpokenLine(NamedTuple):
    """A line synthesised by an evaluation at an optimizer step: rate in Hz, samples (N,) and the text."""

    rate: int
    samples: npt.NDArray[np.int16]
    text: str
    step: int


class ReportView(NamedTuple):
    """The newest pictures and sounds of a training."""

    alignment: Pixels | None = None
    mel: Pixels | None = None
    speeches: tuple[SpokenLine, ...] = ()


class Keys(NamedTuple):
    """Keys of the curve and the report on a page."""

    curve: str = ""
    report: str = ""


NOTHING_SEEN = Keys()


class Sight(NamedTuple):
    """A model's training at a moment; `losses` and `report` are None if the page shows them already."""

    keys: Keys
    words: str
    losses: Pixels | None
    report: ReportView | None
    has_begun: bool = True


class RunView:
    """The readers of a model's run: its log, and the event files of TensorBoard."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log, self.folder = RunLog(folder / LOG), folder / TENSORBOARD / name
        self._events: Any = None
        self._inode = 0
        self._step, self._time = 0, -math.inf  # of the newest curve

    def keys(self) -> Keys:
        """Return texts that change with what is to be drawn anew: for training losses alone at most every CURVE_SECONDS."""
        if self.log.step < self._step or time.monotonic() - self._time >= CURVE_SECONDS:
            self._step, self._time = self.log.step, time.monotonic()
        run = f"{self.log.path} {len(self.log.losses.validation)}"
        return Keys(f"{run} {self._step}", f"{run} {self.log.report} {self.log.finished}")

    def report(self, texts: list[str]) -> ReportView:
        """Read the newest pictures and sounds; `texts` are the lines of an evaluation."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # takes a second

        inode = self.folder.stat().st_ino if self.folder.is_dir() else 0
        if not inode:
            return ReportView()
        if inode != self._inode:
            self._events, self._inode = EventAccumulator(str(self.folder), size_guidance=SIZES), inode
        self._events.Reload()
        return ReportView(self._picture(ALIGNMENT), self._picture(MEL), tuple(self._speeches(texts)))

    def _picture(self, names: tuple[str, ...]) -> Pixels | None:
        """Return the newest picture of the first name found among the validations."""
        tags = self._events.Tags()["images"]
        found = next((tag for name in names if (tag := f"validation/{name}") in tags), None)
        return read_png(self._events.Images(found)[-1].encoded_image_string) if found else None

    def _speeches(self, texts: list[str]) -> Iterator[SpokenLine]:
        """Yield the newest sound of each line of an evaluation."""
        tags = [tag for tag in self._events.Tags()["audio"] if tag.startswith(EVALUATION)]
        for index in sorted(int(tag.removeprefix(EVALUATION)) for tag in tags):
            event = self._events.Audio(f"{EVALUATION}{index}")[-1]
            samples, rate = soundfile.read(io.BytesIO(event.encoded_audio_string), dtype="int16")
            yield SpokenLine(rate, samples, texts[index] if index < len(texts) else "", event.step)


class TrainingView:
    """Readers of the runs of all projects, shared by all pages."""

    def __init__(self) -> None:
        self._views: dict[Path, RunView] = {}
        self._lock = threading.Lock()

    def look(self, project: Project, name: str, seen: Keys = NOTHING_SEEN) -> Sight:
        """Read the run of a model; pictures whose keys are in `seen` are left out."""
        with self._lock:
            folder = check_inside(project, project.run(name))
            view = self._views.setdefault(folder, RunView(folder, name))
            view.log.update()
            log, options = view.log, options_in(project.plan, name)
            keys, curve, report = view.keys(), None, None
            if log.step and keys.curve != seen.curve:
                curve = figure_pixels(plot_losses(log.losses.training, log.losses.validation, f"{name}: loss"))
            if keys.report != seen.report:
                report = view.report(evaluation_texts(project, options.evaluation.evaluate_lines) if options else [])
            return Sight(keys, describe(name, log, options), curve, report, has_begun=log.step > 0)


def evaluation_texts(project: Project, lines: int) -> list[str]:
    """Return the texts of an evaluation's lines; [] if the filelist cannot be read."""
    try:
        return [row.text for row in spread(read_filelist(project.validation_list), lines)]
    except DataError:
        return []


def newest_model(project: Project) -> str:
    """Return the model that was trained last, or the first if none was."""
    logs = {name: project.run(name) / LOG for name in MODELS}
    return max(logs, key=lambda name: logs[name].stat().st_mtime if logs[name].is_file() else 0.0)


def studio_train_argv(project: Project) -> list[str]:
    """Return the arguments of `studio.train`. Raises DataError without a plan."""
    project.require(project.plan, "studio.plan")
    return ["studio.train", project.name, "--projects", str(project.projects)]
