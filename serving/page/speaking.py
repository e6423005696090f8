"""Events of the page: a text is spoken, a recorded question answered. Each sentence is a request to the engine, as from the API."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
import numpy.typing as npt

from common.audio.audio_processing import read_audio
from common.errors import DataError, UsageError
from common.inference.pictures import draw_speech
from common.spec import SENTENCE_PAUSE
from common.web.page import make_error, parse_number
from serving.answers import Turn
from serving.config import ConversationConfig
from serving.conversation import Conversation
from serving.encoding import Encoder
from serving.engine import Engine
from serving.errors import NOTHING, RequestError
from serving.page.relay import Channel, Relay
from serving.stream import SpeechRequest, SpeechStream, Visit

COMPUTING, STOPPED = "Computing …", "Stopped."  # shown instead of a result
# The API's names and the page's.
NAMES = {"input: text:": "text:", "input:": "text:", "denoising_strength:": "denoiser strength:"}
NO_RECORDING = "There is no question yet: record one with the microphone or choose a sound file."
FLAG = re.compile(r" \(--[a-z-]+\)")  # of the server, which a visitor cannot set


class Settings(NamedTuple):
    """Values of a panel's components; None or "": the voice's or the server's default."""

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


class PanelValues(NamedTuple):
    """Values for a panel's outputs: the player's token, a message, the finished audio, and two pictures."""

    token: Any
    message: str
    audio: Any
    mel: Any
    alignment: Any


@dataclass
class Recording:
    """The audio of one or more requests as bytes of 16-bit samples; `channel` leads to the player, if any."""

    rate: int
    channel: Channel | None
    samples: bytearray = field(default_factory=bytearray)

    def add(self, samples: bytes) -> None:
        """Keep samples and pass them to the player."""
        self.samples += samples
        if self.channel:
            self.channel.put(samples)

    @property
    def token(self) -> str:
        """The player's token, or "" if nothing plays."""
        return self.channel.token if self.channel else ""

    @property
    def is_left(self) -> bool:
        """True once the player has been stopped, or its page closed."""
        return self.channel is not None and self.channel.left

    def value(self) -> tuple[int, npt.NDArray[np.int16]]:
        """Return rate and samples, as gr.Audio takes them."""
        return self.rate, np.frombuffer(bytes(self.samples), "<i2")


def error_of(error: Exception) -> gr.Error:
    """Return the page's form of a user's mistake: just the message, with the page's names."""
    return make_error(visitor_message(str(error)))


def visitor_message(message: str) -> str:
    """Adapt a message of the API to the page: without the server's flags, and with the page's names of fields."""
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

    async def speak(self, text: str, *values: Any, plays: bool = True) -> AsyncIterator[PanelValues]:
        """Yield a token for the player, then the outcome. `values` are those of Settings. Raises gr.Error."""
        settings = Settings(*values)
        hidden = gr.update(value=None, visible=False)
        try:
            with self.engine.visit() as visit:  # until the browser has the outcome
                stream = self.engine.submit(settings.request(text), visit)
                recording = self.start(stream.sampling_rate, plays)
                yield PanelValues(recording.token, COMPUTING, None, hidden, hidden)
                try:
                    await self.pass_on(stream, settings.speed, recording)
                finally:
                    self.finish(recording)
                if recording.is_left:
                    yield PanelValues(gr.skip(), STOPPED, None, hidden, hidden)
                    return
                async with self.drawing:
                    drawn = await asyncio.to_thread(draw_speech, stream.speech, stream.symbols)
                pictures = (gr.update(value=picture, visible=True) for picture in drawn)
                yield PanelValues(gr.skip(), message_of(stream, recording), recording.value(), *pictures)
        except (RequestError, UsageError) as error:
            raise error_of(error) from None

    def start(self, rate: int, plays: bool = True) -> Recording:
        """Begin a recording at `rate` Hz; `plays`: pass it to the player."""
        return Recording(rate, self.relay.open(rate) if plays else None)

    def finish(self, recording: Recording) -> None:
        """End a recording for the player."""
        if recording.channel:
            self.relay.close(recording.channel)

    async def pass_on(self, stream: SpeechStream, speed: float | None, recording: Recording) -> None:
        """Pass the audio of a stream on while it is computed, until the listener leaves. Raises RequestError."""
        encoder = Encoder("pcm", stream.sampling_rate, speed or 1.0)
        try:
            async for audio in stream:
                recording.add(encoder.encode(audio))
                if recording.is_left:
                    return
            recording.add(encoder.finish())
        finally:
            stream.cancel()  # no effect after the end


