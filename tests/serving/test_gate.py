"""The gate in front of small ASGI apps: the key, sizes, the status in the log and the metrics, and the log's lines."""

import asyncio
import json
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.config import ServingConfig
from serving.errors import RequestError
from serving.gate import Gate, canonical
from serving.logs import JsonFormatter
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


def call(app: ASGIApp, messages: list[Message], **scope: Any) -> tuple[list[Message], Metrics]:
    """The messages that the gate sends, and its metrics."""
    sent: list[Message] = []
    metrics = Metrics()

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": [], "query_string": b""} | scope
    run(Gate(app, ServingConfig(max_body=10, api_key=scope.pop("key", None)), metrics)(scope, receive, send))
    return sent, metrics


def errors(metrics: Metrics, status: int) -> float:
    return metrics.registry.get_sample_value("tts_errors_total", {"status": str(status)}) or 0.0


@pytest.mark.parametrize(
    ("size", "path", "status"),
    [(10, "/v1/x", 200), (11, "/v1/x", 413), (11, "/docs", 413), (11, "/gradio_api/upload", 200)],
)
def test_a_stated_size_is_limited_on_all_paths_but_the_upload(size: int, path: str, status: int) -> None:
    headers = [(b"content-length", str(size).encode())]
    sent, _ = call(answer_200, [{"type": "http.request", "body": b""}], path=path, headers=headers)
    assert sent[0]["status"] == status


@pytest.mark.parametrize("size", [10, 11])
def test_a_size_that_is_not_stated_is_counted(size: int) -> None:
    pieces: list[Message] = [{"type": "http.request", "body": b"a" * 5, "more_body": True}]
    pieces.append({"type": "http.request", "body": b"a" * (size - 5), "more_body": False})
    if size == 10:
        assert call(answer_200, pieces)[0][0]["status"] == 200
        return
    with pytest.raises(HTTPException) as caught:
        call(answer_200, pieces)
    assert caught.value.status_code == 413


def socket_app(*kinds: str) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for kind in kinds:
            await send({"type": f"websocket.{kind}", "code": 1000})

    return app


@pytest.mark.parametrize(
    ("kind", "path", "app", "status", "level"),
    [
        ("http", "/v1/x", status_of(399), 399, "INFO"),
        ("http", "/v1/x", status_of(400), 400, "INFO"),
        ("http", "/v1/x", leave, 499, "INFO"),
        ("http", "/v1/x", cut, 200, "ERROR"),
        ("websocket", "/v1/x", socket_app("accept", "close"), 101, "INFO"),  # one that was open is no error
        ("websocket", "/v1/x", socket_app("close"), 403, "INFO"),
        ("http", "/v1/models", status_of(200), 200, "INFO"),
        ("http", "/assets/a.js", status_of(200), 200, None),  # files of the page, where they fail
        ("http", "/gradio_api/heartbeat/x", status_of(200), 200, None),
        ("http", "/assets/a.js", status_of(404), 404, "INFO"),
    ],
)
def test_the_status_is_logged_and_errors_are_counted(kind, path, app: ASGIApp, status, level, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="serving.access"):
        _, metrics = call(app, [], type=kind, path=path)
    found = [(record.levelname, record.fields["status"]) for record in caplog.records]
    assert found == ([(level, status)] if level else [])
    assert errors(metrics, status) == (status >= 400)


def test_the_reason_of_a_close_is_whole_characters_of_at_most_123_bytes() -> None:
    assert RequestError(404, "ä" * 100).reason == "ä" * 61 and RequestError(404, "a" * 200).reason == "a" * 123


def test_the_first_of_several_parts_counts(caplog) -> None:
    streams = [SimpleNamespace(first=first, samples=10, sampling_rate=20) for first in (0.5, None, 0.25)]
    with caplog.at_level(logging.INFO, logger="serving.access"):
        call(status_of(200), [], streams=streams)
    fields = caplog.records[0].fields
    assert (fields["first_byte"], fields["audio_seconds"]) == (0.25, 1.5)


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


def test_a_socket_without_the_key_is_refused() -> None:
    """Closed by policy (1008 of RFC 6455, 7.4.1); with the error where the server can send one, as uvicorn by ASGI's extension."""
    scope = {"type": "websocket", "key": "k"}
    (close,), _ = call(answer_200, [{"type": "websocket.connect"}], **scope)
    assert (close["type"], close["code"]) == ("websocket.close", 1008) and "key is missing" in close["reason"]
    scope["extensions"] = {"websocket.http.response": {}}
    sent, _ = call(answer_200, [{"type": "websocket.connect"}], **scope)
    assert [message["type"] for message in sent] == ["websocket.http.response.start", "websocket.http.response.body"]
    assert sent[0]["status"] == 401 and b"Authorization: Bearer KEY" in sent[1]["body"]


def test_paths_as_clients_write_them() -> None:
    """test_app.py has more."""
    paths = {"/models/tts-1": "/v1/models/tts-1", "/dev/captioned_speech/": "/v1/dev/captioned_speech"}
    paths |= {"/healthz/": "/healthz", "/modelshop": "/modelshop", "//etc/": "//etc/", "/": "/"}
    assert {path: canonical(path) for path in paths} == paths


def test_the_time_of_an_upload_alone_grows_with_its_bytes() -> None:
    """The page's uploads, of 20 MB, may take longer than --idle-timeout; one that trickles may not."""

    async def app(scope: dict, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass

    async def upload(path: str, size: int) -> None:
        pieces = iter(range(5))

        async def receive() -> dict:
            await asyncio.sleep(0.3)
            return {"type": "http.request", "body": bytes(size), "more_body": next(pieces) < 4}

        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        await Gate(app, ServingConfig(idle_timeout=1), Metrics())(scope, receive, app)

    async def call() -> list[Any]:
        uploads = (
            upload("/gradio_api/upload", 10_000),
            upload("/gradio_api/upload", 10),
            upload("/v1/audio/speech", 10_000),
        )
        return await asyncio.gather(*uploads, return_exceptions=True)

    whole, *late = run(call())
    assert whole is None
    assert ["did not arrive within 1 seconds" in error.detail for error in late] == [True, True]
