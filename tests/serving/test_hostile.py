"""Hostile clients of a server process: random requests, slow and broken ones, clients that leave, and a thousand at once.

After each attack the server is healthy, its queue is empty, its memory is bounded, and its audio has the right bits.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from common.audio.audio_processing import to_pcm
from tests.recipe import ROOT
from tests.serving.conftest import LONG, reference
from tests.serving.test_server import ServerProcess, metric, serve, wait_until

pytestmark = pytest.mark.slow

EXAMPLES = 60  # random requests for each operation of the API
SLOW_CLIENTS, CROWD = 200, 1000
MEGABYTE = 2**20
GROWTH = 200 * MEGABYTE  # of the server's memory through all attacks of this file
SPEECH = "/v1/audio/speech"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server with a small queue and a short time-out."""
    with serve("--seed", 3, "--max-queue", 32, "--timeout", 20, "--max-characters", 300) as ready:
        speak(ready)  # buffers of the models
        before = memory(ready)
        yield ready
        assert memory(ready) < before + GROWTH


@pytest.fixture(autouse=True)
def healthy(server: ServerProcess) -> Iterator[None]:
    """After each attack, the server works as before."""
    yield
    wait_until(lambda: metric(server, "tts_queue_length") == 0 == metric(server, "tts_active_requests"))
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
    assert not [line for line in server.log if "traceback" in line]


def memory(server: ServerProcess) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)


def speak(server: ServerProcess, text: str = "Two.") -> bytes:
    answer = httpx.post(f"{server.url}{SPEECH}", json={"input": text, "response_format": "pcm"}, timeout=60)
    assert answer.status_code == 200
    return answer.content


def connect(server: ServerProcess) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def request_bytes(body: bytes, length: int | None = None, path: str = SPEECH, headers: str = "") -> bytes:
    size = len(body) if length is None else length
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n{headers}\r\n"
    )
    return head.encode("latin-1") + body


def raw_status(server: ServerProcess, data: bytes) -> int:
    """Send bytes; return the status of the answer, or 0 where the server closes the connection without one."""
    with connect(server) as client:
        try:
            client.sendall(data)
            answer = client.recv(4096)
        except (ConnectionError, TimeoutError):
            return 0
    found = re.match(rb"HTTP/1.1 (\d+) ", answer)
    return int(found[1]) if found else 0


def test_random_requests_break_no_promise_of_the_openapi_document(server: ServerProcess) -> None:
    """Schemathesis: no server error, types and bodies of answers as the document says."""
    pytest.importorskip("schemathesis", reason="schemathesis, of tests/requirements.txt, is not installed")
    words = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--seed", "1"]
    words += ["--max-examples", str(EXAMPLES), "--workers", "4", "--generation-database", "none", "--no-color"]
    words += [
        "--checks",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        "--continue-on-failure",
    ]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    print(result.stdout[-3000:])
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"input": ' * 50_000 + b"1", 400),
        (b'{"input": "\xff\xfe"}', 400),
        (b'{"input": "\\ud800"}', 400),
        (b'{"input": 7}', 400),
        (b'{"input": ""}', 400),
        (b'{"input": "a", "seed": 1e999}', 400),
        (b'{"input": "a", "seed": ' + b"9" * 5000 + b"}", 400),
        (b'{"input": "a", "speed": NaN}', 400),
        (b'{"input": "a", "voice": "../../etc/passwd"}', 404),
        (b'{"input": "a", "voice": {"id": "\\u0000"}}', 404),
        (b'{"input": "a", "model": "../x"}', 404),
        (b'{"input": "' + b"a" * 301 + b'"}', 400),
        (b'{"input": "' + b"a" * MEGABYTE + b'"}', 413),
    ],
)
def test_bodies_that_are_refused(server: ServerProcess, body: bytes, status: int) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{server.url}{SPEECH}", content=body, headers=headers, timeout=60)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert len(answer.content) < 2000


