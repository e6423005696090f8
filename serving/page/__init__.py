"""A page at /: type or ask, and hear speech while it is being computed. Gradio, in the API's app, with nothing from other hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI
from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from common.inference.config import SynthesisConfig
from common.web.page import OPTIONS, SEND_LOOK, make_error, make_field, make_look, make_pictures, make_text, mount_page
from serving.config import FASTEST, SLOWEST, ConversationConfig, ServingConfig
from serving.engine import Engine
from serving.page.relay import Relay, add_route
from serving.page.speaking import PanelValues, Speaker, Talker, voice_label
from serving.responses import handle_http_error

FOLDER = Path(__file__).parent
LARGEST_UPLOAD = "20mb"
MISFIT = "The values do not fit the page; reload it."
PATHS = ("/upload", "/queue/join", "/call/")  # on which Gradio fails for a body without a file or an unknown event
SAMPLES = [
    "Good morning. It is half past nine, and the kettle is on.",
    "The quick brown fox jumps over the lazy dog.",
    "Dr. Smith paid $21.50 for 3 cups on the 5th of May.",
    "Shall we walk along the river this evening?",
]
HEADING = "# Text to speech\nType a text and hear it at once. [Interface for programs](docs)"
HOLD_TIME = (3600, 3600)  # seconds between two clean-ups, and the age of the files removed
STOP = "() => { ttsPlayer.stop(); }"


def mount(app: FastAPI, engine: Engine, config: ServingConfig) -> FastAPI:
    """Add the page to the end of an app, which keeps its own routes, and return the app."""
    relay = Relay()
    add_route(app, relay)
    page = make_page(engine, relay, config.conversation)
    player = (FOLDER / "player.js").read_text(encoding="utf-8")
    add_refusals(mount_page(app, page, FOLDER / "style.css", LARGEST_UPLOAD, player))
    return app


class Page(gr.Blocks):
    """Gradio's page, which treats values of a wrong type as the visitor's mistake."""

    async def preprocess_data(self, block_fn: Any, *arguments: Any, **options: Any) -> Any:
        """Read the values of an event. Raises gr.Error if they do not fit."""
        try:
            values = await super().preprocess_data(block_fn, *arguments, **options)
            if any(isinstance(block, gr.Dataset) and value is None for block, value in zip(block_fn.inputs, values)):
                raise ValueError("no sample, which Gradio's own function does not check")
            return values
        except gr.Error as error:
            raise make_error(error.message) from None
        except Exception:
            raise make_error(MISFIT) from None


def add_refusals(app: FastAPI) -> None:
    """Make Gradio's app answer a body without a file and an unknown event with 400, and unknown paths as the API does."""
    app.add_exception_handler(404, handle_http_error)
    for kind in (TypeError, KeyError, FnIndexInferError):
        app.add_exception_handler(kind, refuse)


def refuse(request: Request, error: Exception) -> Response:
    """Answer 400 on paths that take bodies. On others the error is a fault of the server, and is raised."""
    if not any(path in request.url.path for path in PATHS):
        raise error
    request.scope.setdefault("log", {})["error"] = f"{type(error).__name__}: values that do not fit the page"
    return PlainTextResponse(MISFIT, 400)


# --- components, and the events that connect them ---


@dataclass
class Panel:
    """The components for a voice and its settings, and those that show its speech."""

    name: str
    settings: list[Any]  # in the order of serving.page.speaking.Settings
    outputs: list[Any]  # in the order of serving.page.speaking.PanelValues


def make_page(engine: Engine, relay: Relay, conversation: ConversationConfig | None = None) -> gr.Blocks:
    """Make the page of an engine, with tabs to speak, converse and compare."""
    speaker = Speaker(engine, relay)
    with Page(title="Text to speech", delete_cache=HOLD_TIME, **OPTIONS) as page:
        gr.Markdown(HEADING)
        with gr.Tab("Speak", render_children=True):
            add_speak_tab(speaker)
        with gr.Tab("Conversation", render_children=True):
            add_conversation_tab(Talker(speaker, conversation), engine)
        with gr.Tab("Compare", render_children=True):
            add_compare_tab(speaker)
    return page


