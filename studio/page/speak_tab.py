"""The Speak tab: a text, spoken by the project's voice, by a checkpoint of its runs, or by the embedded voice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from common.audio.audio_processing import to_pcm
from common.inference.config import SynthesisConfig
from common.inference.pictures import Look
from studio.page.choices import OWN, choose_key, default_voices, list_vocoders, list_voices
from studio.page.context import Context
from studio.page.events import HIDDEN, choose, errors_in_words, make_audio, make_picture
from studio.page.samples import LARGEST, MOST_CHARACTERS, SampleRequest
from studio.wording import parse_number

TEXT = "Good morning. It is half past nine, and the kettle is on."
HINT = '<div class="hint"><span>Ctrl+Enter speaks</span><span id="speak-text-counter"></span></div>'
# Numbers that may stay empty, as texts: an empty gr.Number shows 0.
FIELDS = (("speak-seed", "Seed", "0"), ("speak-strength", "Denoiser strength", "the voice's own"))
SEND_LOOK = "(...values) => [...values.slice(0, -1), pageLook()]"  # how pictures should look, as the last input


def add_speak_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
    text = add_text()
    button = gr.Button("Speak", variant="primary", elem_id="speak", elem_classes="speaks")
    with gr.Row():
        voice = gr.Dropdown([], label="Voice", min_width=280, elem_id="speak-voice")
        vocoder = gr.Dropdown([], label="Vocoder", min_width=280, elem_id="speak-vocoder")
    with gr.Accordion("Settings", open=False):
        with gr.Row():
            seed, strength = (
                gr.Textbox(label=label, placeholder=usual, max_lines=1, min_width=180, elem_id=name)
                for name, label, usual in FIELDS
            )
        sigma = gr.Slider(
            0, 2, SynthesisConfig().sigma_infer, step=0.05, label="Sigma of the vocoder's noise", elem_id="speak-sigma"
        )
    connect_choices(context, project, voice, vocoder)
    message = gr.Textbox(label="Result", interactive=False, lines=2, elem_id="speak-message")
    audio = make_audio("Audio", "speak-audio")
    with gr.Accordion("Details", open=False):
        mel = make_picture("speak-mel", "Mel spectrogram with the words below")
        alignment = make_picture("speak-alignment", "Alignment of the text's symbols")

    def speak(*values: Any) -> Iterator[tuple[Any, ...]]:
        yield from speak_text(context, *values)

    gr.on(
        [button.click, text.submit],
        speak,
        [project, text, voice, vocoder, seed, sigma, strength, gr.Textbox(visible="hidden")],
        [message, audio, mel, alignment],
        js=SEND_LOOK,
        api_visibility="private",
        show_progress_on=[message],
    )


def add_text() -> gr.Textbox:
    """Add the field for the text, with its length below; a reload of the page keeps the text."""
    field = gr.Textbox(TEXT, label="Text", lines=3, max_lines=12, elem_id="speak-text", elem_classes="spoken-text")
    gr.HTML(HINT, elem_classes="plain")
    quiet: dict[str, Any] = {"api_visibility": "private"}
    field.change(None, field, None, js=f"(text) => pageText.changed('speak-text', text, {MOST_CHARACTERS})", **quiet)
    page: Any = gr.context.Context.root_block
    page.load(None, field, field, js=f"(text) => pageText.restore('speak-text', text, {MOST_CHARACTERS})", **quiet)
    return field


def connect_choices(context: Context, project: gr.Dropdown, voice: gr.Dropdown, vocoder: gr.Dropdown) -> None:
    """Fill the fields when the page loads, when a project or the tab is chosen, and by a button; call it within the tab."""
    button = gr.Button("Look for new checkpoints", size="sm")
    tab: Any = button.parent
    known = gr.State(())  # the keys of the voices on offer

    def refresh(name: str | None, before: Sequence[str], *chosen: str | None) -> list[Any]:
        if not name:
            return [gr.Dropdown([], value=None), gr.Dropdown([], value=None), ()]
        with errors_in_words(context):
            found = choose(context, name)
            voices, vocoders = list_voices(found), list_vocoders(found)
        fields = [
            make_choices(voices, before, chosen[0], default_voices(found)),
            make_choices(vocoders, [OWN], chosen[1], [OWN]),
        ]
        return [*fields, tuple(key for _, key in voices)]

    outputs = [voice, vocoder, known]
    # At load, and when another project is chosen.
    gr.on(None, lambda name: refresh(name, (), None, None), [project], outputs, **HIDDEN)
    gr.on([button.click, tab.select], refresh, [project, known, voice, vocoder], outputs, **HIDDEN)


def make_choices(
    options: Sequence[tuple[str, str]], before: Sequence[str], chosen: str | None, defaults: Sequence[str]
) -> gr.Dropdown:
    """Return the choices of a field and its value, given their labels and keys."""
    return gr.Dropdown(options, value=choose_key([key for _, key in options], before, chosen, defaults))


def speak_text(
    context: Context,
    project: str | None,
    text: str,
    voice: str | None,
    vocoder: str | None,
    seed: str | None,
    sigma: float | None,
    strength: str | None,
    look: str = "",
) -> Iterator[tuple[Any, ...]]:
    """Yield the message, the audio and the two pictures: first without a speech, then with it. Raises gr.Error."""
    hidden = gr.update(value=None, visible=False)
    yield "Computing …", None, hidden, hidden
    try:
        with errors_in_words(context):
            request = SampleRequest(
                project=choose(context, project),
                text=text or "",
                voice=voice or "",
                vocoder=vocoder or "",
                seed=parse_number(seed, "seed", int, f"a whole number from 0 to {LARGEST['seed']}") or 0,
                sigma=sigma,
                strength=parse_number(strength, "denoiser strength", float, "a number"),
            )
            sample = context.speaker.speak(request)
            pictures = context.speaker.draw(sample, Look.of(look))
    except gr.Error:
        yield "", None, hidden, hidden
        raise
    audio = sample.speech.sampling_rate, to_pcm(sample.speech.audio)
    yield sample.message, audio, *(gr.update(value=picture, visible=True) for picture in pictures)
