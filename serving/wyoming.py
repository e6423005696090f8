"""Home Assistant's Wyoming protocol over TCP: a text, whole or in pieces, becomes events of 16-bit audio."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

from serving.encoding import Encoder
from serving.engine import Engine
from serving.errors import RequestError
from serving.sentences import SentenceCutter
from serving.stream import SpeechRequest, check_unspoken

LANGUAGE = "en"  # Home Assistant lists a voice under its language; checkpoints name none
WIDTH = 2  # bytes of a sample


async def serve_wyoming(engine: Engine, host: str, port: int) -> AsyncTcpServer:
    """Listen; the caller stops the server. Raises OSError where the system refuses."""
    server = AsyncTcpServer(host, port)
    await server.start(partial(Handler, engine))
    return server


class Handler(AsyncEventHandler):
    """One connection."""

    def __init__(self, engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.engine, self.voice = engine, ""
        self.cutter: SentenceCutter | None = None  # of a text that comes in pieces

    async def handle_event(self, event: Event) -> bool:
        """Answer an event; the connection stays open."""
        try:
            await self._answer(event)
        except RequestError as error:
            self.cutter = None
            await self.write_event(Error(error.message, error.code).event())
        return True

    async def write_event(self, event: Event) -> None:
        """Send an event; cut off a client that reads nothing for --idle-timeout seconds."""
        end = asyncio.get_running_loop().call_later(self.engine.config.idle_timeout, self.writer.transport.abort)
        await super().write_event(event)
        end.cancel()

    async def _answer(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write_event(describe(self.engine).event())
        elif Synthesize.is_type(event.type) and self.cutter is None:  # within a stream it repeats the whole text
            whole = Synthesize.from_event(event)
            await self._begin(whole.voice)
            await self._speak([whole.text])
            await self.write_event(AudioStop().event())
        elif SynthesizeStart.is_type(event.type):
            await self._begin(SynthesizeStart.from_event(event).voice)
            self.cutter = SentenceCutter(partial(self.engine.voices.sentence_ends, self.voice))
        elif SynthesizeChunk.is_type(event.type) and self.cutter is not None:
            text = SynthesizeChunk.from_event(event).text
            check_unspoken(len(self.cutter) + len(text), self.engine.config)  # before the text is cut, which takes time
            await self._speak(self.cutter.add(text))
        elif SynthesizeStop.is_type(event.type) and self.cutter is not None:
            cutter, self.cutter = self.cutter, None
            await self._speak(cutter.finish())
            await self.write_event(AudioStop().event())
            await self.write_event(SynthesizeStopped().event())

    async def _begin(self, voice: SynthesizeVoice | None) -> None:
        self.engine.check_ready()
        self.voice = self.engine.voices.resolve(voice.name if voice else None)
        await self.write_event(AudioStart(self.engine.voices.sampling_rate(self.voice), WIDTH, 1).event())

    async def _speak(self, texts: list[str]) -> None:
        """Send the audio of texts."""
        for text in texts:
            stream = self.engine.submit(SpeechRequest(text=text, voice=self.voice))
            encoder = Encoder("pcm", stream.sampling_rate)
            try:
                async for audio in stream:
                    await self.write_event(AudioChunk(encoder.rate, WIDTH, 1, encoder.encode(audio)).event())
            finally:
                stream.cancel()


def describe(engine: Engine) -> Info:
    """Describe the server and its voices."""
    options: dict[str, Any] = {"attribution": Attribution(name="", url=""), "installed": True, "version": None}
    voices = [TtsVoice(name=name, description=name, languages=[LANGUAGE], **options) for name in engine.voices.names]
    own: dict[str, Any] = {"voices": voices, "supports_synthesize_streaming": True}
    return Info(tts=[TtsProgram(name="speech-server", description="Text to speech", **own, **options)])
