"""The gate in front of small ASGI apps: the key, sizes, the status in the log and the metrics; and the log's lines."""

import json
import logging
import time
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.config import ServingConfig
from serving.gate import Gate
from serving.limits import pace_of
from serving.logs import JsonFormatter, PlainFormatter
from serving.metrics import Metrics
from tests.serving.conftest import run


async def answer_200(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, then answer."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def status_of(status: int) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})

    return answer


async def leave(scope: Scope, receive: Receive, send: Send) -> None:
    scope["log"]["disconnected"] = True


async def cut(scope: Scope, receive: Receive, send: Send) -> None:
    await status_of(200)(scope, receive, send)
    scope["log"]["cut"] = True


async def stall(scope: Scope, receive: Receive, send: Send) -> None:
    pace_of(scope).limit = 0.0
    await status_of(200)(scope, receive, send)
    raise AssertionError("the answer goes on")


def call(app: ASGIApp, messages: list[Message], **scope: Any) -> tuple[list[Message], Metrics]:
    sent: list[Message] = []
    metrics = Metrics()

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": [], "query_string": b""} | scope
    run(Gate(app, ServingConfig(max_body=10, **scope.pop("config", {})), metrics)(scope, receive, send))
    return sent, metrics


@pytest.mark.parametrize(("size", "status"), [(10, 200), (11, 413)])
def test_a_body_is_limited_by_the_size_that_is_stated_and_counted(size: int, status: int) -> None:
    """The app's handlers answer the exception of what was not stated."""
    sent, _ = call(answer_200, [{"type": "http.request"}], headers=[(b"content-length", b"%d" % size)])
    assert sent[0]["status"] == status
    pieces = [{"type": "http.request", "body": b"a" * count, "more_body": count == 4} for count in (4, size - 4)]
    try:
        assert call(answer_200, pieces)[0][0]["status"] == status
    except HTTPException as error:
        assert error.status_code == status


@pytest.mark.parametrize(
    ("path", "app", "status", "level"),
    [
        ("/v1/x", status_of(400), 400, "INFO"),
        ("/v1/x", leave, 499, "INFO"),
        ("/v1/x", cut, 200, "ERROR"),
        ("/v1/x", stall, 200, "INFO"),
        ("/healthz", status_of(200), 200, None),
    ],
)
def test_the_status_is_logged_and_errors_are_counted(path, app: ASGIApp, status, level, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="serving.access"):
        _, metrics = call(app, [], path=path)
    found = [(record.levelname, record.fields["status"]) for record in caplog.records]
    assert found == ([(level, status)] if level else [])
    assert metrics.registry.get_sample_value("tts_errors_total", {"status": str(status)}) == (
        1 if status >= 400 else None
    )


def test_a_line_of_the_log_has_utc_and_milliseconds(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        record = logging.LogRecord("serving", logging.INFO, "", 0, "two\nlines é", (), None)
        record.created, record.msecs = 86400.007, 7.0
        record.fields = {"status": 200}
        line = JsonFormatter().format(record)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert line.isascii() and "\n" not in line
    expected = {"time": "1970-01-02T00:00:00.007Z", "level": "INFO", "message": "two\nlines é", "status": 200}
    assert json.loads(line) == expected


@pytest.mark.parametrize(
    ("settings", "headers", "code"),
    [
        ({}, {}, None),
        ({}, {"host": "rebound.example:8000"}, "host_not_allowed"),
        ({"allowed_host": ("speech.example",)}, {"host": "speech.example"}, None),
        ({"allowed_host": ("speech.example",)}, {"host": "other.example"}, "host_not_allowed"),
        ({"allowed_host": ("*",)}, {"host": "other.example"}, None),
        ({"host": "0.0.0.0"}, {"host": "speech.example"}, None),
        ({}, {"host": "localhost:8000", "origin": "http://localhost:3000"}, "origin_not_allowed"),
        ({"cors_origin": ("https://a.example",)}, {"origin": "https://a.example"}, None),
        ({}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, "origin_not_allowed"),  # a form
        ({}, {"origin": "https://proxy.example", "sec-fetch-site": "same-origin"}, None),
    ],
)
def test_hosts_and_origins(settings: dict, headers: dict[str, str], code: str | None) -> None:
    """Pages of other sites may send a POST without asking, and a name bound again to loopback would make them of this site."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    sent, _ = call(answer_200, [{"type": "http.request", "body": b""}], config=settings, headers=raw)
    assert sent[0]["status"] == (403 if code else 200)
    assert not code or json.loads(sent[1]["body"])["error"]["code"] == code


@pytest.mark.parametrize(
    ("path", "found"), [("/speech/audio/x", "/v1/audio/x"), ("/audio/x", "/v1/audio/x"), ("/speechless", "/speechless")]
)
def test_the_prefix_of_a_proxy_is_once_in_the_path_of_the_app(path: str, found: str) -> None:
    """As ASGI has it, whether the proxy has taken it off or not."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])

    paths: list[str] = []
    call(app, [], path=path, config={"root_path": "/speech"})
    assert paths == [f"/speech{found}"]


def test_a_line_for_a_terminal_has_no_control_characters() -> None:
    record = logging.LogRecord("serving", logging.ERROR, "", 0, "listening on http://[::1]:80\x1b[2J\n", (), None)
    record.fields = {"host": "::1", "path": "/\x9b\n", "seed": 3}
    line = PlainFormatter().format(record)
    assert line[8:] == r' ERROR: listening on http://[::1]:80\x1b[2J\n path="/\x9b\n" seed=3'
