"""Events of the page: a text is spoken, a recorded question answered. Each sentence is a request to the engine, as from the API."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
from torch import Tensor

from common.audio.audio_processing import read_audio
from common.errors import DataError, UsageError
from common.inference.pictures import Look, draw_speech
from common.inference.words import Word
from common.web.page import parse_number
from serving.answers import Turn
from serving.config import ConversationConfig
from serving.conversation import Conversation
from serving.encoding import Encoder
from serving.engine import Engine
from serving.errors import NOTHING, RequestError
from serving.page.relay import Channel, Relay
from serving.responses import word_times
from serving.stream import SpeechRequest, SpeechStream, Visit
from serving.voices import EMBEDDED_NAME

NO_RECORDING = "There is no question yet. Please record one with the microphone, or choose a sound file."
FLAG = re.compile(r" \(--[a-z-]+\)")  # of the server, which a visitor cannot set
MISFIT = re.compile(r"([a-z_ ]+): (.+), expected (.+)", re.DOTALL)  # a field's name, value and range
LABELS = {"denoising_strength": "Denoiser strength"}  # of the page, by the API's names
# Errors of requests in a visitor's words, by their codes.
MESSAGES = {
    "empty_text": "Please type a text first.",
    "overloaded": "Many people are listening just now. Please try again in a moment.",
    "timeout": "This took too long. Please try again, perhaps with a shorter text.",
    "nothing_to_say": "There are no words in this text. Please add some.",
    "no_audio": "The voice stayed silent. Please add words or a full stop.",
    "voice_not_found": "This voice is no longer there. Please reload the page.",
    "vocoder_not_found": "This voice has no such vocoder. Please reload the page.",
    "out_of_memory": "This text is too long for this machine. Please try a shorter one.",
    "internal": "Something went wrong on the server. Please try again.",
}


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
    """Values for a panel's outputs: the player's token, the fold with the pictures, and two of these."""

    token: Any
    details: Any
    mel: Any
    alignment: Any


class Recording:
    """Speech on its way to the player: one or more streams of one rate, in seconds of what is heard."""

    def __init__(self, channel: Channel, voice: str, rate: int, speed: float = 1.0, volume: float = 1.0) -> None:
        self.channel, self.rate, self.speed = channel, rate, speed
        self.seconds = 0.0
        self._samples, self._file = (Encoder(name, rate, speed, rate, volume=volume) for name in ("pcm", "mp3"))
        self._encoded = bytearray()
        channel.put({"about": {"rate": rate, "voice": voice}})

    def write(self, text: str) -> None:
        """Show a text that is spoken next."""
        self.channel.put({"text": text})

    def add(self, audio: Tensor, words: Sequence[Word] = (), start: float = 0.0) -> None:
        """Pass audio (n,) on, and words of a text that began at `start` seconds."""
        self._encoded += self._file.encode(audio)
        self._put(self._samples.encode(audio), word_times(words, self.speed, start))

    async def pass_on(self, stream: SpeechStream) -> None:
        """Pass the audio of a stream on while it is computed, until the listener leaves. Raises RequestError."""
        start = self.seconds
        try:
            async for audio in stream:
                self.add(audio, stream.new_words(), start)
                if self.channel.left:
                    return
        finally:
            stream.cancel()  # no effect after the end

    def finish(self, describe: Callable[[float], str]) -> None:
        """Pass the last samples, the whole as mp3, and a message about so many seconds of speech."""
        self._put(self._samples.finish(), [])
        self._encoded += self._file.finish()
        self.channel.put({"mp3": base64.b64encode(self._encoded).decode(), "message": describe(self.seconds)})

    def _put(self, samples: bytes, times: list[dict[str, str | float]]) -> None:
        seconds = len(samples) / 2 / self.rate  # bytes to samples to seconds
        self.seconds += seconds
        if samples or times:
            self.channel.put({"audio": base64.b64encode(samples).decode(), "timestamps": times}, seconds)


def visitor_message(error: Exception) -> str:
    """Return an error in a visitor's words: without flags of the server, and with the page's names of fields."""
    code = getattr(error, "code", None)
    if code in MESSAGES:
        return MESSAGES[code]
    message = FLAG.sub("", str(error)).removeprefix("input: ")
    if code == "text_too_long":
        length, most = (f"{int(number):,}" for number in re.findall(r"\d+", message)[:2])
        return f"This text has {length} characters, and {most} are allowed. Please shorten it."
    if code == "invalid_text":
        return f"This text cannot be read: {message.removeprefix('text: ')}"
    if found := MISFIT.fullmatch(message):
        name, value, expected = found.groups()
        return f"{LABELS.get(name, name.capitalize())}: {value} does not fit. Please enter {expected}."
    return f"{message[:1].upper()}{message[1:].removesuffix('.')}."


class Speaker:
    """The events of one page."""

    def __init__(self, engine: Engine, relay: Relay) -> None:
        self.engine, self.relay = engine, relay
        self.drawing = asyncio.Lock()  # one picture at a time: matplotlib shares its caches

    async def speak(self, text: str, *values: Any, look: str = "") -> AsyncIterator[PanelValues]:
        """Yield a token for the player, which reads the speech or an error, then the pictures. `values` are those of Settings."""
        keep = gr.skip()
        with self.channel() as channel:
            yield PanelValues(channel.token, keep, keep, keep)
            settings = Settings(*values)
            with self.engine.visit() as visit:  # until the browser has the pictures
                stream = self.engine.submit(settings.request(text), visit)
                recording = self.record(stream, channel, settings.speed)
                recording.write(text)
                await recording.pass_on(stream)
                if channel.left:
                    return
                recording.finish(partial(describe, stream))
                channel.end()
                async with self.drawing:
                    drawn = await asyncio.to_thread(draw_speech, stream.speech, stream.symbols, Look.of(look))
                yield PanelValues(keep, gr.update(visible=True), *(gr.update(value=one, visible=True) for one in drawn))

    def record(self, stream: SpeechStream, channel: Channel, speed: float | None = None) -> Recording:
        """Begin a recording of a stream, at the server's volume and, by default, at its speed."""
        config = self.engine.config
        return Recording(channel, voice_label(stream.voice), stream.sampling_rate, speed or config.speed, config.volume)

    @contextlib.contextmanager
    def channel(self) -> Iterator[Channel]:
        """Open a channel to the player, which also shows a visitor's mistakes and the server's refusals."""
        channel = self.relay.open()
        try:
            yield channel
        except (DataError, RequestError, UsageError) as error:
            channel.put({"error": visitor_message(error)})
        finally:
            self.relay.close(channel)


