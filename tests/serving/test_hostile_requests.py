"""Hostile requests to a server process: random ones, refused bodies, paths, broken HTTP and messages of WebSockets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import httpx
import pytest

from tests.recipe import ROOT
from tests.serving.hostile import (
    MEGABYTE,
    SPEECH,
    connect,
    healthy,  # noqa: F401  # a fixture
    hostile_server,  # noqa: F401  # a fixture
    hostile_servers,  # noqa: F401  # a fixture
    raw_status,
    request_bytes,
    with_page,
)
from tests.serving.test_server import ServerProcess

pytestmark = pytest.mark.slow

EXAMPLES = 60  # random requests for each operation of the API


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


@with_page
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


@with_page
@pytest.mark.parametrize(
    "path", ["/v1/models/..%2f..%2fetc%2fpasswd", "/v1/../../etc/passwd", "/%00", "//etc/passwd", "/docs/../.."]
)
def test_paths_reach_no_file(server: ServerProcess, path: str) -> None:
    with connect(server) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert re.match(rb"HTTP/1.1 (404|400) ", answer) and b"root:" not in answer


@with_page
def test_broken_http_is_refused(server: ServerProcess) -> None:
    body = b'{"input": "Two."}'
    assert raw_status(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 50) in (0, 400)  # TLS
    assert raw_status(server, b"GET /v1/none HTTP/9.9\r\n\r\n") in (0, 400, 404, 505)
    assert raw_status(server, b"A" * MEGABYTE) in (0, 400)
    assert raw_status(server, request_bytes(body, headers="X: " + "a" * MEGABYTE + "\r\n")) in (0, 400, 431)
    assert raw_status(server, request_bytes(body, length=2**62)) == 413
    assert raw_status(server, request_bytes(body, headers="Content-Length: 3\r\n")) in (0, 400)
    assert raw_status(server, request_bytes(body, headers="Transfer-Encoding: chunked\r\n")) in (0, 400)
    chunk = b"100000\r\n" + b" " * MEGABYTE + b"\r\n"
    head = f"POST {SPEECH} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    assert raw_status(server, head + 3 * chunk) in (0, 413)


@with_page
def test_messages_of_sockets_that_are_refused(server: ServerProcess) -> None:
    websockets = pytest.importorskip(
        "websockets.sync.client", reason="websockets, of requirements/serving.txt, is missing"
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
