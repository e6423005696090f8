"""Events of the page's conversation: a recording becomes a question, an answer, and the answer's speech."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from common.audio.audio_processing import read_audio
from common.errors import DataError, UsageError
from serving.answers import Turn
from serving.conversation import Conversation
from serving.conversation_settings import ConversationConfig
from serving.errors import RequestError
from serving.page.speaking import Settings, Speaker, error_of
from serving.sentences import PAUSE
from serving.visit import Visit

NO_RECORDING = "There is no question: record one with the microphone, or choose a sound file."


class Talk(NamedTuple):
    """Values for the outputs of the conversation."""

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
        """Yield the question, then the answer and a token for the player, at last the audio. Raises gr.Error with the message."""
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
        """Yield the answer to a question and a token for the player, at last the audio. Raises DataError, RequestError."""
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
                await self.speaker.pass_on(stream, None, speech)
                if speech.is_left:
                    break
                speech.add(bytes(2 * round(PAUSE * speech.rate)))
        finally:
            if speech:
                self.speaker.finish(speech)
        yield Talk(keep, keep, keep, speech.value() if speech else None, messages_of(turns), turns)

    async def transcribe(self, recording: str | None) -> str:
        """Return the words of a sound file. Raises DataError that names the file as its user does, without its folder."""
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
    """Yield the items of an iterator that blocks; each is computed in a thread."""
    while isinstance(sentence := await asyncio.to_thread(next, sentences, None), str):
        yield sentence


def messages_of(turns: list[Turn]) -> list[dict[str, str]]:
    """Return turns as the messages of a chat."""
    pairs = (pair for turn in turns for pair in (("user", turn.question), ("assistant", turn.answer)))
    return [{"role": role, "content": content} for role, content in pairs]
