"""Uvicorn's connections with this server's limits: keep-alive, pipelines, upgrades, slow honest bodies, and unread ends."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn

from serving.connections import Connection

pytestmark = pytest.mark.slow
PATIENCE = 1.0  # seconds for the head of a request
LARGE = 64 * 2**20  # bytes, more than the system holds for a client
DEADLINE = 60  # seconds
GET = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"


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


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


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


def test_requests_in_a_pipeline_are_answered_in_order(server: uvicorn.Server) -> None:
    bodies = [b"one", b"three", b"end"]
    with connect(server) as client:
        posts = (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)
        client.sendall(b"".join(posts))
        data = read(client, b"\r\n\r\nend")
    assert data.count(b"HTTP/1.1 200") == 3 and data.index(b"\r\n\r\none") < data.index(b"\r\n\r\nthree")


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


def test_a_request_can_abort_its_connection(server: uvicorn.Server) -> None:
    """The gate does so with a client that stalls."""
    loop = asyncio.new_event_loop()
    assert Connection(server.config, server.server_state, {}, loop, patience=1, most=1).app_state.keys() == {"abort"}
    loop.close()
