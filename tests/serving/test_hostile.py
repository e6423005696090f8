"""Hostile clients of a server process: random and broken requests, paths, slow clients, crowds."""

import asyncio
import json
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.recipe import ROOT
from tests.serving.conftest import LONG, pcm
from tests.serving.server_process import PATIENCE, SPEECH, ServerProcess, http, request_bytes, serve, wait_until

pytestmark = pytest.mark.slow
MEGABYTE = 2**20
CROWD = 50  # more than --max-queue
GROWTH = 200 * MEGABYTE  # of the server's memory through all attacks


@pytest.fixture(scope="module")
def memory(server: ServerProcess) -> Iterator[None]:
    server.speak()  # buffers of the models
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    yield
    assert process.memory_info().rss < before + GROWTH


@pytest.fixture(autouse=True)
def healthy(server: ServerProcess, memory: None) -> Iterator[None]:
    yield
    wait_until(lambda: server.metric("tts_queue_length") == 0 == server.metric("tts_active_requests"))
    assert http.get(f"{server.url}/healthz").status_code == 200 and server.speak() == pcm("Two.")
    assert not [line for line in server.log if "traceback" in line]
    assert not [line for line in server.errors if "Traceback" in line]


def test_random_requests_break_no_promise_of_the_openapi_document(server: ServerProcess) -> None:
    """Schemathesis: no server error, types and bodies of answers as the document says."""
    pytest.importorskip("schemathesis", reason="schemathesis, of tests/requirements.txt, is not installed")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    words = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--seed", "1"]
    words += ["--max-examples", "2", "--workers", "1", "--generation-database", "none", "--no-color"]
    words += ["--checks", checks, "--continue-on-failure", "--request-timeout", "60"]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


def test_broken_http_is_refused_and_no_path_reaches_a_file(server: ServerProcess) -> None:
    body = b'{"input": "Two."}'
    chunked = f"POST {SPEECH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    for data, statuses in (
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" * 50, (0, 400)),  # TLS
        (b"GET /v1/none HTTP/9.9\r\n\r\n", (0, 400, 404, 505)),
        (request_bytes(body, headers="X: " + "a" * MEGABYTE + "\r\n"), (0, 400, 431)),
        (request_bytes(body, length=2**62), (413,)),
        (request_bytes(body, headers="Content-Length: 3\r\n"), (0, 400)),
        (chunked + 3 * (b"100000\r\n" + b" " * MEGABYTE + b"\r\n"), (0, 413)),
    ):
        assert server.status_of(data) in statuses, data[:80]
    for path in ("/v1/models/..%2f..%2fetc%2fpasswd", "/%00", "//etc/passwd", "/page.js/../../app.py"):
        assert server.status_of(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) in (400, 403, 404), path


def test_clients_that_leave_at_every_stage(server: ServerProcess) -> None:
    """Connected, within the headers or the body, accepted, at the first byte, and with RST in place of FIN."""
    data = request_bytes(json.dumps({"input": LONG[:300], "response_format": "pcm"}).encode())
    whole, reset = len(data), struct.pack("ii", 1, 0)
    stages = [(0, 0, b""), (40, 0, b""), (whole - 5, 0, b""), (whole, 0, b""), (whole, 1, b""), (whole, 0, reset)]
    for sent, read, linger in stages * 2:
        with server.connect() as client:
            client.sendall(data[:sent])
            client.recv(read)
            if linger:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wait_until(lambda: server.metric("tts_queue_length") < 30)


