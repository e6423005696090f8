"""Helpers and fixtures of the tests that attack a server process, test_hostile_*.py."""

from __future__ import annotations

import functools
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from common.audio.audio_processing import to_pcm
from tests.serving.conftest import reference
from tests.serving.test_server import ServerProcess, metric, serve, wait_until

MEGABYTE = 2**20
GROWTH = 200 * MEGABYTE  # of the server's memory through all attacks of a file
SPEECH = "/v1/audio/speech"


@pytest.fixture(scope="module")
def hostile_servers() -> Iterator[Callable[[str], ServerProcess]]:
    """Servers with a small queue and a short time-out: one with the page and one without, each once a test needs it."""
    with ExitStack() as running:
        yield functools.cache(lambda page: running.enter_context(bounded_server(page)))


@contextmanager
def bounded_server(page: str) -> Iterator[ServerProcess]:
    with serve("--seed", 3, "--max-queue", 32, "--timeout", 20, "--max-characters", 300, page) as ready:
        speak(ready)  # buffers of the models
        before = memory(ready)
        yield ready
        assert memory(ready) < before + GROWTH


@pytest.fixture(name="server")
def hostile_server(request: pytest.FixtureRequest, hostile_servers: Callable[[str], ServerProcess]) -> ServerProcess:
    """The server without the page, or the one that a test names: `with_page` runs it with both."""
    page = getattr(request, "param", "--no-page")
    if page == "--page":
        pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
    return hostile_servers(page)


with_page = pytest.mark.parametrize("server", ["--no-page", "--page"], indirect=True)


@pytest.fixture(autouse=True)
def healthy(server: ServerProcess) -> Iterator[None]:
    """After each attack, the server works as before."""
    yield
    wait_until(lambda: metric(server, "tts_queue_length") == 0 == metric(server, "tts_active_requests"))
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert speak(server) == to_pcm(reference("Two.", 3)).tobytes()
    assert not [line for line in server.log if "traceback" in line]
    assert not [line for line in server.errors if "Traceback" in line]


def memory(server: ServerProcess) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)


def open_files(server: ServerProcess) -> int:
    return int(psutil.Process(server.process.pid).num_fds())


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
