"""Limits on clients: uvicorn's connections with this server's limits, and the pace of readers."""

import asyncio
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from serving import limits
from serving.app import make_app
from serving.config import ServingConfig
from serving.engine import Engine
from serving.limits import Connection, Pace, StallError
from tests.browser import wait
from tests.serving.conftest import LONG, pcm, run, running_engine, sample, until

pytestmark = pytest.mark.slow
PATIENCE = 1.0  # seconds for the head of a request
LARGE = 64 * 2**20  # bytes, more than the system holds for a client
DEADLINE = 120  # seconds
GET = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"
SPEECH = "/v1/audio/speech"
TEXT = "Two. Yes! " * 10


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body of the request, or with LARGE bytes; echoes the messages of a WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
        return
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body, has_more = body + message.get("body", b""), message.get("more_body", False)
    body = bytes(LARGE) if scope["path"] == "/large" else body or b"small"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module", name="server")
def running_server() -> Iterator[uvicorn.Server]:
    protocol: Any = partial(Connection, patience=PATIENCE, most=50)
    options: dict[str, Any] = {"port": 0, "http": protocol, "log_level": "warning", "timeout_keep_alive": 3}
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait(lambda: server.started)
    yield server
    server.should_exit = server.force_exit = True
    thread.join(DEADLINE)


def connect(server: uvicorn.Server) -> socket.socket:
    return socket.create_connection(server.servers[0].sockets[0].getsockname(), timeout=DEADLINE)


def read(client: socket.socket, ending: bytes) -> bytes:
    data = b""
    while not data.endswith(ending):
        data += (part := client.recv(65536))
        assert part, data
    return data


def test_a_connection_is_kept_alive_and_then_closed(server: uvicorn.Server) -> None:
    """Uvicorn's own timer, or the patience for the next head, closes it once it is idle."""
    with connect(server) as client:
        for _ in range(3):
            client.sendall(GET)
            assert read(client, b"small").startswith(b"HTTP/1.1 200")
        assert client.recv(1) == b""


def test_a_body_may_take_longer_than_a_head(server: uvicorn.Server) -> None:
    """The gate limits bodies."""
    with connect(server) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
        for letter in (b"s", b"l", b"o", b"w"):
            time.sleep(PATIENCE / 2)
            client.sendall(letter)
        assert read(client, b"slow").startswith(b"HTTP/1.1 200")


def test_a_socket_stays_open_beyond_the_patience(server: uvicorn.Server) -> None:
    client_of = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    with client_of.connect(f"ws://{host}:{port}/", open_timeout=DEADLINE) as client:
        for _ in range(2):
            time.sleep(PATIENCE * 1.2)
            client.send("hello")
            assert client.recv(timeout=DEADLINE) == "hello"


def test_a_client_that_leaves_the_end_of_its_answer_unread_is_cut_off(server: uvicorn.Server) -> None:
    """Uvicorn alone would wait for it without end."""
    with connect(server) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        client.recv(1)
        wait(lambda: not server.server_state.connections)


def test_a_client_that_reads_slowly_gets_all(server: uvicorn.Server) -> None:
    with connect(server) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        time.sleep(PATIENCE / 2)
        size = 0
        while part := client.recv(2**20):
            size += len(part)
            time.sleep(0.05)
    assert size > LARGE


class Reader:
    """The client of an ASGI app; `seconds` of a message is the time until the app may send the next one."""

    def __init__(self, kind: str, path: str, messages: list[dict[str, Any]], seconds: Any) -> None:
        self.messages, self.seconds, self.sent = messages, seconds, []
        headers = [(b"content-type", b"application/json")]
        self.scope: dict[str, Any] = {"type": kind, "path": path, "headers": headers, "query_string": b""}
        self.scope |= {"method": "POST"} if kind == "http" else {"subprotocols": []}

    async def receive(self) -> dict[str, Any]:
        if not self.messages:
            await asyncio.sleep(DEADLINE)
        return self.messages.pop(0)

    async def send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(self.seconds(message))
        self.sent.append(message)

    async def read(self, app: Any) -> None:
        await asyncio.wait_for(app(self.scope, self.receive, self.send), DEADLINE)


def reader_of(kind: str, text: str, seconds: Any, **settings: Any) -> Reader:
    """A reader that asks for a text: of PCM, or of a socket, where it is the end unless the settings say otherwise."""
    if kind == "http":
        body = {"input": text, "response_format": "pcm", "sample_rate": 22050} | settings
        return Reader("http", SPEECH, [{"type": "http.request", "body": json.dumps(body).encode()}], seconds)
    received = {"type": "websocket.receive", "text": json.dumps({"type": "end", "text": text} | settings)}
    return Reader("websocket", f"{SPEECH}/stream", [{"type": "websocket.connect"}, received], seconds)


def bytes_of(reader: Reader) -> bytes:
    return b"".join(message.get("body") or message.get("bytes") or b"" for message in reader.sent)


