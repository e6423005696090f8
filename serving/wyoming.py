"""Home Assistant's Wyoming protocol over TCP: text, whole or in pieces, becomes events of 16-bit audio."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from functools import partial
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_read_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

from serving.encoding import Encoder
from serving.engine import Engine
from serving.errors import NOTHING, RequestError, not_ready_error
from serving.limits import Pace, StallError
from serving.sentences import SentenceCutter
from serving.stream import SpeechRequest, Visit, check_unspoken

LANGUAGE = "en"  # Home Assistant lists a voice under its language; checkpoints name none
WIDTH = 2  # bytes of a sample
READ_AHEAD = 1000  # events read while earlier ones are answered; a line of one may have 64 kB

log = logging.getLogger("serving")


async def serve_wyoming(engine: Engine, host: str, port: int) -> AsyncTcpServer:
    """Start a server, which the caller stops. Raises OSError if the system refuses."""
    server = AsyncTcpServer(host, port)
    await server.start(partial(Handler, engine))
    return server


class Handler(AsyncEventHandler):
    """One connection."""

    def __init__(self, engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.engine, self.voice, self.pace = engine, "", Pace(engine.config.idle_timeout)
        self.cutter: SentenceCutter | None = None  # of a text that comes in pieces
        self.visit: Visit | None = None  # from the first text on
        self.visits = ExitStack()
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()  # None: the end
        self.room = asyncio.Semaphore(READ_AHEAD)  # for events
        self.reading = asyncio.ensure_future(self._read())

    async def run(self) -> None:
        """Answer events until the client leaves, or until those that arrived before the server stops are answered."""
        try:
            with self.visits:
                while (event := await self.events.get()) is not None:
                    self.room.release()
                    await self.handle_event(event)
                await self._end_text()
                await self._close()
        except ConnectionError:
            pass  # the client has left
        except StallError as error:
            log.info(f"wyoming: {error}")
            self.writer.transport.abort()
        finally:
            self.reading.cancel()
            self.writer.close()

    async def _read(self) -> None:
        """Read events while earlier ones are answered, so that text that has arrived is spoken even if the server stops."""
        try:
            while await self.room.acquire() and (event := await async_read_event(self.reader)) is not None:
                self.events.put_nowait(event)
        except Exception as error:  # of bytes that are no event, or of a client that has left
            log.info(f"wyoming: a connection ends ({type(error).__name__})")
        finally:
            self.events.put_nowait(None)

    async def _end_text(self) -> None:
        """Speak the rest of an unfinished text and send the reason."""
        if self.cutter is not None and self.engine.is_stopping:
            cutter, self.cutter = self.cutter, None
            try:
                await self._speak(cutter.finish())
                raise not_ready_error(is_stopping=True)
            except RequestError as error:
                await self.write_event(Error(error.message, error.code).event())

    async def _close(self) -> None:
        """Close after the last bytes. Raises StallError as a pace does."""
        self.writer.close()
        await self.pace.send(self.writer.wait_closed())

    async def handle_event(self, event: Event) -> bool:
        """Answer an event; the connection stays open."""
        try:
            await self._answer(event)
        except RequestError as error:
            self.cutter = None
            await self.write_event(Error(error.message, error.code).event())
        return True

    async def write_event(self, event: Event) -> None:
        """Send an event. Raises StallError as a pace does."""
        await self.pace.send(super().write_event(event))

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
        if self.visit is None:
            self.visit = self.visits.enter_context(self.engine.visit(self.reading.cancel))
        self.voice = self.engine.voices.resolve(voice.name if voice else None)
        await self.write_event(AudioStart(self.engine.voices.sampling_rate(self.voice), WIDTH, 1).event())

    async def _speak(self, texts: list[str]) -> None:
        """Send the audio of texts."""
        for text in texts:
            stream = self.engine.submit(SpeechRequest(text=text, voice=self.voice), self.visit)
            encoder = Encoder("pcm", stream.sampling_rate)
            self.pace.begin()
            try:
                async for audio in stream:
                    self.pace.add(encoder.seconds(audio))
                    await self.write_event(AudioChunk(encoder.rate, WIDTH, 1, encoder.encode(audio)).event())
            except RequestError as error:
                if error.code != NOTHING:
                    raise
            finally:
                stream.cancel()


def describe(engine: Engine) -> Info:
    """Describe the server and its voices."""
    options: dict[str, Any] = {"attribution": Attribution(name="", url=""), "installed": True, "version": None}
    voices = [TtsVoice(name=name, description=name, languages=[LANGUAGE], **options) for name in engine.voices.names]
    own: dict[str, Any] = {"voices": voices, "supports_synthesize_streaming": True}
    return Info(tts=[TtsProgram(name="speech-server", description="Text to speech", **own, **options)])
