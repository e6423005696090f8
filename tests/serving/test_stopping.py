"""SIGTERM: accepted requests and text that has arrived are spoken to their end, and no other is accepted."""

import asyncio
import signal
from typing import Any

import httpx
import pytest

from serving.engine import Engine
from serving.errors import RequestError
from serving.stream import SpeechRequest
from tests.serving.conftest import LONG, own_engine, pcm, sample
from tests.serving.server_process import PATIENCE, SPEECH, ServerProcess, serve

pytestmark = pytest.mark.slow
SENTENCES = ["It is late and the ferry waits until noon.", "Then it leaves.", "Good morning.", "Two."]
TEXT = " ".join(SENTENCES)
END = ["audio-stop", "synthesize-stopped"]
PAUSE = bytes(2 * round(0.35 * 22050))


def sounds(sentences: list[str] = SENTENCES) -> list[bytes]:
    return [pcm(text, 3, number) for number, text in enumerate(sentences)]


class Visitors:
    """Clients of every kind that a server has when SIGTERM arrives."""

    def __init__(self, server: ServerProcess) -> None:
        self.server, self.client = server, httpx.AsyncClient(base_url=server.url, timeout=PATIENCE)

    async def request(self, hears: asyncio.Event) -> bytes:
        body, audio = {"input": LONG * 2, "response_format": "pcm", "sample_rate": 22050}, b""
        async with self.client.stream("POST", SPEECH, json=body) as response:
            async for part in response.aiter_raw():
                audio += part
                hears.set()
        return audio

    async def wyoming(self, hears: asyncio.Event, is_complete: bool) -> list[Any]:
        from wyoming.client import AsyncTcpClient
        from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

        chunks = [SynthesizeChunk(f"{text} ") for text in SENTENCES]
        pieces = [SynthesizeStart(), *chunks, *[SynthesizeStop()] * is_complete]
        events: list[Any] = []
        async with AsyncTcpClient("127.0.0.1", self.server.wyoming_port) as client:
            for piece in pieces:
                await client.write_event(piece.event())
            while event := await client.read_event():
                events.append(event)
                if event.type == "audio-chunk":
                    hears.set()
        return events

    async def refusals(self) -> list[Any]:
        """The answers to a request and a Wyoming client that come too late."""
        from wyoming.client import AsyncTcpClient
        from wyoming.tts import Synthesize

        while (await self.client.get("/readyz")).status_code != 503:
            await asyncio.sleep(0.01)
        answer = await self.client.post(SPEECH, json={"input": "Two."})
        async with AsyncTcpClient("127.0.0.1", self.server.wyoming_port) as late:
            await late.write_event(Synthesize("Two.").event())
            event = await late.read_event()
        return [answer.status_code, answer.json()["error"]["code"], event.data["code"]]

    async def call(self) -> list[Any]:
        visits = [self.request, lambda hears: self.wyoming(hears, True), lambda hears: self.wyoming(hears, False)]
        heard = [asyncio.Event() for _ in visits]
        running = [asyncio.ensure_future(visit(hears)) for visit, hears in zip(visits, heard, strict=True)]
        await asyncio.gather(*(hears.wait() for hears in heard))
        self.server.process.send_signal(signal.SIGTERM)
        refused = await self.refusals()
        return [refused, *await asyncio.gather(*running)]


def test_sigterm_finishes_what_has_arrived_and_refuses_the_rest() -> None:
    pytest.importorskip("wyoming", reason="wyoming, of requirements/serving.txt, is not installed")

    async def call(server: ServerProcess) -> list[Any]:
        return await asyncio.wait_for(Visitors(server).call(), PATIENCE)

    with serve("--seed", 3) as server:
        refused, answer, whole, part = asyncio.run(call(server))
        assert server.process.wait(60) == 0
    assert refused == [503, "not_ready", "not_ready"]
    assert answer == pcm(LONG * 2)
    for events, kinds in ((whole, ["audio-chunk", *END]), (part, ["error", *END])):
        assert b"".join(event.payload or b"" for event in events) == PAUSE.join(sounds())
        assert [event.type for event in events[-3:]] == kinds
    assert server.lines("stopping: accepted requests have 30 seconds")
    assert [line["message"] for line in server.log if line["level"] == "ERROR"] == []


@own_engine()
async def test_the_engine_waits_for_slow_readers(engine: Engine) -> None:
    """Within the grace, an answer that is computed and not read yet counts as not finished."""
    stream = engine.submit(SpeechRequest(text="Two.", seed=3))
    stop = asyncio.ensure_future(engine.stop(PATIENCE))
    while not stream.ended:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    assert not stop.done()
    assert len([audio async for audio in stream]) > 0
    assert await stop


@own_engine()
async def test_the_grace_ends_a_visit(engine: Engine) -> None:
    calls: list[str] = []
    with engine.visit(lambda: calls.append("stop")) as visit:
        stream = engine.submit(SpeechRequest(text=LONG * 20, seed=3), visit)
        assert not await engine.stop(0.2)
        with pytest.raises(RequestError, match="the server is stopping"):
            async for _ in stream:
                pass
        with pytest.raises(RequestError, match="the server is stopping"):
            engine.submit(SpeechRequest(text="Two."), visit)
    assert len(stream.speeches) < 80 and sample(engine, "tts_queue_length") == 0  # cut off
    assert calls == ["stop"]