def in_real_time(message: dict[str, Any]) -> float:
    return len(message.get("body") or message.get("bytes") or b"") / 2 / 22050


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_reader_that_reads_a_little_now_and_then_is_cut_off(kind: str) -> None:
    """No message takes --idle-timeout, and all together take longer than the audio and that."""
    # At four times the speed, audio of short sentences lasts for less than the pauses between messages.
    reader = reader_of(kind, LONG if kind == "http" else TEXT, lambda _: 0.55, seed=3, speed=4.0)
    with running_engine(idle_timeout=0.6, page=False) as engine:
        run(reader.read(make_app(engine, engine.config)))
        run(until(lambda: not sample(engine, "tts_queue_length")))
    assert "behind its audio (--idle-timeout)" in reader.scope["log"]["error"]
    assert reader.sent[-1]["type"] != "websocket.close" and reader.sent[-1].get("more_body") is not False


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_reader_in_real_time_gets_all(kind: str) -> None:
    """The audio lasts longer than --idle-timeout."""
    reader = reader_of(kind, LONG, in_real_time, seed=3)
    with running_engine(idle_timeout=6, page=False) as engine:
        run(reader.read(make_app(engine, engine.config)))
    assert len(bytes_of(reader)) / 2 > 6 * 22050 and "error" not in reader.scope["log"]
    assert reader.sent[-1]["type"] == "websocket.close" or reader.sent[-1]["more_body"] is False


def test_a_slow_reader_of_audio_is_not_idle() -> None:
    """The audio is computed sooner than the client reads it; the idle time begins after its last part."""
    text = "It is late and the ferry waits until noon and then it leaves."
    reader = reader_of("websocket", f"{text}\n", lambda _: 0.25, type="text")  # less than a stall
    with running_engine(idle_timeout=0.5, seed=3, page=False) as engine:
        run(reader.read(make_app(engine, engine.config)))
    assert bytes_of(reader) == pcm(text)
    assert reader.sent[-1]["type"] == "websocket.close" and "0.5 seconds" in reader.sent[-1]["reason"]


def test_wyoming_cuts_off_a_reader_that_reads_a_little_now_and_then(monkeypatch) -> None:
    pytest.importorskip("wyoming", reason="wyoming, of requirements/serving.txt, is not installed")
    from wyoming.client import AsyncTcpClient
    from wyoming.tts import Synthesize

    from serving.wyoming import serve_wyoming
    from tests.recipe import free_port

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
        run(until(lambda: not sample(engine, "tts_queue_length")))


def test_limits_of_uvicorn(engine: Engine) -> None:
    """A socket in real time may answer pings late: its pong comes after the audio before the ping, and uvicorn's limit is 20 s."""
    from serving.__main__ import SpeechServer

    found = SpeechServer(engine, ServingConfig(page=False, max_body=7)).config
    assert found.ws_ping_timeout is None and found.ws_max_size == 7
    assert found.h11_max_incomplete_event_size == 2**16 and not found.server_header


@pytest.mark.parametrize(("files", "most"), [(200, 100), (50, 1), (-1, 2**16)])
def test_connections_leave_files_to_the_process(files: int, most: int, monkeypatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (files, 1000))
    assert limits.most_connections() == most


class Clock:
    """A clock that runs only while a message is sent."""

    def __init__(self, monkeypatch) -> None:
        self.now = 0.0
        self.timeouts: list[float] = []
        monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(limits, "asyncio", SimpleNamespace(wait_for=self.wait_for, TimeoutError=TimeoutError))

    async def wait_for(self, sending: Any, timeout: float) -> None:
        self.timeouts.append(timeout)
        await sending

    async def sending(self, seconds: float) -> None:
        self.now += seconds


def timeouts_of(clock: Clock, pace: Pace, *steps: Any) -> list[float]:
    """The time that each message may take. Steps: "begin" an audio, seconds of audio as an int, a message as its time, a float."""

    async def call() -> None:
        for step in steps:
            if step == "begin":
                pace.begin()
            elif isinstance(step, int):
                pace.add(step)
            else:
                await pace.send(clock.sending(step))

    run(call())
    return clock.timeouts


@pytest.mark.parametrize(
    ("steps", "timeouts"),
    [
        ((3.0, 3.0, 3.0), [10, 10, 10]),  # no audio: an answer may take any time, each message the limit
        (("begin", 1.0, 1.0, 1.0), [10, 9, 8]),  # audio of no length: all messages together
        # Twice as long as it lasts, then the limit.
        (("begin", 2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), [10, 10, 10, 10, 10, 9]),
        (("begin", 4, 8.0, 3.0, 1, 3.0, 0.0), [10, 10, 9, 6]),  # more audio makes up for lost time
        (("begin", 100, 1.0, "begin", 3.0, 0.0), [10, 10, 7]),  # time left over does not count for the next audio
        (("begin", 3.0, "begin", 0.0), [10, 7]),  # time that is lost does
        (("begin", 30.0, 0.0), [10, 0]),
    ],
)
def test_the_time_of_each_message(steps: tuple, timeouts: list[float], monkeypatch) -> None:
    assert timeouts_of(Clock(monkeypatch), Pace(10), *steps) == pytest.approx(timeouts)


def test_a_message_that_takes_too_long_is_a_stall() -> None:
    async def call() -> None:
        pace = Pace(0.05)
        pace.begin()
        pace.add(math.inf)
        await pace.send(asyncio.sleep(0.5))

    with pytest.raises(StallError, match=r"read nothing for 0.05 s"):
        run(call())
