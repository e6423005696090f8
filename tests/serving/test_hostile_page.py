"""Hostile requests to the page of a server process: uploads without a file, unknown events, and values of wrong types."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.serving.hostile import (
    healthy,  # noqa: F401  # a fixture
    hostile_server,  # noqa: F401  # a fixture
    hostile_servers,  # noqa: F401  # a fixture
)
from tests.serving.test_server import ServerProcess, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("server", ["--page"], indirect=True)]
API = "/gradio_api"
FORM = "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'--x\r\nContent-Disposition: form-data; name="files"\r\n\r\nabc\r\n--x--\r\n', FORM, 400),  # no file
        (b"--x\r\nContent-Disposition: nonsense\r\n\r\nabc\r\n--x--\r\n", FORM, 400),
        (b"--x\r\n\r\nabc\r\n--x--\r\n", FORM, 400),
        (b"abc", FORM, 400),
        (b"abc", "multipart/form-data", 400),
        (b"abc", "text/plain", 400),
        (b"", "", 400),
        (b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nabc\r\n--x--\r\n', FORM, 200),  # of nothing
    ],
)
def test_uploads_that_are_refused(server: ServerProcess, body: bytes, kind: str, status: int) -> None:
    answer = httpx.post(f"{server.url}{API}/upload", content=body, headers={"content-type": kind}, timeout=60)
    assert answer.status_code == status and (status != 200 or answer.json() == [])


def test_the_log_has_the_kind_of_a_refused_fault(server: ServerProcess) -> None:
    """Else a fault of the server on these paths would be silent."""
    httpx.post(f"{server.url}{API}/call/none", json={"data": [1]}, timeout=60)
    wait_until(lambda: any("values that do not fit the page" in line.get("error", "") for line in server.log))


@pytest.mark.parametrize("event", [9999, -1, "x", None])
def test_events_that_the_page_does_not_have(server: ServerProcess, event: Any) -> None:
    body = {"data": [1], "fn_index": event, "session_hash": "s"}
    assert 400 <= httpx.post(f"{server.url}{API}/queue/join", json=body, timeout=60).status_code < 500
    assert 400 <= httpx.post(f"{server.url}{API}/call/{event}", json={"data": [1]}, timeout=60).status_code < 500


FILE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}


@pytest.mark.parametrize("value", [7, [], {}, None, "x", FILE], ids=str)
def test_values_of_wrong_types(server: ServerProcess, value: Any) -> None:
    """Each event of the page ends, with its own error or an outcome, and none of them gets the file."""
    events = httpx.get(f"{server.url}/config", timeout=60).json()["dependencies"]
    for event in events:
        if event["backend_fn"] and event["inputs"]:
            for data in ([value] * len(event["inputs"]), [value]):
                assert "root:" not in outcome(server, event["id"], data)


def outcome(server: ServerProcess, event: int, data: list[Any]) -> str:
    """Send an event, and wait for its end."""
    body = {"data": data, "fn_index": event, "session_hash": "s"}
    assert httpx.post(f"{server.url}{API}/queue/join", json=body, timeout=60).status_code == 200
    with httpx.stream("GET", f"{server.url}{API}/queue/data", params={"session_hash": "s"}, timeout=60) as lines:
        for line in lines.iter_lines():
            if line and json.loads(line.removeprefix("data: "))["msg"] == "process_completed":
                return line
    raise AssertionError("the event does not end")
