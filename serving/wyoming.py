"""Home Assistant's Wyoming protocol over TCP: text, whole or in pieces, becomes events of 16-bit audio."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.server import AsyncEventHandler, AsyncTcpServer
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

from serving.encoding import AudioEncoder
from serving.engine import Engine
from serving.errors import NOT_READY, NOTHING, RequestError, not_ready_error, quote_value
from serving.limits import ReadingPace, StallError
from serving.responses import audio_chunks
from serving.sentences import SentenceCutter
from serving.stream import SpeechRequest, SpeechStream, Visit, check_length

WIDTH = 2  # bytes of a sample
HERE = ("127.0.0.0/8", "::1")  # addresses of this machine
LAST_WORDS = 2.0  # seconds in which a client may end what it is sending
NO_EVENT = "a line that is no event, expected the Wyoming protocol"

Kind = TypeVar("Kind", bound=Eventable)

log = logging.getLogger("serving")


async def serve_wyoming(engine: Engine, host: str, port: int) -> AsyncTcpServer:
    """Start a server, which the caller stops. Raises OSError if the system refuses."""
    server = AsyncTcpServer(host, port)
    await server.start(partial(Handler, engine, set()))
    return server


@dataclass
class Exchange:
    """A text, whole or in pieces, and what has been spoken of it."""

    kind: str  # of the event that began it
    voice: str
    seed: int  # of all sentences, for one tone
    start: float = field(default_factory=time.monotonic)
    cutter: SentenceCutter | None = None  # of a text in pieces
    number: int = 0  # of the next sentence
    characters: int = 0
    audio_seconds: float = 0.0
    first_byte: float | None = None
    texts: list[str] | None = None  # for the log, if it has texts

    def count(self, stream: SpeechStream) -> None:
        """Add a sentence."""
        self.characters += len(stream.request.text)
        if self.texts is not None:
            self.texts.append(stream.request.text)
        self.audio_seconds += stream.samples / stream.sampling_rate
        self.first_byte = stream.first if self.first_byte is None else self.first_byte

    def fields(self) -> dict[str, object]:
        """Return the fields of the log's line."""
        numbers = {"first_byte": self.first_byte or 0.0, "audio_seconds": self.audio_seconds}
        numbers["seconds"] = time.monotonic() - self.start
        words: dict[str, object] = {"voice": self.voice, "seed": self.seed, "characters": self.characters}
        words |= {} if self.texts is None else {"texts": self.texts}
        return words | {name: round(value, 4) for name, value in numbers.items()}