def add_speak_tab(speaker: Speaker) -> None:
    """Add one text and one panel, with the speeches before."""
    text = make_text("text", SAMPLES[0], "Your text", speaker.engine.config.max_characters)
    with gr.Row(elem_classes="controls"):
        voice = make_voice(speaker.engine, "speech")
        button, stop = make_buttons("speak", "Speak")
    token = make_player("speech")
    gr.Examples([[sample] for sample in SAMPLES], [text], label="Samples", examples_per_page=len(SAMPLES))
    with gr.Accordion("Settings", open=False):
        settings = [voice, *make_settings(speaker.engine, voice, "speech")]
    panel = Panel("speech", settings, [token, *make_details("speech")])
    history = '<section id="speech-history" hidden><h2>Earlier in this session</h2><ol></ol></section>'
    gr.HTML(history, elem_classes="plain")
    connect(speaker, button, stop, text, panel)


def add_compare_tab(speaker: Speaker) -> None:
    """Add one text and two panels, side by side or, on a phone, one below the other."""
    text = make_text("compared-text", SAMPLES[0], "Your text", speaker.engine.config.max_characters)
    with gr.Row(elem_classes="controls"):
        button, stop = make_buttons("compare", "Speak both")
    with gr.Row():
        for name in ("first", "second"):
            with gr.Column(min_width=320):
                gr.Markdown(f"## {name.capitalize()}")
                voice = make_voice(speaker.engine, name)
                settings = [voice, *make_settings(speaker.engine, voice, name)]
                token = make_player(name, plays=name == "first")  # the second waits for its own button
                panel = Panel(name, settings, [token, *make_details(name)])
            connect(speaker, button, stop, text, panel)


def add_conversation_tab(talker: Talker, engine: Engine) -> None:
    """Add a recording, its transcript and the spoken answer."""
    gr.Markdown("Ask a question by voice. A speech recogniser on this server transcribes it.")
    # By default, Gradio adds a button that sends the recording to another host.
    options: dict[str, Any] = {"sources": ["microphone", "upload"], "type": "filepath", "buttons": ["download"]}
    recording = gr.Audio(label="Question", elem_id="recording", **options)
    with gr.Row(elem_classes="controls"):
        button, stop = make_buttons("answer", "Answer")
        clear = gr.Button("New conversation")
    question = gr.Textbox(label="Transcript", interactive=False, elem_id="transcript")
    token = make_player("answer")
    history = gr.Chatbot(label="Conversation so far", height=240, buttons=[])
    turns = gr.State([])
    with gr.Accordion("Voice", open=False):
        voice = make_voice(engine, "answer")
        vocoder = make_vocoder(engine, voice, "answer")
        seed = make_seed("answer-seed")
    outputs = [token, question, history, turns]
    event = gr.on(
        [button.click, recording.stop_recording],
        talker.answer,
        [recording, turns, voice, vocoder, seed],
        outputs,
        api_visibility="private",
        show_progress_on=[question],
    )
    stop.click(None, js=STOP, cancels=[event], api_visibility="private")
    clear.click(lambda: ("", "", [], []), None, outputs, js=STOP, cancels=[event], api_visibility="private")


def connect(speaker: Speaker, button: gr.Button, stop: gr.Button, text: gr.Textbox, panel: Panel) -> None:
    """Make a button, and Ctrl+Enter in the text, speak through a panel."""

    async def speak(*values: Any) -> AsyncIterator[PanelValues]:
        async for outcome in speaker.speak(*values[:-1], look=values[-1]):
            yield outcome

    event = gr.on(
        [button.click, text.submit],
        speak,
        [text, *panel.settings, make_look()],
        panel.outputs,
        js=SEND_LOOK,
        trigger_mode="multiple",  # else the button does nothing while the pictures of the speech before are drawn
        api_visibility="private",
        show_progress="hidden",
    )
    stop.click(None, js=STOP, cancels=[event], api_visibility="private")


