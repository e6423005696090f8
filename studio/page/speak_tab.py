"""The tab Speak: a text, spoken by the voice of the project, by a checkpoint of its runs or by the embedded voice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gradio as gr

from common.audio.audio_processing import to_pcm
from common.inference.config import SynthesisConfig
from common.web.page import make_audio, make_field, make_pictures, parse_number
from studio.page.choices import EMBEDDED_KEY, FINISHED
from studio.page.context import Context
from studio.page.events import choose, errors_in_words
from studio.page.samples import LARGEST, MOST_CHARACTERS, Request, Sample
from studio.page.voice_fields import connect_choices, make_voice_fields

TEXT = "Good morning. It is half past nine, and the kettle is on."


class Outcome(NamedTuple):
    """Values for the outputs of the tab: a line of text, the audio, the mel and the alignment."""

    message: Any
    audio: Any
    mel: Any
    alignment: Any


def add_speak_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    text = make_text("speak-text")
    button = gr.Button("Speak", variant="primary", elem_id="speak")
    fields = make_voice_fields("speak")
    with gr.Accordion("Settings", open=False):
        with gr.Row():
            seed = make_field("speak-seed", "Seed", "0")
            strength = make_field("speak-strength", "Denoiser strength", "the voice's own")
        sigma = gr.Slider(
            0, 2, SynthesisConfig().sigma_infer, step=0.05, label="Sigma of the vocoder's noise", elem_id="speak-sigma"
        )
    connect_choices(context, project, [fields], [[FINISHED, EMBEDDED_KEY]])
    message = gr.Textbox(label="Result", interactive=False, lines=2, elem_id="speak-message")
    outputs = [message, make_audio("Audio", "speak-audio"), *make_pictures("speak")]

    def speak(*values: Any) -> Iterator[Outcome]:
        yield from speak_text(context, *values)

    gr.on(
        [button.click, text.submit],
        speak,
        [project, text, *fields, seed, sigma, strength],
        outputs,
        api_visibility="private",
        show_progress_on=[message],
    )


def make_text(name: str) -> gr.Textbox:
    """Make the field of a text."""
    info = f"At most {MOST_CHARACTERS} characters. Shift+Enter speaks, too."
    return gr.Textbox(TEXT, label="Text", info=info, lines=3, elem_id=name)


def speak_text(
    context: Context,
    project: str | None,
    text: str,
    voice: str | None,
    vocoder: str | None,
    seed: str | None,
    sigma: float | None,
    strength: str | None,
) -> Iterator[Outcome]:
    """Yield a first message, then the outcome. Raises gr.Error with a message in words."""
    hidden = gr.update(value=None, visible=False)
    yield Outcome("Computing …", None, hidden, hidden)
    try:
        with errors_in_words(context):
            request = make_request(context, project, text, voice, vocoder, seed, sigma, strength)
            sample = context.speaker.speak(request)
            pictures = context.speaker.draw(sample)
    except gr.Error:
        yield Outcome("", None, hidden, hidden)
        raise
    yield Outcome(sample.message, audio_of(sample), *(gr.update(value=picture, visible=True) for picture in pictures))


def make_request(
    context: Context,
    project: str | None,
    text: str,
    voice: str | None,
    vocoder: str | None,
    seed: str | None = None,
    sigma: float | None = None,
    strength: str | None = None,
) -> Request:
    """Return the request of the fields. Raises DataError and UsageError."""
    return Request(
        project=choose(context, project),
        text=text or "",
        voice=voice or "",
        vocoder=vocoder or "",
        seed=parse_number(seed, "seed", int, f"a whole number from 0 to {LARGEST['seed']}") or 0,
        sigma=sigma,
        strength=parse_number(strength, "denoiser strength", float, "a number"),
    )


def audio_of(sample: Sample) -> tuple[int, Any]:
    """Return the rate and the samples, as gr.Audio takes them."""
    return sample.speech.sampling_rate, to_pcm(sample.speech.audio)