def message_of(stream: SpeechStream, recording: Recording) -> str:
    """Describe the speech of a stream in one line."""
    seconds = len(recording.samples) / 2 / recording.rate  # bytes to samples to seconds
    warning = (
        ""
        if stream.speech.finished
        else " The decoder reached its limit of frames, so the end of the text may be missing."
    )
    first = f"first sound after {stream.first:.2f} s, " if stream.first is not None else ""
    return f"{seconds:.2f} s of speech, {first}seed {stream.seed}.{warning}"


class Talk(NamedTuple):
    """Values for the conversation's outputs."""

    token: Any  # the player's
    question: Any
    answer: Any
    audio: Any
    history: Any  # messages, as gr.Chatbot takes them
    turns: Any  # list[Turn] of this visitor


class Talker:
    """The conversations of one page. The recogniser is loaded with the first question."""

    def __init__(self, speaker: Speaker, config: ConversationConfig | None) -> None:
        self.speaker, self.config = speaker, config
        self.conversation: Conversation | None = None
        self.recognising = asyncio.Lock()  # one recording at a time

    async def answer(
        self, recording: str | None, turns: list[Turn], voice: str | None, vocoder: str | None, seed: str | None
    ) -> AsyncIterator[Talk]:
        """Yield the question, then the answer and a token for the player, finally the audio. Raises gr.Error."""
        settings, keep = Settings(voice, vocoder, seed, None, None, None), gr.skip()
        try:
            with self.speaker.engine.visit() as visit:  # until the browser has the whole answer
                question = await self.transcribe(recording)
                yield Talk(keep, question or "(no words)", "", None, keep, keep)
                async with contextlib.aclosing(self.speak(question, list(turns), settings, visit)) as talks:
                    async for talk in talks:
                        yield talk
        except (DataError, RequestError, UsageError) as error:
            raise error_of(error) from None

    async def speak(
        self, question: str, turns: list[Turn], settings: Settings, visit: Visit
    ) -> AsyncGenerator[Talk, None]:
        """Yield the answer to a question and a token for the player, finally the audio. Raises DataError, RequestError."""
        assert self.conversation is not None
        voices, keep = self.speaker.engine.voices, gr.skip()
        ends = partial(voices.sentence_ends, voices.resolve(settings.voice))
        sentences, speech = [], None
        try:
            async for sentence in in_thread(self.conversation.answer(question, turns, ends)):
                sentences.append(sentence)
                stream = self.speaker.engine.submit(settings.request(sentence, number=len(sentences) - 1), visit)
                settings = settings._replace(seed=str(stream.seed))  # one seed for the whole answer: one tone
                if speech is None:
                    speech = self.speaker.start(stream.sampling_rate)
                yield Talk(speech.token if len(sentences) == 1 else keep, keep, " ".join(sentences), *[keep] * 3)
                try:
                    await self.speaker.pass_on(stream, None, speech)
                except RequestError as error:
                    if error.code != NOTHING:
                        raise
                    continue
                if speech.is_left:
                    break
                speech.add(bytes(2 * round(SENTENCE_PAUSE * speech.rate)))
        finally:
            if speech:
                self.speaker.finish(speech)
        yield Talk(keep, keep, keep, speech.value() if speech else None, messages_of(turns), turns)

    async def transcribe(self, recording: str | None) -> str:
        """Return the words in a sound file. Raises DataError that names the file without its folder, as the user does."""
        if not recording:
            raise DataError(NO_RECORDING)
        path = Path(recording)
        async with self.recognising:
            try:
                if self.conversation is None:
                    self.conversation = await asyncio.to_thread(Conversation, self.config)
                audio = await asyncio.to_thread(read_audio, path, None)
                return await asyncio.to_thread(self.conversation.transcribe, audio.samples.numpy(), audio.rate)
            except DataError as error:
                raise DataError(str(error).replace(str(path), path.name)) from None


async def in_thread(sentences: Iterator[str]) -> AsyncIterator[str]:
    """Yield the items of a blocking iterator, computed in a thread."""
    while isinstance(sentence := await asyncio.to_thread(next, sentences, None), str):
        yield sentence


def messages_of(turns: list[Turn]) -> list[dict[str, str]]:
    """Return turns as the messages of a chat."""
    pairs = (pair for turn in turns for pair in (("user", turn.question), ("assistant", turn.answer)))
    return [{"role": role, "content": content} for role, content in pairs]
