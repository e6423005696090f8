"""The pace of readers: one that plays in real time gets all of its audio, and one that reads a little now and then is cut off."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from serving.app import make_app
from serving.config import ServingConfig
from serving.engine import Engine
from serving.pace import Pace, StallError
from tests.serving.conftest import LONG, run, running_engine

pytestmark = pytest.mark.slow
SPEECH = "/v1/audio/speech"
PATIENCE = 120  # seconds
# At four times the speed, audio of short sentences lasts for less than the pauses of a reader that reads each message late.
FAST = {"seed": 3, "speed": 4.0}
TEXT = "Two. Yes! " * 10


class Reader:
    """The client of an ASGI app; `seconds` of a message is the time until the app may send the next one."""

    def __init__(self, kind: str, path: str, messages: list[dict[str, Any]], seconds: Any) -> None:
        self.messages, self.seconds, self.sent = messages, seconds, []  # type: ignore[var-annotated]
        headers = [(b"content-type", b"application/json")]
        self.scope: dict[str, Any] = {"type": kind, "path": path, "headers": headers, "query_string": b""}
        self.scope |= {"method": "POST"} if kind == "http" else {"subprotocols": []}

    async def receive(self) -> dict[str, Any]:
        if not self.messages:
            await asyncio.sleep(PATIENCE)
        return self.messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(self.seconds(message))
        self.sent.append(message)

    async def read(self, app: Any) -> None:
        await asyncio.wait_for(app(self.scope, self.receive, self.send), PATIENCE)


def http_reader(body: dict[str, Any], seconds: Any) -> Reader:
    return Reader("http", SPEECH, [{"type": "http.request", "body": json.dumps(body).encode()}], seconds)


def socket_reader(message: dict[str, Any], seconds: Any) -> Reader:
    received = {"type": "websocket.receive", "text": json.dumps(message)}
    return Reader("websocket", f"{SPEECH}/stream", [{"type": "websocket.connect"}, received], seconds)


def bytes_of(reader: Reader) -> bytes:
    return b"".join(message.get("body") or message.get("bytes") or b"" for message in reader.sent)


def wait_for_an_empty_queue(engine: Engine) -> None:
    """Wait until the thread of the models has ended the last request, which takes the time of a part of its audio."""

    async def wait() -> None:
        while engine.metrics.registry.get_sample_value("tts_queue_length"):
            await asyncio.sleep(0.01)

    run(asyncio.wait_for(wait(), PATIENCE))


def in_real_time(message: dict[str, Any]) -> float:
    return len(message.get("body") or message.get("bytes") or b"") / 2 / 22050


@pytest.mark.parametrize(
    "reader",
    [
        http_reader({"input": LONG, "response_format": "pcm"} | FAST, lambda _: 0.55),
        socket_reader({"type": "end", "text": TEXT} | FAST, lambda _: 0.55),
    ],
    ids=["http", "websocket"],
)
def test_a_reader_that_reads_a_little_now_and_then_is_cut_off(reader: Reader) -> None:
    """No message takes --idle-timeout, and all together take longer than the audio and that."""
    with running_engine(idle_timeout=0.6, page=False) as engine:
        run(reader.read(make_app(engine, engine.config)))
        wait_for_an_empty_queue(engine)
    assert "behind its audio (--idle-timeout)" in reader.scope["log"]["error"]
    assert reader.sent[-1]["type"] != "websocket.close" and reader.sent[-1].get("more_body") is not False


@pytest.mark.parametrize(
    "reader",
    [
        http_reader({"input": LONG, "response_format": "pcm", "seed": 3}, in_real_time),
        socket_reader({"type": "end", "text": LONG, "seed": 3}, in_real_time),
    ],
    ids=["http", "websocket"],
)
def test_a_reader_in_real_time_gets_all(reader: Reader) -> None:
    """The audio lasts longer than --idle-timeout."""
    with running_engine(idle_timeout=6, page=False) as engine:
        run(reader.read(make_app(engine, engine.config)))
    assert len(bytes_of(reader)) / 2 > 6 * 22050 and "error" not in reader.scope["log"]
    assert reader.sent[-1]["type"] == "websocket.close" or reader.sent[-1]["more_body"] is False


def test_wyoming_cuts_off_a_reader_that_reads_a_little_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wyoming", reason="wyoming, of requirements/serving.txt, is not installed")
    from wyoming.client import AsyncTcpClient
    from wyoming.tts import Synthesize

    from serving.wyoming import serve_wyoming
    from tests.serving.test_server import free_port

    async def read_late(handler: Any, event: Any) -> None:
        await asyncio.sleep(0.55)

    async def call(engine: Engine) -> Any:
        port = free_port()
        server = await serve_wyoming(engine, "127.0.0.1", port)
        try:
            async with AsyncTcpClient("127.0.0.1", port) as client:
                for _ in range(10):
                    await client.write_event(Synthesize("Two.").event())
                return await asyncio.wait_for(client.read_event(), 60)
        except ConnectionError:
            return None
        finally:
            await server.stop()

    monkeypatch.setattr("wyoming.server.AsyncEventHandler.write_event", read_late)
    with running_engine(idle_timeout=0.6) as engine:
        assert run(call(engine)) is None
        wait_for_an_empty_queue(engine)


def test_the_player_of_the_page_has_the_same_limit() -> None:
    pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
    from fastapi import FastAPI

    from serving.gate import Gate
    from serving.metrics import Metrics
    from serving.page.relay import Relay, add_route

    app, relay = FastAPI(), Relay()
    add_route(app, relay)
    channel = relay.open(22050)
    for _ in range(100):
        channel.put(bytes(441))  # 0.01 s
    reader = Reader("http", f"/page/audio/{channel.token}", [{"type": "http.request"}], lambda _: 0.55)
    reader.scope["method"] = "GET"
    run(reader.read(Gate(app, ServingConfig(idle_timeout=0.6), Metrics())))
    assert "behind its audio" in reader.scope["log"]["error"] and channel.left


def test_a_socket_in_real_time_may_answer_pings_late(engine: Engine) -> None:
    """Its pong comes after the audio before the ping, and uvicorn's own limit is 20 s."""
    from serving.__main__ import SpeechServer

    assert SpeechServer(engine, ServingConfig(page=False)).config.ws_ping_timeout is None


def test_time_left_over_does_not_count_for_the_next_audio() -> None:
    """The reader of a long conversation could else read nothing for as long as all of it has lasted."""

    async def call() -> None:
        pace = Pace(0.5)
        pace.begin()
        pace.add(math.inf)
        pace.begin()
        for _ in range(2):
            await pace.send(asyncio.sleep(0.3))

    with pytest.raises(StallError):
        run(call())


def test_an_answer_without_audio_may_take_any_time() -> None:
    """A slow link loads the files of the page, in as many messages as it takes."""

    async def call() -> None:
        pace = Pace(2)
        for _ in range(4):
            await pace.send(asyncio.sleep(0.6))

    run(call())
