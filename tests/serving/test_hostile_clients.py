"""Hostile clients of a server process: slow ones, ones that read nothing, and ones that leave."""

from __future__ import annotations

import json
import resource
import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.audio.audio_processing import to_pcm
from tests.serving.conftest import LONG, reference
from tests.serving.hostile import (
    SPEECH,
    connect,
    healthy,  # noqa: F401  # a fixture
    hostile_server,  # noqa: F401  # a fixture
    hostile_servers,  # noqa: F401  # a fixture
    open_files,
    raw_status,
    request_bytes,
    speak,
    with_page,
)
from tests.serving.test_server import ServerProcess, metric, serve, wait_until

pytestmark = pytest.mark.slow

SLOW_CLIENTS = 200


def test_slow_clients_do_not_delay_others(server: ServerProcess) -> None:
    """Connections that send a byte now and then, or do not read their answer, leave the server free."""
    body = json.dumps({"input": LONG[:300], "response_format": "wav"}).encode()
    data = request_bytes(body)
    clients = [connect(server) for _ in range(SLOW_CLIENTS)]
    try:
        for i, client in enumerate(clients):
            client.sendall(data[: 20 + i])  # some stop within the headers, some within the body
        readers = [connect(server) for _ in range(8)]
        clients += readers
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.sendall(data)  # and never read
        assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
        for i, client in enumerate(clients[:SLOW_CLIENTS]):
            client.sendall(data[20 + i : 21 + i])
        assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
    finally:
        for client in clients:
            client.close()


def test_clients_that_read_nothing_are_cut_off() -> None:
    """Their answers give their places in the queue back after --idle-timeout, and their connections end."""
    data = request_bytes(json.dumps({"input": LONG * 20, "response_format": "wav", "speed": 0.25}).encode())
    with serve("--seed", 3, "--idle-timeout", 1, "--max-queue", 4, "--timeout", 100) as server:
        files = open_files(server)
        readers = [connect(server) for _ in range(4)]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.sendall(data)
        wait_until(lambda: len([line for line in server.lines("request") if "read nothing for 1 s" in str(line)]) == 4)
        wait_until(lambda: metric(server, "tts_queue_length") == 0)  # the line of log comes just before
        wait_until(lambda: open_files(server) <= files)
        assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
        for reader in readers:
            reader.close()


def test_requests_that_do_not_arrive_are_cut_off() -> None:
    """Nothing, half a head, half a body: each connection ends after --idle-timeout."""
    data = request_bytes(json.dumps({"input": "Two."}).encode())
    with serve("--seed", 3, "--idle-timeout", 1) as server:
        assert raw_status(server, data) == 200
        for sent, status in ((0, b""), (40, b""), (len(data) - 5, b"HTTP/1.1 408")):
            with connect(server) as client:
                client.sendall(data[:sent])
                assert client.recv(12) == status
                while client.recv(4096):
                    pass


def test_an_upload_that_does_not_arrive_is_cut_off() -> None:
    """Uploads to the page may be slow and large, but not without end."""
    pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
    kind = "Content-Type: multipart/form-data; boundary=x\r\n"
    data = request_bytes(b"--x\r\n", 1000, "/gradio_api/upload", kind).replace(
        b"Content-Type: application/json\r\n", b""
    )
    with serve("--page", "--idle-timeout", 1) as server, connect(server) as client:
        client.sendall(data)
        assert client.recv(12) == b"HTTP/1.1 408"
        assert not [line for line in server.errors if "Traceback" in line]


def test_more_connections_than_files_leave_the_server_usable() -> None:
    """Those beyond the limit of open files are closed at once, and the log does not grow; they all wait when the server looks."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        with serve("--seed", 3, "--idle-timeout", 2) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, limits[1]), limits[1]))
            server.process.send_signal(signal.SIGSTOP)
            clients = [connect(server) for _ in range(250)]
            server.process.send_signal(signal.SIGCONT)
            wait_until(lambda: is_closed(clients[-1]))
            wait_until(lambda: is_closed(clients[0]))  # after the time-out
            assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
            assert [line for line in server.log if line["level"] != "INFO"] == []
            for client in clients:
                client.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("stage", ["connected", "headers", "body", "accepted", "first byte", "reset"])
def test_clients_that_leave_at_every_stage(server: ServerProcess, stage: str) -> None:
    """Fifty each; their work ends and leaves nothing behind."""
    data = request_bytes(json.dumps({"input": LONG[:300], "response_format": "pcm"}).encode())
    sent = {"connected": 0, "headers": 40, "body": len(data) - 5}.get(stage, len(data))
    for _ in range(50):
        with connect(server) as client:
            client.sendall(data[:sent])
            if stage == "first byte":
                client.recv(1)
            if stage == "reset":  # closes with RST in place of FIN
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if stage in ("accepted", "first byte", "reset"):
            wait_until(lambda: metric(server, "tts_queue_length") < 30)


@with_page
def test_sockets_that_leave(server: ServerProcess) -> None:
    websockets = pytest.importorskip(
        "websockets.sync.client", reason="websockets, of requirements/serving.txt, is missing"
    )
    url = server.url.replace("http", "ws") + f"{SPEECH}/stream"

    def leave(number: int) -> None:
        with websockets.connect(url, open_timeout=30) as client:
            for _ in range(number % 3):
                client.send(json.dumps({"type": "text", "text": "It is nine. "}))
            client.socket.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(40)))