def test_a_crowd_at_once(server: ServerProcess) -> None:
    """Each has its own audio, or a refusal with Retry-After; none is lost or mixed up."""
    texts = ["Two.", "Yes!", "Good morning.", "Ten past nine."]

    async def ask(client: httpx.AsyncClient, number: int) -> int:
        text = texts[number % len(texts)]
        answer = await client.post(SPEECH, json={"input": text, "response_format": "pcm", "sample_rate": 22050})
        if answer.status_code == 200:
            assert answer.content == pcm(text)
        else:
            assert int(answer.headers["retry-after"]) >= 1 and answer.json()["error"]["code"]
        return answer.status_code

    async def ask_all() -> list[int]:
        limits = httpx.Limits(max_connections=CROWD)
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, limits=limits) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(CROWD)))

    statuses = asyncio.run(ask_all())
    assert set(statuses) == {200, 503} and statuses.count(200) >= 32


def test_limits_in_time_and_number() -> None:
    """Clients that read or send nothing delay nobody and are cut off after --idle-timeout; connections beyond the limit of open
    files are closed at once, and leave the log as it is; at the end of --grace an answer is cut off. The key is that of the
    environment.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    flags = ("--seed", 3, "--idle-timeout", 1.5, "--max-queue", 3, "--timeout", 100, "--grace", 0.2)
    try:
        with serve(*flags, TTS_API_KEY="secret") as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, limits[1]), limits[1]))
            assert http.get(f"{server.url}/v1/voices").status_code == 401
            key = {"authorization": "Bearer secret"}
            assert server.speak(**key) == pcm("Two.")
            clients_that_read_nothing_are_cut_off(server)
            connections_beyond_the_files_are_closed(server)
            assert server.speak(**key) == pcm("Two.")
            assert [line for line in server.log if line["level"] != "INFO"] == [] and "secret" not in str(server.log)
            body = {"input": LONG * 20, "response_format": "pcm"}
            with http.stream("POST", f"{server.url}{SPEECH}", json=body, headers=key) as response:
                chunks = response.iter_raw()
                next(chunks)
                server.process.send_signal(signal.SIGTERM)
                with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
                    list(chunks)
            assert server.process.wait(60) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


KEY = "Authorization: Bearer secret\r\n"


def clients_that_read_nothing_are_cut_off(server: ServerProcess) -> None:
    """Their answers give their places in the queue back, and their connections end. Beside them are requests that do not arrive."""
    settings = {"response_format": "wav", "sample_rate": 48000, "speed": 0.25, "stream": True}  # many bytes
    body = json.dumps({"input": LONG * 20} | settings).encode()
    process = psutil.Process(server.process.pid)
    files = process.num_fds()
    readers = [server.connect() for _ in range(2)]
    for reader in readers:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.sendall(request_bytes(body, headers=KEY))
    requests_that_do_not_arrive_are_cut_off(server)
    wait_until(lambda: len([line for line in server.lines("request") if "read nothing for 1.5 s" in str(line)]) == 2)
    wait_until(lambda: server.metric("tts_queue_length") == 0)  # the line of log comes just before
    wait_until(lambda: process.num_fds() <= files)
    for reader in readers:
        reader.close()


def requests_that_do_not_arrive_are_cut_off(server: ServerProcess) -> None:
    """Nothing, half a head, half a body. Meanwhile the server is free for others."""
    data = request_bytes(json.dumps({"input": "Two."}).encode(), headers=KEY)
    cases = ((b"", b""), (data[:40], b""), (data[:-5], b"HTTP/1.1 408"))
    clients = [server.connect() for _ in cases]  # their time runs at once
    for client, (sent, _) in zip(clients, cases, strict=True):
        client.sendall(sent)
    assert server.speak(authorization="Bearer secret") == pcm("Two.")
    for client, (_, status) in zip(clients, cases, strict=True):
        with client:
            assert client.recv(12) == status
            while client.recv(4096):
                pass


def connections_beyond_the_files_are_closed(server: ServerProcess) -> None:
    server.process.send_signal(signal.SIGSTOP)
    clients = [server.connect() for _ in range(250)]
    server.process.send_signal(signal.SIGCONT)
    wait_until(lambda: is_closed(clients[-1]))
    wait_until(lambda: is_closed(clients[0]))  # after the time-out
    for client in clients:
        client.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
