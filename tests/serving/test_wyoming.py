"""Wyoming's client against a server in this process: the format of audio, errors within a stream, and clients that leave."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("wyoming", reason="wyoming, of requirements/serving.txt, is not installed")
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping
from wyoming.server import AsyncEventHandler
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

from common.audio.audio_processing import to_pcm
from serving.engine import Engine
from serving.wyoming import HERE, is_among, serve_wyoming
from tests.serving.conftest import LONG, reference, run, running_engine, sample, until
from tests.serving.server_process import free_port

PATIENCE = 60  # seconds
TEXTS = 6  # of a slow client
SOUND, END = ["audio-start", "audio-chunk"], ["audio-stop", "synthesize-stopped"]


def with_client(engine: Engine, steps: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """Run steps with a connected client, on a server of their own."""

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


async def read_all(client: Any) -> list[Any]:
    """The events until the server closes the connection."""
    events: list[Any] = []
    while event := await asyncio.wait_for(client.read_event(), PATIENCE):
        events.append(event)
    return events


def answers(engine: Engine, *sent: Any, end: str = "", times: int = 1) -> list[Any]:
    """What answers a client's events, or its bytes, until one of a kind has come `times`, or the server closes the connection."""

    async def steps(client: Any) -> list[Any]:
        for one in sent:
            if isinstance(one, bytes):
                client._writer.write(one)
            else:
                await client.write_event(one.event())
        if not end:
            return await read_all(client)
        return [event for _ in range(times) for event in await read_until(client, end)]

    return with_client(engine, steps)


def stream_of(*pieces: str, voice: str | None = None) -> list[Any]:
    """A text in pieces as Home Assistant sends it: the whole text comes once more before the end."""
    chunks = map(SynthesizeChunk, pieces)
    return [SynthesizeStart(SynthesizeVoice(voice)), *chunks, Synthesize("".join(pieces)), SynthesizeStop()]


@pytest.mark.parametrize(
    ("pieces", "voice", "code", "kinds"),
    [
        (("Two.",), "nobody", "voice_not_found", ["error", "synthesize-stopped"]),
        (("It is late. ", "{HH AH0 XX9}\n"), None, "invalid_text", [*SOUND, "error", *END]),
        (("Yes! It is", "a" * 5000), None, "text_too_long", [*SOUND, "error", *END]),
        (("Yes! It is nine. ",), "Alloy", None, [*SOUND, *END]),
    ],
)
def test_each_text_in_pieces_comes_to_its_end(engine: Engine, caplog, pieces, voice, code, kinds) -> None:
    """Home Assistant waits for synthesize-stopped or the end of the connection, whatever happens; each leaves a line of log."""

    with caplog.at_level(logging.INFO, logger="serving"):
        events = answers(engine, *stream_of(*pieces, voice=voice), end="" if code else "synthesize-stopped")
    found = [event.type for event in events]
    assert [kind for kind, before in zip(found, ["", *found], strict=False) if kind != before] == kinds
    (line,) = [record.fields for record in caplog.records if record.message == "wyoming"]
    assert line["event"] in ("synthesize-start", "error") and ("error" in line) == bool(code) and "texts" not in line
    if code:
        assert next(event for event in events if event.type == "error").data["code"] == code
    if "audio-chunk" in kinds:
        assert line["audio_seconds"] > 0 and line["voice"] == "embedded" and line["seed"] >= 0


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"data": {"text": " "}}, "empty_text"),
        ({"data": {"text": "Two.", "voice": {"name": 7}}}, "invalid_body"),
        ({"data": {"text": "\ud800 Two."}}, "invalid_body"),
        ({"data": {}}, "invalid_body"),
        ({"payload_length": 2000000000}, "body_too_large"),
        ({"payload_length": -1}, "invalid_message"),
        (b"GET / HTTP/1.1\r\n\r\n", "invalid_message"),
    ],
)
def test_what_cannot_be_spoken_ends_the_connection(engine: Engine, caplog, event: Any, code: str) -> None:
    line = event if isinstance(event, bytes) else json.dumps({"type": "synthesize", **event}).encode() + b"\n"
    with caplog.at_level(logging.INFO, logger="serving"):
        pong, *events = [event for event in answers(engine, Ping("hello"), line) if event.type not in SOUND]
    assert (pong.type, pong.data["text"]) == ("pong", "hello")
    assert events[0].data["code"] == code and [event.type for event in events[1:]] in ([], ["audio-stop"])
    assert ("no event" in caplog.records[-1].fields["error"]) == (code == "invalid_message")


