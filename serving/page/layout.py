"""The page's components, and the events that connect them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from common.inference.config import SynthesisConfig
from common.web.page import OPTIONS, make_audio, make_field, make_pictures
from serving.config import ConversationConfig
from serving.encoding import FASTEST, SLOWEST
from serving.engine import Engine
from serving.page import Page
from serving.page.relay import Relay
from serving.page.speaking import COMPUTING, STOPPED, PanelValues, Speaker, Talker

SAMPLES = [
    "Good morning. It is half past nine, and the kettle is on.",
    "The quick brown fox jumps over the lazy dog.",
    "Dr. Smith paid $21.50 for 3 cups on the 5th of May.",
    "Shall we walk along the river this evening?",
]
HEADING = "# Text to speech\nThis page plays speech while the server computes it. [Interface for programs](docs)"
HOLD_TIME = (3600, 3600)  # seconds between two clean-ups, and the age of the files removed
PLAY = "(token) => { window.ttsPlayer.play(token); }"
STOP = "() => { window.ttsPlayer.stop(); }"
# Needed because the event that would replace COMPUTING is cancelled.
STOP_PANEL = f"""(message) => {{
  window.ttsPlayer.stop();
  return message === "{COMPUTING}" ? "{STOPPED}" : message;
}}"""


@dataclass
class Panel:
    """The components for a voice and its settings, and those that show its speech."""

    settings: list[Any]  # in the order of serving.page.speaking.Settings
    outputs: list[Any]  # in the order of serving.page.speaking.PanelValues


def make_page(engine: Engine, relay: Relay, conversation: ConversationConfig | None = None) -> gr.Blocks:
    """Make the page of an engine, with tabs to speak, converse and compare."""
    speaker = Speaker(engine, relay)
    with Page(title="Text to speech", delete_cache=HOLD_TIME, **OPTIONS) as page:
        gr.Markdown(HEADING)
        token = gr.Textbox(visible="hidden", elem_id="token")
        token.change(None, token, None, js=PLAY, api_visibility="private")
        with gr.Tab("Speak"):
            add_speak_tab(speaker, token)
        with gr.Tab("Conversation"):
            add_conversation_tab(Talker(speaker, conversation), engine, token)
        with gr.Tab("Compare"):
            add_compare_tab(speaker, token)
    return page


def add_speak_tab(speaker: Speaker, token: gr.Textbox) -> None:
    """Add one text and one panel."""
    text = make_text("text")
    with gr.Row():
        button = gr.Button("Speak", variant="primary", elem_id="speak")
        stop = gr.Button("Stop", elem_id="stop")
    gr.Examples([[sample] for sample in SAMPLES], [text], label="Samples", examples_per_page=len(SAMPLES))
    with gr.Accordion("Voice and settings", open=False):
        settings = make_settings(speaker.engine, "speech")
    add_player_status()
    outputs = [token, *make_outputs("speech")]
    connect(speaker, button, text, Panel(settings, outputs), [stop])


def add_compare_tab(speaker: Speaker, token: gr.Textbox) -> None:
    """Add one text and two panels, side by side or, on a phone, one below the other."""
    text = make_text("compared-text")
    with gr.Row():
        button = gr.Button("Speak both", variant="primary", elem_id="compare")
        stop = gr.Button("Stop")
    add_player_status()
    silent = gr.Textbox(visible="hidden")  # the second panel does not play while it is computed
    with gr.Row():
        for name, own in (("first", token), ("second", silent)):
            with gr.Column(min_width=320):
                gr.Markdown(f"## {name.capitalize()}")
                settings = make_settings(speaker.engine, name)
                panel = Panel(settings, [own, *make_outputs(name)])
            connect(speaker, button, text, panel, [stop], plays=own is token)


def add_conversation_tab(talker: Talker, engine: Engine, token: gr.Textbox) -> None:
    """Add a recording, its transcript, the answer and its audio."""
    gr.Markdown("Ask a question by voice. A speech recogniser on this server transcribes it.")
    # By default, Gradio adds a button that sends the recording to another host.
    options: dict[str, Any] = {"sources": ["microphone", "upload"], "type": "filepath", "buttons": ["download"]}
    recording = gr.Audio(label="Question", elem_id="recording", **options)
    with gr.Row():
        button = gr.Button("Answer", variant="primary", elem_id="answer")
        stop = gr.Button("Stop")
        clear = gr.Button("New conversation")
    add_player_status()
    question = gr.Textbox(label="Transcript", interactive=False, elem_id="transcript")
    answer = gr.Textbox(label="Answer", interactive=False, elem_id="answer-text")
    audio = make_audio("Spoken answer", "answer-audio")
    history = gr.Chatbot(label="Conversation so far", height=240, buttons=[])
    turns = gr.State([])
    with gr.Accordion("Voice", open=False):
        voice, vocoder = make_voice(engine, "answer")
        seed = make_seed("answer-seed")
    outputs = [token, question, answer, audio, history, turns]
    event = gr.on(
        [button.click, recording.stop_recording],
        talker.answer,
        [recording, turns, voice, vocoder, seed],
        outputs,
        api_visibility="private",
        show_progress_on=[question],
    )
    stop.click(None, js=STOP, cancels=[event], api_visibility="private")
    clear.click(lambda: ("", "", "", None, [], []), None, outputs, js=STOP, cancels=[event], api_visibility="private")


def connect(
    speaker: Speaker, button: gr.Button, text: gr.Textbox, panel: Panel, stops: list[gr.Button], plays: bool = True
) -> None:
    """Make a button, and Shift+Enter in the text, speak through a panel."""

    async def speak(*values: Any) -> AsyncIterator[PanelValues]:
        async for outcome in speaker.speak(*values, plays=plays):
            yield outcome

    event = gr.on(
        [button.click, text.submit],
        speak,
        [text, *panel.settings],
        panel.outputs,
        api_visibility="private",
        show_progress_on=panel.outputs[1:2],
    )
    for stop in stops:
        message = panel.outputs[1]
        stop.click(None, message, message, js=STOP_PANEL, cancels=[event], api_visibility="private")


def add_player_status() -> None:
    """Add the line where player.js shows messages."""
    gr.HTML('<div class="player-status" role="status"></div>')


def make_text(name: str) -> gr.Textbox:
    """Make the field for a text."""
    return gr.Textbox(SAMPLES[0], label="English text", info="Shift+Enter speaks, too.", lines=3, elem_id=name)


def make_settings(engine: Engine, name: str) -> list[Any]:
    """Make the components of Settings."""
    voice, vocoder = make_voice(engine, name)
    with gr.Row():
        seed = make_seed(f"{name}-seed")
        speed = gr.Slider(SLOWEST, FASTEST, 1.0, step=0.05, label="Speed", min_width=140, elem_id=f"{name}-speed")
    with gr.Row():
        default = SynthesisConfig().sigma_infer
        sigma = gr.Slider(0, 2, default, step=0.05, label="Sigma of the vocoder's noise", min_width=140)
        strength = make_field(f"{name}-strength", "Denoiser strength", "the voice's own")
    return [voice, vocoder, seed, sigma, strength, speed]


def make_voice(engine: Engine, name: str) -> tuple[gr.Dropdown, gr.Dropdown]:
    """Make the choices of a voice and its vocoder."""
    voices = engine.voices
    with gr.Row():
        voice = gr.Dropdown(voices.names, value=voices.default, label="Voice", min_width=140, elem_id=f"{name}-voice")
        own = voices.vocoders(voices.default)
        vocoder = gr.Dropdown(own, value=own[0], label="Vocoder", min_width=140, elem_id=f"{name}-vocoder")

    def update(chosen: str) -> gr.Dropdown:
        own = voices.vocoders(chosen)
        return gr.Dropdown(own, value=own[0])

    voice.change(update, voice, vocoder, api_visibility="private", show_progress="hidden")
    return voice, vocoder


def make_seed(name: str) -> gr.Textbox:
    """Make the field for a seed; empty: the server's."""
    return make_field(name, "Seed", "random")


def make_outputs(name: str) -> list[Any]:
    """Make the components of PanelValues except the token."""
    message = gr.Textbox(label="Result", interactive=False, lines=2, elem_id=f"{name}-message")
    return [message, make_audio("Audio", f"{name}-audio"), *make_pictures(name)]
