"""Events of the page that speak: a text, and the sentences of an answer, each a request to the engine as the API's are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
import numpy.typing as npt

from common.errors import UsageError
from common.inference.pictures import draw_speech
from common.web.page import make_error, parse_number
from serving.encoding import Encoder
from serving.engine import Engine
from serving.errors import RequestError
from serving.page.relay import Channel, Relay
from serving.stream import SpeechRequest, SpeechStream

COMPUTING, STOPPED = "Computing …", "Stopped."  # in place of a result
# Names of the API, and the page's.
NAMES = {"input: text:": "text:", "input:": "text:", "denoising_strength:": "denoiser strength:"}
FLAG = re.compile(r" \(--[a-z-]+\)")  # of the server: a visitor cannot set it


class Settings(NamedTuple):
    """Values of the components of a panel; None or "": the voice's own, or the server's."""

    voice: str | None
    vocoder: str | None
    seed: str | None
    sigma: float | None
    strength: str | None
    speed: float | None

    def request(self, text: str, number: int = 0) -> SpeechRequest:
        """Return the engine's request for a text. Raises UsageError for fields that are not numbers."""
        return SpeechRequest(
            text=text,
            number=number,
            voice=self.voice,
            vocoder=self.vocoder,
            seed=parse_number(self.seed, "seed", int, "a whole number"),
            sigma=self.sigma,
            denoising_strength=parse_number(self.strength, "denoiser strength", float, "a number"),
        )


class Outcome(NamedTuple):
    """Values for the outputs of a panel: the player's token, a line of text, the audio for its player, and two pictures."""

    token: Any
    message: str
    audio: Any
    mel: Any
    alignment: Any


@dataclass
class Recording:
    """The audio of one or more requests, as bytes of 16-bit samples; `channel` leads to the player, if one plays it."""

    rate: int
    channel: Channel | None
    samples: bytearray = field(default_factory=bytearray)

    def add(self, samples: bytes) -> None:
        """Keep samples, and pass them to the player."""
        self.samples += samples
        if self.channel:
            self.channel.put(samples)

    @property
    def token(self) -> str:
        """The player's token; "" where nothing plays."""
        return self.channel.token if self.channel else ""

    @property
    def is_left(self) -> bool:
        """True once the player has been stopped, or its page closed."""
        return self.channel is not None and self.channel.left

    def value(self) -> tuple[int, npt.NDArray[np.int16]]:
        """Return rate and samples, as gr.Audio takes them."""
        return self.rate, np.frombuffer(bytes(self.samples), "<i2")


def error_of(error: Exception) -> gr.Error:
    """Return the page's form of an error of a user: its message alone, in the words of the page."""
    return make_error(visitor_message(str(error)))


def visitor_message(message: str) -> str:
    """Reword a message of the API for the page: without flags of the server, and with the page's names of the fields."""
    message = FLAG.sub("", message)
    for name, label in NAMES.items():
        if message.startswith(name):
            return message.replace(name, label, 1)
    return message


class Speaker:
    """The events of one page."""

    def __init__(self, engine: Engine, relay: Relay) -> None:
        self.engine, self.relay = engine, relay
        self.drawing = asyncio.Lock()  # one picture at a time: matplotlib shares its caches

    async def speak(self, text: str, *values: Any, plays: bool = True) -> AsyncIterator[Outcome]:
        """Yield a token for the player, then the outcome. `values` are those of Settings. Raises gr.Error with the message."""
        settings = Settings(*values)
        hidden = gr.update(value=None, visible=False)
        try:
            with self.engine.visit() as visit:  # until the browser has the outcome
                stream = self.engine.submit(settings.request(text), visit)
                recording = self.start(stream.sampling_rate, plays)
                yield Outcome(recording.token, COMPUTING, None, hidden, hidden)
                try:
                    await self.pass_on(stream, settings.speed, recording)
                finally:
                    self.finish(recording)
                if recording.is_left:
                    yield Outcome(gr.skip(), STOPPED, None, hidden, hidden)
                    return
                async with self.drawing:
                    drawn = await asyncio.to_thread(draw_speech, stream.speech, stream.speeches, stream.symbols)
                pictures = (gr.update(value=picture, visible=True) for picture in drawn)
                yield Outcome(gr.skip(), message_of(stream, recording), recording.value(), *pictures)
        except (RequestError, UsageError) as error:
            raise error_of(error) from None

    def start(self, rate: int, plays: bool = True) -> Recording:
        """Begin audio at `rate` Hz, for the player if it `plays`."""
        return Recording(rate, self.relay.open(rate) if plays else None)

    def finish(self, recording: Recording) -> None:
        """End audio for the player."""
        if recording.channel:
            self.relay.close(recording.channel)

    async def pass_on(self, stream: SpeechStream, speed: float | None, recording: Recording) -> None:
        """Pass the audio of a stream on while it is computed, until its player is left. Raises RequestError."""
        encoder = Encoder("pcm", stream.sampling_rate, speed or 1.0)
        try:
            async for audio in stream:
                recording.add(encoder.encode(audio))
                if recording.is_left:
                    return
            recording.add(encoder.finish())
        finally:
            stream.cancel()  # of no effect after the end


def message_of(stream: SpeechStream, recording: Recording) -> str:
    """Describe the speech of a stream in one line."""
    seconds = len(recording.samples) / 2 / recording.rate  # bytes to samples to seconds
    warning = "" if stream.speech.finished else " The decoder reached its limit of frames; the text may be cut."
    first = f"first sound after {stream.first:.2f} s, " if stream.first is not None else ""
    return f"{seconds:.2f} s of speech, {first}seed {stream.seed}.{warning}"