def test_a_whole_text_is_the_audio_of_the_library_and_in_the_log_on_demand(caplog) -> None:
    with running_engine(seed=3, log_texts=True, volume=0.5) as engine, caplog.at_level(logging.INFO, logger="serving"):
        texts = Synthesize("***"), Synthesize("Two.", SynthesizeVoice("embedded"))
        start, stop, first, *chunks, _ = answers(engine, *texts, end="audio-stop", times=2)
    assert [start.type, stop.type] == ["audio-start", "audio-stop"]  # a text without words
    layout = {"rate": 22050, "width": 2, "channels": 1}
    assert first.type == "audio-start" and all(layout.items() <= event.data.items() for event in (first, *chunks))
    assert b"".join(event.payload for event in chunks) == to_pcm(0.5 * reference("Two.", 3)).tobytes()
    assert [record.fields["texts"] for record in caplog.records if record.message == "wyoming"][-1:] == [["Two."]]


def test_events_sent_at_once_are_answered(engine: Engine) -> None:
    found = [Info.from_event(answer).tts[0] for answer in answers(engine, *[Describe()] * 5, end="info", times=5)]
    named = [(voice.name, *voice.languages) for program in found for voice in program.voices]
    assert named == [("embedded", "en"), ("heart", "en"), ("spanish", "es")] * 5


@pytest.mark.slow
def test_a_client_that_does_not_keep_up_is_cut_off(monkeypatch) -> None:
    """Else its request would keep its place in the queue. No event takes --idle-timeout, and all take longer than the audio."""
    write = AsyncEventHandler.write_event

    async def write_late(handler: Any, event: Any) -> None:
        await asyncio.sleep(0.9)
        await write(handler, event)

    async def steps(client: Any) -> list[str]:
        for _ in range(TEXTS):
            await client.write_event(Synthesize("Two.").event())
        kinds = []
        with suppress(ConnectionError):
            while event := await asyncio.wait_for(client.read_event(), 20):
                kinds.append(event.type)
        return kinds

    monkeypatch.setattr(AsyncEventHandler, "write_event", write_late)
    with running_engine(idle_timeout=1.5, speed=4.0) as engine:
        kinds = with_client(engine, steps)
    assert "audio-chunk" in kinds and kinds.count("audio-stop") < TEXTS


def test_a_client_that_leaves_ends_its_request(engine: Engine) -> None:
    async def steps(client: Any) -> None:
        await client.write_event(Synthesize(LONG * 20).event())
        await read_until(client, "audio-chunk")
        await client.disconnect()
        await until(lambda: not sample(engine, "tts_queue_length"))

    before = sample(engine, "tts_requests_total", voice="embedded", result="cancelled")
    with_client(engine, steps)
    assert sample(engine, "tts_requests_total", voice="embedded", result="cancelled") == before + 1


@pytest.mark.slow
def test_an_event_that_is_never_complete_ends_the_connection() -> None:
    with running_engine(idle_timeout=0.5) as engine:
        assert [event.data["code"] for event in answers(engine, b'{"type": "synth')] == ["idle"]


@pytest.mark.slow
def test_a_payload_is_read_over_and_idleness_counts_from_the_end_of_an_answer() -> None:
    """Its audio takes longer to read than --idle-timeout."""

    async def steps(client: Any) -> list[str]:
        await client.write_event(Event("synthesize", {"text": LONG[:96]}, payload=b"x" * 100_000))
        events = []
        while not events or events[-1].type != "audio-stop":
            events += await read_until(client, "audio-chunk") if not events else [await client.read_event()]
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.8)
        await client.write_event(Synthesize("Two.").event())
        return [event.type for event in await read_until(client, "audio-stop")]

    with running_engine(idle_timeout=1.5) as engine:
        assert with_client(engine, steps)[0] == "audio-start"


def test_connections_beyond_the_limit_and_without_the_key_are_refused() -> None:
    async def steps(client: Any) -> list[str]:
        await client.write_event(Describe().event())
        first = (await read_until(client, "info"))[-1].type
        async with AsyncTcpClient(client.host, client.port) as second:
            return [first, *(event.data["code"] for event in await read_all(second))]

    with running_engine(max_sockets=1) as engine:
        assert with_client(engine, steps) == ["info", "too_many_sockets"]


@pytest.mark.parametrize(
    ("address", "networks", "found"),
    [
        ("::1", (), True),
        ("::ffff:127.0.0.1", (), True),
        ("192.168.1.6", ("192.168.1.5", "192.168.1.6/24"), True),
        ("::ffff:192.168.1.6", ("192.168.1.0/24",), True),
        ("fe80::1%eth0", ("fe80::/10",), True),
        ("", ("0.0.0.0/0",), False),
    ],
)
def test_addresses_that_need_no_key(address: str, networks: tuple[str, ...], found: bool) -> None:
    assert is_among(address, (*HERE, *networks)) is found


def test_with_a_key_other_machines_are_refused(monkeypatch) -> None:
    with running_engine(api_key="secret") as engine:
        for address, kind in (("192.168.1.5", "error"), ("127.0.0.1", "info")):
            monkeypatch.setattr("serving.wyoming.Handler._client", lambda handler, address=address: address)
            assert [event.type for event in answers(engine, Describe(), end=kind)] == [kind]