@pytest.mark.parametrize(
    "path", ["/v1/models/..%2f..%2fetc%2fpasswd", "/v1/../../etc/passwd", "/%00", "//etc/passwd", "/docs/../.."]
)
def test_paths_reach_no_file(server: ServerProcess, path: str) -> None:
    with connect(server) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert re.match(rb"HTTP/1.1 (404|400) ", answer) and b"root:" not in answer


def test_broken_http_is_refused(server: ServerProcess) -> None:
    body = b'{"input": "Two."}'
    assert raw_status(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50) in (0, 400)  # TLS
    assert raw_status(server, b"GET / HTTP/9.9\r\n\r\n") in (0, 400, 404, 505)
    assert raw_status(server, b"A" * MEGABYTE) in (0, 400)
    assert raw_status(server, request_bytes(body, headers="X: " + "a" * MEGABYTE + "\r\n")) in (0, 400, 431)
    assert raw_status(server, request_bytes(body, length=2**62)) == 413
    assert raw_status(server, request_bytes(body, headers="Content-Length: 3\r\n")) in (0, 400)
    assert raw_status(server, request_bytes(body, headers="Transfer-Encoding: chunked\r\n")) in (0, 400)
    chunk = b"100000\r\n" + b" " * MEGABYTE + b"\r\n"
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert raw_status(server, head + 3 * chunk) in (0, 413)


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
    """Their answers give their places in the queue back after --idle-timeout."""
    data = request_bytes(json.dumps({"input": LONG * 20, "response_format": "wav", "speed": 0.25}).encode())
    with serve("--seed", 3, "--idle-timeout", 1, "--max-queue", 4, "--timeout", 100) as server:
        readers = [connect(server) for _ in range(4)]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            reader.sendall(data)
        wait_until(lambda: len([line for line in server.lines("request") if "read nothing for 1 s" in str(line)]) == 4)
        wait_until(lambda: metric(server, "tts_queue_length") == 0)  # the line of log comes just before
        assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
        for reader in readers:
            reader.close()


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


def test_a_thousand_requests_at_once(server: ServerProcess) -> None:
    """Each has its own audio, or a refusal with Retry-After; none is lost or mixed up."""
    texts = {text: to_pcm(reference(text, 3)).tobytes() for text in ("Two.", "Yes!", "Good morning.", "Ten past nine.")}
    names = list(texts)

    async def ask(client: httpx.AsyncClient, number: int) -> int:
        text = names[number % len(names)]
        answer = await client.post(SPEECH, json={"input": text, "response_format": "pcm"})
        if answer.status_code == 200:
            assert answer.content == texts[text]
        else:
            assert int(answer.headers["retry-after"]) >= 1 and answer.json()["error"]["code"]
        return answer.status_code

    async def ask_all() -> list[int]:
        limits = httpx.Limits(max_connections=CROWD)
        async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(CROWD)))

    statuses = asyncio.run(ask_all())
    print({status: statuses.count(status) for status in set(statuses)})
    assert set(statuses) <= {200, 503} and statuses.count(200) >= 32


def test_hostile_sockets(server: ServerProcess) -> None:
    websockets = pytest.importorskip(
        "websockets.sync.client", reason="websockets, of requirements-serving.txt, is missing"
    )
    from websockets.exceptions import ConnectionClosed

    url = server.url.replace("http", "ws") + f"{SPEECH}/stream"
    messages: list[str | bytes] = [
        b"\x00" * 1000,
        "{",
        "[" * 10_000,
        json.dumps({"type": "text"}) * 2,
        json.dumps({"type": "fly"}),
        json.dumps({"type": "start", "voice": "../x"}),
        json.dumps({"type": "text", "text": "a" * 301}),
        json.dumps({"type": "text", "text": "a" * 2 * MEGABYTE}),
    ]
    for message in messages:
        with websockets.connect(url, open_timeout=30) as client, pytest.raises(ConnectionClosed):
            client.send(message)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                client.recv(timeout=30)

    def leave(number: int) -> None:
        with websockets.connect(url, open_timeout=30) as client:
            for _ in range(number % 3):
                client.send(json.dumps({"type": "text", "text": "It is nine. "}))
            client.socket.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(40)))