def make_buttons(name: str, label: str) -> tuple[gr.Button, gr.Button]:
    """Make a button that speaks, and one that stops, which player.js enables while there is something to stop."""
    button = gr.Button(label, variant="primary", min_width=120, elem_id=name, elem_classes="speaks")
    stop = gr.Button("Stop", min_width=90, elem_id="stop" if name == "speak" else f"{name}-stop", elem_classes="stops")
    return button, stop


def make_player(name: str, plays: bool = True) -> gr.Textbox:
    """Make the place where player.js shows a speech; return the input of its token. `plays`: aloud, while it is computed."""
    gr.HTML(
        f'<div id="{name}-player" class="player"><p id="{name}-message" class="message" role="status"></p>'
        '<p class="text"></p><div class="finished" hidden><audio class="sound" controls></audio>'
        '<span class="files"></span></div></div>',
        elem_classes="plain",
    )
    token = gr.Textbox(visible="hidden")
    play = f"(token) => {{ ttsPlayer.play('{name}', token, {str(plays).lower()}); }}"
    token.change(None, token, None, js=play, api_visibility="private")
    return token


def make_voice(engine: Engine, name: str) -> gr.Dropdown:
    """Make the choice of a voice."""
    choices: list[Any] = [(voice_label(voice), voice) for voice in engine.voices.names]
    return gr.Dropdown(choices, value=engine.voices.default, label="Voice", min_width=180, elem_id=f"{name}-voice")


def make_settings(engine: Engine, voice: gr.Dropdown, name: str) -> list[Any]:
    """Make the components of Settings other than the voice. Those of a vocoder's noise are shown where they have an effect."""
    voices = engine.voices
    with gr.Row():
        speed = gr.Slider(
            SLOWEST, FASTEST, engine.config.speed, step=0.05, label="Speed", min_width=140, elem_id=f"{name}-speed"
        )
        seed = make_seed(f"{name}-seed")
    with gr.Row():
        vocoder = make_vocoder(engine, voice, name)
        visible = voices.has_noise(voices.default, voices.vocoders(voices.default)[0])
        noise: list[Any] = [
            gr.Slider(
                0,
                2,
                SynthesisConfig().sigma_infer,
                step=0.05,
                label="Sigma of the vocoder's noise",
                min_width=140,
                visible=visible,
                elem_id=f"{name}-sigma",
            ),
            make_field(f"{name}-strength", "Denoiser strength", "the voice's own", visible),
        ]

    def update(voice: str, vocoder: str | None) -> list[Any]:
        return [gr.update(visible=voices.has_noise(voice, vocoder))] * 2

    vocoder.change(update, [voice, vocoder], noise, api_visibility="private", show_progress="hidden")
    return [vocoder, seed, *noise, speed]


def make_vocoder(engine: Engine, voice: gr.Dropdown, name: str) -> gr.Dropdown:
    """Make the choice among the vocoders of the chosen voice."""
    voices = engine.voices
    own = voices.vocoders(voices.default)
    vocoder = gr.Dropdown(own, value=own[0], label="Vocoder", min_width=140, elem_id=f"{name}-vocoder")

    def update(chosen: str) -> gr.Dropdown:
        own = voices.vocoders(chosen)
        return gr.Dropdown(own, value=own[0])

    voice.change(update, voice, vocoder, api_visibility="private", show_progress="hidden")
    return vocoder


def make_seed(name: str) -> gr.Textbox:
    """Make the field for a seed; empty: the server's."""
    return make_field(name, "Seed", "random")


def make_details(name: str) -> list[Any]:
    """Make the components of PanelValues except the token: a fold, with the pictures in it."""
    with gr.Accordion("Details", open=False, visible=False, elem_id=f"{name}-details") as details:
        pictures = make_pictures(name)
    return [details, *pictures]
