"""A server process, and clients that speak to it by bytes."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from tests.browser import wait as wait_until
from tests.recipe import ROOT, free_port, start

SPEECH = "/v1/audio/speech"
PATIENCE = 400  # seconds
# Every httpx.get would load the certificates, which takes 20 ms. Each request has a connection of its own.
http = httpx.Client(timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))


class ServerProcess(NamedTuple):
    process: subprocess.Popen[str]
    url: str
    log: list[dict[str, Any]]
    errors: list[str]  # lines of stderr
    wyoming_port: int

    def lines(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line["message"].startswith(message)]

    def metric(self, name: str) -> float:
        text = http.get(f"{self.url}/metrics").text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def speak(self, text: str = "Two.", **headers: str) -> bytes:
        body = {"input": text, "response_format": "pcm", "sample_rate": 22050}
        answer = http.post(f"{self.url}{SPEECH}", json=body, headers=headers)
        assert answer.status_code == 200
        return answer.content

    def connect(self) -> socket.socket:
        address = urlsplit(self.url)
        return socket.create_connection((address.hostname, address.port), timeout=30)

    def status_of(self, data: bytes) -> int:
        """Send bytes; return the status of the answer, or 0 if the server closes the connection without one."""
        with self.connect() as client:
            try:
                client.sendall(data)
                answer = client.recv(4096)
            except ConnectionError:
                return 0
        found = re.match(rb"HTTP/1.1 (\d+) ", answer)
        return int(found[1]) if found else 0


@contextmanager
def serve(*flags: object, **environment: str) -> Iterator[ServerProcess]:
    """A server on a free port, ready; it must end with exit code 0 after SIGTERM."""
    wyoming_port = free_port()
    words = [ROOT / ".venv" / "bin" / "python", "-m", "serving", "--cpu", "--port", 0, *flags]
    words += ["--wyoming-port", wyoming_port] if find_spec("wyoming") else []
    # Each of its two threads then has one, as the library in these tests.
    process = start(*words, environment=os.environ | {"OMP_NUM_THREADS": "2"} | environment)
    try:
        assert process.stdout is not None
        loading, first = (json.loads(process.stdout.readline()) for _ in range(2))
        url = first["message"].removeprefix("listening on ")
        server = ServerProcess(process, url, [loading, first], [], wyoming_port)
        reader = Thread(target=lambda: server.log.extend(map(json.loads, process.stdout)), daemon=True)
        reader.start()
        Thread(target=lambda: server.errors.extend(process.stderr or ()), daemon=True).start()
        wait_until(lambda: http.get(f"{server.url}/readyz").status_code == 200)
        yield server
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        reader.join(10)
        assert process.returncode == 0, "".join(server.errors)
    finally:
        process.kill()
        process.wait()


def request_bytes(body: bytes, length: int | None = None, path: str = SPEECH, headers: str = "") -> bytes:
    kind = "" if "Content-Type" in headers else "Content-Type: application/json\r\n"
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {size}\r\n{headers}\r\n"
    return head.encode("latin-1") + body
