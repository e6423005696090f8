"""Speech over a WebSocket: text arrives in pieces, and each sentence is spoken as soon as it is complete.

The client sends JSON: {"type": "start", settings} (optional, first), {"type": "text", "text": …} as often as it likes, then
{"type": "end"}; {"type": "cancel"} drops everything that has not been sent yet. The server sends {"type": "started"} with the seed
and the rate, {"type": "sentence"} before the audio of each sentence, binary messages of 16-bit samples, {"type": "cancelled"},
{"type": "error"}, and finally {"type": "done"}.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import WebSocket
from pydantic import ValidationError
from starlette.types import Message
from starlette.websockets import WebSocketDisconnect

from serving.engine import Engine
from serving.errors import NOT_READY, NOTHING, RequestError, not_ready_error
from serving.limits import pace_of
from serving.responses import audio_chunks
from serving.schemas import SocketMessage
from serving.sentences import SentenceCutter
from serving.stream import SpeechStream, Visit, check_unspoken

NORMAL, POLICY, TRY_LATER = 1000, 1008, 1013  # codes of a closing WebSocket (RFC 6455 and its registry)


async def speak_over_socket(socket: WebSocket, engine: Engine, n_open: int) -> None:
    """Serve one connection until its end; `n_open` counts the open connections, including this one."""
    await socket.accept()
    session = Session(socket, engine)
    try:
        if n_open > (most := engine.config.max_sockets):
            message = f"{most} connections are open already (--max-sockets); try again later"
            raise RequestError(503, message, code="too_many_sockets")
        with engine.visit(session.stopping.set) as session.visit:
            await session.run()
            await socket.close(NORMAL)
    except RequestError as error:
        await session.refuse(error)
    except WebSocketDisconnect:
        socket.scope.setdefault("log", {})["disconnected"] = True
    finally:
        session.cancel()


class Session:
    """The state of a connection: its settings, the incomplete sentence, the sentences to speak and the current stream."""

    def __init__(self, socket: WebSocket, engine: Engine) -> None:
        self.socket, self.engine = socket, engine
        self.settings = SocketMessage(type="start")
        self.cutter: SentenceCutter | None = None
        self.sentences: asyncio.Queue[str | None] = asyncio.Queue()  # None: the end
        self.stream: SpeechStream | None = None
        self.visit: Visit | None = None
        self.stopping = asyncio.Event()
        self.is_complete = False  # True once "end" has arrived
        self.seed = self.number = self.waiting = 0  # waiting: characters of sentences that are not yet spoken
        self.round = 0  # number of cancellations

    async def run(self) -> None:
        """Read messages and speak at the same time until the text ends. Raises the error of either."""
        reading, speaking = asyncio.ensure_future(self._read()), asyncio.ensure_future(self._speak())
        try:
            done, _ = await asyncio.wait({reading, speaking}, return_when=asyncio.FIRST_COMPLETED)
            if reading in done:
                reading.result()
            await speaking
        finally:
            for task in (reading, speaking):
                task.cancel()
            await asyncio.gather(reading, speaking, return_exceptions=True)

    def cancel(self) -> None:
        """Drop the text that has not been spoken and stop computing the current sentence."""
        self.round += 1
        if self.stream is not None:
            self.stream.cancel()
        while not self.sentences.empty():
            self.sentences.get_nowait()
        self.waiting = 0
        if self.cutter is not None:
            self.cutter.finish()

    async def refuse(self, error: RequestError) -> None:
        """Send an error and close."""
        is_cut = error.status >= 500 and error.code != NOT_READY and self.number > 0
        self.socket.scope.setdefault("log", {}).update({"error": error.log_message} | ({"cut": True} if is_cut else {}))
        await self.socket.send_json({"type": "error", **error.body()})
        await self.socket.close(TRY_LATER if error.status == 503 else POLICY, error.reason)

    async def _receive(self) -> str | None:
        """Receive a text message; None if the server is stopping.

        Raises WebSocketDisconnect if the client has left, RequestError for a binary message.
        """
        event = await self._receive_event()
        if event is None:
            return None
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", NORMAL))
        if event.get("text") is None:
            raise RequestError(400, "message: binary, expected JSON as text", code="invalid_message")
        return str(event["text"])

    async def _receive_event(self) -> Message | None:
        """Receive an event of the connection; None if the server is stopping.

        Raises RequestError if there was neither a message nor audio to send for too long.
        """
        limit = self.engine.config.idle_timeout
        receiving, stopping = asyncio.ensure_future(self.socket.receive()), asyncio.ensure_future(self.stopping.wait())
        tasks = {receiving, stopping}
        try:
            while not (await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED))[0]:
                if not self.waiting and (self.stream is None or self.stream.cancelled):  # all is sent
                    raise RequestError(408, f"no message for {limit:g} seconds (--idle-timeout)", code="idle")
            return None if stopping.done() else receiving.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _read(self) -> None:
        """Read messages until the text ends or the server stops."""
        while (data := await self._receive()) is not None:
            message = parse(data)
            if message.type == "start":
                if self.cutter is not None:
                    raise RequestError(400, "type: 'start' comes after text, expected it first", param="type")
                await self._start(message)
                continue
            if self.cutter is None:
                await self._start(self.settings)
            assert self.cutter is not None
            if message.type == "cancel":
                self.cancel()
                await self.socket.send_json({"type": "cancelled"})
                continue
            self._check_length(len(message.text))  # before the text is cut, which takes time
            self._add(self.cutter.add(message.text))
            if message.type == "end":
                self.is_complete = True
                break
        if self.cutter is not None:
            self._add(self.cutter.finish())
        self.sentences.put_nowait(None)

    async def _start(self, settings: SocketMessage) -> None:
        voices = self.engine.voices
        self.settings = settings
        request = settings.request("")
        name = voices.resolve(request.voice)
        self.cutter = SentenceCutter(partial(voices.sentence_ends, name))
        self.seed = self.engine.choose_seed(settings.seed)
        rate = settings.sample_rate or voices.sampling_rate(name)
        self.socket.scope.setdefault("log", {}).update({"voice": name, "seed": self.seed})
        await self.socket.send_json({"type": "started", "voice": name, "seed": self.seed, "sampling_rate": rate})

    def _add(self, sentences: list[str]) -> None:
        self.waiting += sum(map(len, sentences))
        for sentence in sentences:
            self.sentences.put_nowait(sentence)

    def _check_length(self, added: int) -> None:
        """Raise RequestError if too many characters are waiting."""
        assert self.cutter is not None
        check_unspoken(self.waiting + len(self.cutter) + added, self.engine.config)

    async def _speak(self) -> None:
        """Speak one sentence after another until the text ends. Raises RequestError 503 if the server stops first."""
        while (sentence := await self.sentences.get()) is not None:
            self.waiting -= len(sentence)
            await self._speak_sentence(sentence)
        if not self.is_complete:
            raise not_ready_error(is_stopping=True)
        await self.socket.send_json({"type": "done", "sentences": self.number})

    async def _speak_sentence(self, sentence: str) -> None:
        """Send a sentence's audio, unless it is cancelled."""
        current, number = self.round, self.number
        self.number += 1
        settings = self.settings.model_copy(update={"seed": self.seed})
        self.stream = stream = self.engine.submit(settings.request(sentence, number), self.visit)
        encoder = settings.encoder(stream.sampling_rate, self.engine.config)
        await self.socket.send_json({"type": "sentence", "number": number, "text": sentence})
        try:
            async for samples in audio_chunks(stream, encoder, pace_of(self.socket.scope)):
                if current == self.round:
                    await self.socket.send_bytes(samples)
        except RequestError as error:
            if error.code != NOTHING:
                raise
        finally:
            stream.cancel()


def parse(text: str) -> SocketMessage:
    """Parse a message. Raises RequestError that names the field and its value."""
    try:
        return SocketMessage.model_validate_json(text)
    except ValidationError as error:
        problems = [describe(problem) for problem in error.errors()]
        raise RequestError(400, f"message: {'; '.join(problems)}", code="invalid_message") from None


def describe(problem: Any) -> str:
    """Describe a problem found by pydantic."""
    name = ".".join(str(part) for part in problem["loc"])
    return f"{name}: {problem['msg']}" if name else str(problem["msg"])
