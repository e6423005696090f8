"""Wyoming's client against a server in this process: the format of audio, errors within a stream, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from serving.engine import Engine
from tests.serving.conftest import LONG, run, running_engine
from tests.serving.server_process import free_port

pytest.importorskip("wyoming", reason="wyoming, of requirements/serving.txt, is not installed")
pytestmark = pytest.mark.slow
PATIENCE = 60  # seconds


def with_client(engine: Engine, steps: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Run steps with a connected client, on a server of their own."""
    from wyoming.client import AsyncTcpClient

    from serving.wyoming import serve_wyoming

    async def call() -> Any:
        port = free_port()
        server = await serve_wyoming(engine, "127.0.0.1", port)
        try:
            async with AsyncTcpClient("127.0.0.1", port) as client:
                return await steps(client)
        finally:
            await server.stop()

    return run(call())


async def read_until(client: Any, kind: str) -> list[Any]:
    events: list[Any] = []
    while not events or events[-1].type != kind:
        events.append(await asyncio.wait_for(client.read_event(), PATIENCE))
    return events


def test_a_whole_text_is_spoken_after_an_error_within_a_stream(engine: Engine) -> None:
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart

    async def steps(client: Any) -> list[Any]:
        await client.write_event(SynthesizeStart().event())
        await client.write_event(SynthesizeChunk("{HH AH0 XX9}\n").event())
        error = (await read_until(client, "error"))[-1]
        await client.write_event(Synthesize("Two.").event())
        return [error, *await read_until(client, "audio-stop")]

    error, *events = with_client(engine, steps)
    assert "XX9" in error.data["text"] and error.data["code"] == "invalid_text"
    assert any(len(event.payload or b"") > 0 for event in events)


def test_a_text_without_words_has_no_audio(engine: Engine) -> None:
    from wyoming.tts import Synthesize

    async def steps(client: Any) -> list[Any]:
        await client.write_event(Synthesize("***").event())
        return await read_until(client, "audio-stop")

    assert [event.type for event in with_client(engine, steps)] == ["audio-start", "audio-stop"]


def test_more_events_than_are_read_ahead_are_answered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from wyoming.info import Describe

    async def steps(client: Any) -> list[Any]:
        for _ in range(5):
            await client.write_event(Describe().event())
        return [(await read_until(client, "info"))[-1] for _ in range(5)]

    monkeypatch.setattr("serving.wyoming.READ_AHEAD", 2)
    assert len(with_client(engine, steps)) == 5


def test_a_text_in_pieces_is_limited_before_its_end(engine: Engine) -> None:
    from wyoming.tts import SynthesizeChunk, SynthesizeStart

    async def steps(client: Any) -> list[Any]:
        await client.write_event(SynthesizeStart().event())
        for _ in range(5):
            await client.write_event(SynthesizeChunk("word " * 200).event())
        return await read_until(client, "error")

    error = with_client(engine, steps)[-1]
    assert error.data["code"] == "text_too_long" and "5000 characters" in error.data["text"]


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its request would keep its place in the queue."""
    from wyoming.tts import Synthesize

    async def wait_for_the_end(handler: Any, event: Any) -> None:
        while not handler.writer.transport.is_closing():
            await asyncio.sleep(0.01)
        raise ConnectionResetError

    async def steps(client: Any) -> Any:
        await client.write_event(Synthesize("Two.").event())
        return await asyncio.wait_for(client.read_event(), 20)

    monkeypatch.setattr("wyoming.server.AsyncEventHandler.write_event", wait_for_the_end)
    with running_engine(idle_timeout=0.5) as engine:
        assert with_client(engine, steps) is None


def test_a_client_that_leaves_ends_its_request(engine: Engine) -> None:
    from wyoming.tts import Synthesize

    def value(name: str, **labels: str) -> float:
        return engine.metrics.registry.get_sample_value(name, labels) or 0.0

    async def wait_for_free_queue() -> None:
        while value("tts_queue_length"):
            await asyncio.sleep(0.05)

    async def steps(client: Any) -> None:
        await client.write_event(Synthesize(LONG * 20).event())
        await read_until(client, "audio-chunk")
        await client.disconnect()
        await asyncio.wait_for(wait_for_free_queue(), PATIENCE)

    before = value("tts_requests_total", voice="embedded", result="cancelled")
    with_client(engine, steps)
    assert value("tts_requests_total", voice="embedded", result="cancelled") == before + 1