def voice_label(name: str) -> str:
    """Return the name of a voice for people."""
    return "Embedded voice" if name == EMBEDDED_NAME else name


def describe(stream: SpeechStream, seconds: float) -> str:
    """Describe so many seconds of speech in one line."""
    is_whole = stream.speech.finished
    warning = "" if is_whole else " The voice reached its limit, so the end of the text may be missing."
    first = f"first sound after {stream.first:.2f} s, " if stream.first is not None else ""
    return f"{seconds:.2f} s of speech, {first}seed {stream.seed}.{warning}"


class Talk(NamedTuple):
    """Values for the conversation's outputs."""

    token: Any  # the player's
    question: Any
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
        """Yield a token for the player, which reads the spoken answer or an error, then the question, finally the conversation."""
        settings, keep = Settings(voice, vocoder, seed, None, None, None), gr.skip()
        turns = list(turns)
        with self.speaker.channel() as channel:
            yield Talk(channel.token, keep, keep, keep)
            with self.speaker.engine.visit() as visit:  # until the browser has the whole answer
                question = await self.transcribe(recording)
                yield Talk(keep, question or "(no words)", keep, keep)
                await self.speak(question, turns, settings, visit, channel)
                yield Talk(keep, keep, messages_of(turns), turns)

    async def speak(self, question: str, turns: list[Turn], settings: Settings, visit: Visit, channel: Channel) -> None:
        """Speak the answer to a question, which becomes the last of the turns. Raises DataError, RequestError."""
        assert self.conversation is not None
        engine = self.speaker.engine
        ends = partial(engine.voices.sentence_ends, engine.voices.resolve(settings.voice))
        speech: Recording | None = None
        number = 0
        async for sentence in in_thread(self.conversation.answer(question, turns, ends)):
            stream = engine.submit(settings.request(sentence, number=number), visit)
            settings = settings._replace(seed=str(stream.seed))  # one seed for the whole answer: one tone
            speech = speech or self.speaker.record(stream, channel)
            speech.write(f" {sentence}" if number else sentence)
            number += 1
            try:
                await speech.pass_on(stream)
            except RequestError as error:
                if error.code != NOTHING:
                    raise
                continue
            if channel.left:
                return
        if speech:
            speech.finish(lambda seconds: f"{seconds:.2f} s of speech, seed {settings.seed}.")

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