class Handler(AsyncEventHandler):
    """One connection. It stays open after an exchange, and is closed after an error, which ends what had begun."""

    def __init__(
        self, engine: Engine, connected: set[Handler], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Begin a connection, one of those `connected`."""
        super().__init__(reader, writer)
        self.connected = connected
        connected.add(self)
        self.engine, self.pace = engine, ReadingPace(engine.config.idle_timeout)
        self.exchange: Exchange | None = None
        self.is_stream = False  # True from synthesize-start to synthesize-stopped
        self.visit: Visit | None = None  # from the first text on
        self.visits = ExitStack()
        self.reading: asyncio.Future[Event | None] | None = None

    async def run(self) -> None:
        """Answer events until the client leaves, or until those that arrived before the server stops are answered."""
        problem = "the client has left"
        try:
            with self.visits:
                if refusal := self._refusal():
                    await self._refuse(refusal)
                else:
                    await self._answer_all()
                await self._close()
        except OSError:  # among them ConnectionError, and an end of a connection that the client has closed
            pass
        except StallError as error:
            problem = str(error)
            self.writer.transport.abort()
        finally:
            self._finish(error=problem)
            self.connected.discard(self)
            self.writer.close()

    def _refusal(self) -> RequestError | None:
        config = self.engine.config
        if len(self.connected) > config.max_sockets:
            message = f"{config.max_sockets} connections are open already (--max-sockets); try again later"
            return RequestError(503, message, code="too_many_sockets")
        if config.api_key is not None and not is_among(self._client(), (*HERE, *config.wyoming_client)):
            message = (
                "this server has a key, which the protocol cannot carry, and this address is not let in without it"
            )
            return RequestError(401, f"{message} (--wyoming-client)", code="invalid_api_key")
        return None

    async def _answer_all(self) -> None:
        is_new = True
        try:
            while (event := await self._next()) is not None:
                is_new = False
                await self.handle_event(event)
            if self.exchange is not None and self.engine.is_stopping:
                await self._speak(self._rest())
                raise not_ready_error(is_stopping=True)
            if is_new and self.engine.is_stopping:  # its first event may be on the way, and waits for an answer
                raise not_ready_error(is_stopping=True)
        except RequestError as error:
            await self._refuse(error)

    async def _next(self) -> Event | None:
        """Read the next event; None at the end, and once the engine stops, after those that have arrived.

        Raises RequestError if none is complete for too long, and for bytes that are no event.
        """
        limit = self.engine.config.idle_timeout
        self.reading = asyncio.ensure_future(read_event(self.reader, self.engine.config.max_body))
        try:
            await asyncio.wait({self.reading}, timeout=0 if self.engine.is_stopping else limit)
            if self.reading.done() and not self.reading.cancelled():
                return self.reading.result()
            if self.engine.is_stopping:
                return None
            raise RequestError(408, f"no event for {limit:g} seconds (--idle-timeout)", code="idle")
        except RequestError:
            raise
        except (ConnectionError, asyncio.IncompleteReadError):  # the client has left
            return None
        except Exception as error:  # of bytes that are no event
            raise RequestError(400, f"{NO_EVENT} ({type(error).__name__})", code="invalid_message") from None
        finally:
            self._stop_reading()
            await asyncio.wait({self.reading})  # else the next one would find the reader taken

    def _stop_reading(self) -> None:
        if self.reading is not None:
            self.reading.cancel()

    async def _refuse(self, error: RequestError) -> None:
        """Send an error, and end what has begun: a client waits for that."""
        await self.write_event(Error(error.message, error.code).event())
        if self.exchange is not None:
            await self.write_event(AudioStop().event())
        if self.is_stream:
            await self.write_event(SynthesizeStopped().event())
        if self.exchange is None:
            self._log("error", error=error.log_message)
        else:
            is_cut = error.status >= 500 and error.code != NOT_READY and self.exchange.first_byte is not None
            self._finish(logging.ERROR if is_cut else logging.INFO, error=error.log_message)

    async def _close(self) -> None:
        """Close after the last bytes. Raises StallError as a pace does."""
        self.writer.write_eof()
        with suppress(
            TimeoutError, asyncio.TimeoutError
        ):  # closing with bytes unread would take the answer from the client
            await asyncio.wait_for(self._read_rest(), LAST_WORDS)
        self.writer.close()
        await self.pace.send(self.writer.wait_closed())

    async def _read_rest(self) -> None:
        while await self.reader.read(2**16):
            pass

    async def write_event(self, event: Event) -> None:
        """Send an event. Raises StallError as a pace does."""
        await self.pace.send(super().write_event(event))

    async def handle_event(self, event: Event) -> bool:
        """Answer an event; True, since the connection stays open. Raises RequestError."""
        if Describe.is_type(event.type):
            await self.write_event(describe(self.engine).event())
            self._log(event.type)
        elif Ping.is_type(event.type):
            await self.write_event(Pong(read(Ping, event).text).event())
        elif Synthesize.is_type(event.type) and not self.is_stream:  # within a stream it repeats the whole text
            whole = read(Synthesize, event)
            await self._begin(event.type, whole.voice)
            await self._speak([whole.text])
            await self._end()
        elif SynthesizeStart.is_type(event.type):
            self.is_stream = True
            exchange = await self._begin(event.type, read(SynthesizeStart, event).voice)
            exchange.cutter = SentenceCutter(partial(self.engine.voices.sentence_ends, exchange.voice))
        elif self.exchange is not None and self.exchange.cutter is not None:
            await self._continue(event, self.exchange.cutter)
        return True

    async def _continue(self, event: Event, cutter: SentenceCutter) -> None:
        """Answer an event within a text in pieces."""
        if SynthesizeChunk.is_type(event.type):
            text = read(SynthesizeChunk, event).text
            # Before the text is cut, which takes time.
            check_length(len(cutter) + len(text), self.engine.config, "text", " are not spoken yet")
            await self._speak(cutter.add(text))
        elif SynthesizeStop.is_type(event.type):
            await self._speak(self._rest())
            await self._end()

    async def _begin(self, kind: str, voice: SynthesizeVoice | None) -> Exchange:
        if self.visit is None:
            self.visit = self.visits.enter_context(self.engine.visit(self._stop_reading))
        name = self.engine.voices.resolve(voice.name if voice else None)
        await self.write_event(AudioStart(self.engine.voices.sampling_rate(name), WIDTH, 1).event())
        texts: list[str] | None = [] if self.engine.config.log_texts else None
        self.exchange = Exchange(kind, name, self.engine.choose_seed(None), texts=texts)
        return self.exchange

    async def _end(self) -> None:
        await self.write_event(AudioStop().event())
        if self.is_stream:
            await self.write_event(SynthesizeStopped().event())
        self._finish()

    def _rest(self) -> list[str]:
        """Return the sentences that the end of a text completes."""
        return self.exchange.cutter.finish() if self.exchange is not None and self.exchange.cutter is not None else []

    async def _speak(self, texts: list[str]) -> None:
        """Send the audio of a text's next sentences, with pauses between them."""
        exchange, config = self.exchange, self.engine.config
        assert exchange is not None
        for text in texts:
            request = SpeechRequest(text=text, voice=exchange.voice, seed=exchange.seed, number=exchange.number)
            stream = self.engine.submit(request, self.visit)
            notes = await asyncio.to_thread(self.engine.voices.notes, stream.voice, text)
            encoder = AudioEncoder("pcm", stream.sampling_rate, config.speed, volume=config.volume)
            exchange.number += 1
            try:
                async for samples in audio_chunks(stream, encoder, self.pace):
                    event = AudioChunk(encoder.rate, WIDTH, 1, samples).event()
                    event.data |= {"notes": notes} if notes else {}  # the protocol has no place of its own for them
                    notes = []
                    await self.write_event(event)
            except RequestError as error:
                if error.code != NOTHING:
                    raise
            finally:
                stream.cancel()
                exchange.count(stream)

    def _finish(self, level: int = logging.INFO, **more: object) -> None:
        if self.exchange is not None:
            self._log(self.exchange.kind, level, **self.exchange.fields(), **more)
        self.exchange, self.is_stream = None, False

    def _log(self, kind: str, level: int = logging.INFO, **fields: object) -> None:
        log.log(level, "wyoming", extra={"fields": {"client": self._client(), "event": kind, **fields}})

    def _client(self) -> str:
        """Return the client's address, "" once it has left."""
        return str((self.writer.get_extra_info("peername") or ("",))[0])


async def read_event(reader: asyncio.StreamReader, most: int) -> Event | None:
    """Read an event of at most `most` bytes, without its payload, which speech has no use for; None at the end.

    Raises RequestError for bytes that are no event and for a larger one, before it is read.
    """
    if not (line := await reader.readline()):
        return None
    header = json.loads(line)
    sizes = [header.get(name) or 0 for name in ("data_length", "payload_length")]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise RequestError(400, f"{NO_EVENT} (lengths {quote_value(sizes)})", code="invalid_message")
    if (size := len(line) + sum(sizes)) > most:
        message = f"event: {size} bytes, expected at most {most} (--max-body)"
        raise RequestError(413, message, code="body_too_large")
    data = header.get("data") or {}
    if sizes[0]:
        data |= json.loads(await reader.readexactly(sizes[0]))
    await reader.readexactly(sizes[1])
    return Event(header["type"], data)


def is_among(address: str, networks: Iterable[str]) -> bool:
    """True if one of the networks has an IP address; IPv4 may be written as IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in ipaddress.ip_network(network, strict=False) for network in networks)


def read(kind: type[Kind], event: Event) -> Kind:
    """Read the data of an event. Raises RequestError if they are not those of its kind."""
    try:
        found = kind.from_event(event)
        voice = getattr(found, "voice", None)
        texts = [getattr(found, "text", ""), (voice and voice.name) or ""]
        texts = [text or "" for text in texts] if kind is Ping else texts  # Ping's own text may be none
        "".join(texts).encode()  # JSON may have halves of characters
    except (AttributeError, KeyError, TypeError, ValueError):
        message = f"{event.type}: {quote_value(event.data)}, expected the protocol's data"
        raise RequestError(400, message, code="invalid_body") from None
    return cast(Kind, found)


def describe(engine: Engine) -> Info:
    """Describe the server and its voices."""
    options: dict[str, Any] = {"attribution": Attribution(name="", url=""), "installed": True, "version": None}
    about = {name: engine.voices.about(name) for name in engine.voices.names}
    voices = [TtsVoice(name=name, description=name, languages=[who.language], **options) for name, who in about.items()]
    own: dict[str, Any] = {"voices": voices, "supports_synthesize_streaming": True}
    return Info(tts=[TtsProgram(name="speech-server", description="Text to speech", **own, **options)])
