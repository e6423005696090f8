"""Limits on clients: uvicorn's connections with this server's limits, and the pace of readers."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from serving import limits
from serving.limits import Connection, ReadingPace
from tests.browser import wait
from tests.serving.conftest import run

PATIENCE = 1.0  # seconds for the head of a request
LARGE = 64 * 2**20  # bytes, more than the system holds for a client
DEADLINE = 120  # seconds
GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body of the request, or with LARGE bytes."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body, has_more = body + message.get("body", b""), message.get("more_body", False)
    body = bytes(LARGE) if scope["path"] == "/large" else body or b"small"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def server() -> Iterator[uvicorn.Server]:
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


def a_connection_is_kept_alive_and_then_closed(server: uvicorn.Server) -> None:
    """Uvicorn's own timer, or the patience for the next head, closes it once it is idle."""
    with connect(server) as client:
        for _ in range(3):
            client.sendall(GET)
            assert read(client, b"small").startswith(b"HTTP/1.1 200")
        assert client.recv(1) == b""


def a_body_may_take_longer_than_a_head(server: uvicorn.Server) -> None:
    with connect(server) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n")
        for letter in (b"s", b"l", b"o", b"w"):
            time.sleep(PATIENCE / 2)
            client.sendall(letter)
        assert read(client, b"slow").startswith(b"HTTP/1.1 200")


def a_client_that_leaves_the_end_of_its_answer_unread_is_cut_off(server: uvicorn.Server) -> None:
    with connect(server) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        client.recv(1)
        own = client.getsockname()
        wait(lambda: own not in [connection.client for connection in server.server_state.connections])


def a_client_that_reads_slowly_gets_all(server: uvicorn.Server) -> None:
    with connect(server) as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        time.sleep(PATIENCE / 2)
        size = 0
        while part := client.recv(2**20):
            size += len(part)
            time.sleep(0.05)
    assert size > LARGE


@pytest.mark.slow
def test_time_of_clients(server: uvicorn.Server) -> None:
    """All at once: they only wait."""
    clients = (
        a_connection_is_kept_alive_and_then_closed,
        a_body_may_take_longer_than_a_head,
        a_client_that_leaves_the_end_of_its_answer_unread_is_cut_off,
        a_client_that_reads_slowly_gets_all,
    )
    with ThreadPoolExecutor(len(clients)) as pool:
        for visit in [pool.submit(client, server) for client in clients]:
            visit.result(DEADLINE)


@pytest.mark.parametrize(("files", "most"), [(200, 100), (50, 1), (-1, 2**16)])
def test_connections_leave_files_to_the_process(files: int, most: int, monkeypatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (files, 1000))
    assert limits.most_connections() == most


@pytest.mark.parametrize(
    ("steps", "timeouts"),
    [
        ((3.0, 3.0, 3.0), [10, 10, 10]),  # no audio: an answer may take any time, each message the limit
        # Twice as long as it lasts, then the limit.
        (("begin", 2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), [10, 10, 10, 10, 10, 9]),
        (("begin", 4, 8.0, 3.0, 1, 3.0, 0.0), [10, 10, 9, 6]),  # more audio makes up for lost time
        (("begin", 100, 1.0, "begin", 3.0, 0.0), [10, 10, 7]),  # time left over does not count for the next audio
        (("begin", 3.0, "begin", 0.0), [10, 7]),  # time that is lost does
    ],
)
def test_the_time_of_each_message(steps: tuple, timeouts: list[float], monkeypatch) -> None:
    """Steps: "begin" an audio, seconds of audio as an int, a message as its time, a float. The clock runs only meanwhile."""
    now, found, pace = 0.0, [], ReadingPace(10)

    async def sending(seconds: float) -> float:
        return seconds

    async def wait_for(message: Any, timeout: float) -> None:
        nonlocal now
        found.append(timeout)
        now += await message

    async def call() -> None:
        for step in steps:
            if step == "begin":
                pace.begin()
            elif isinstance(step, int):
                pace.add(step)
            else:
                await pace.send(sending(step))

    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(limits, "asyncio", SimpleNamespace(wait_for=wait_for, TimeoutError=TimeoutError))
    run(call())
    assert found == pytest.approx(timeouts)
