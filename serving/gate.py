"""The gate in front of all routes: key, origin, size of bodies, clients that stall, and one log line per request."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.web.gate import basic_password, bearer_token, is_own_origin, is_secret, refuse
from serving.config import ServingConfig
from serving.errors import RequestError, quote_value
from serving.limits import Pace, StallError, pace_of
from serving.metrics import Metrics
from serving.responses import error_response
from serving.stream import SpeechStream

OPEN_PATHS = frozenset({"/healthz", "/health", "/readyz", "/metrics"})  # need no key: probes have none
# The page reads many files and keeps connections open; only errors of these are logged.
PAGE_FILES = ("/assets/", "/static/", "/theme.css", "/gradio_api/heartbeat/", "/gradio_api/app_id")
API = "/v1/"
SPEECH = f"{API}audio/speech"
ROUTES = re.compile(r"/(audio/|dev/|(models|voices)(/|$))")
UPLOAD = "/gradio_api/upload"  # the page's, with a limit of its own
SLOWEST_UPLOAD = 10_000  # bytes per second
CLIENT_LEFT = 499  # logged if the client left before its answer

log = logging.getLogger("serving.access")


class Gate:
    """An ASGI middleware around the app."""

    def __init__(self, app: ASGIApp, config: ServingConfig, metrics: Metrics) -> None:
        self.app, self.config, self.metrics = app, config, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass or answer it with an error, then log it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope["path"] = canonical(scope["path"])
        fields = scope.setdefault("log", {})
        start = time.monotonic()
        scope["pace"] = Pace(self.config.idle_timeout)
        fields["request_id"] = secrets.token_hex(8)
        answer = Answer(send, pace_of(scope), fields["request_id"])
        try:
            if error := self._error(scope):
                fields["error"] = error.message
                await refuse(error_response(error), error.reason, scope, receive, answer)
            else:
                await self.app(as_get(scope), self._limit_body(scope, receive), answer)
        except StallError as error:
            fields |= {"error": str(error), "disconnected": True}
            scope.get("state", {}).get("abort", bool)()  # closing would wait until the rest is read
        finally:
            self._record(scope, fields, answer, time.monotonic() - start)

    def _error(self, scope: Scope) -> RequestError | None:
        headers = Headers(scope=scope)
        is_allowed = not {headers.get("origin"), "*"}.isdisjoint(self.config.cors_origin)
        if scope["type"] == "websocket" and not (is_allowed or is_own_origin(headers)):
            message = f"pages of {quote_value(headers['origin'])} may not call this server (--cors-origin)"
            return RequestError(403, message, code="origin_not_allowed")
        key = None if scope["path"] in OPEN_PATHS else self.config.api_key
        if key is not None and not any(is_secret(found(headers), key) for found in (bearer_token, basic_password)):
            message = "the key is missing or wrong, expected the header Authorization: Bearer KEY"
            is_page = "text/html" in headers.get("accept", "") or not scope["path"].startswith(API)
            browser = {"WWW-Authenticate": 'Basic realm="speech"'} if is_page else {}  # shows its own form
            return RequestError(401, message, code="invalid_api_key", headers=browser)
        size = headers.get("content-length", "")
        if size.isdecimal() and int(size) > self.config.max_body and is_limited(scope):
            return RequestError(413, self._too_large(f"{size} bytes"), code="body_too_large")
        return None

    def _limit_body(self, scope: Scope, receive: Receive) -> Receive:
        """Refuse a body that exceeds the limit or does not arrive in time. Uploads may be larger, and get more time per byte."""
        is_small = is_limited(scope)
        total, has_more, end = 0, True, time.monotonic() + self.config.idle_timeout

        async def receive_limited() -> Message:
            nonlocal total, has_more, end
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()) if has_more else None)
            except (TimeoutError, asyncio.TimeoutError):
                text = f"the body did not arrive within {self.config.idle_timeout:g} seconds (--idle-timeout)"
                raise HTTPException(408, text, {"Connection": "close"}) from None
            has_more = message.get("more_body", False)
            size = len(message.get("body", b"")) if message["type"] == "http.request" else 0
            total += size
            end += 0 if is_small else size / SLOWEST_UPLOAD
            if is_small and total > self.config.max_body:
                raise HTTPException(413, self._too_large("more"))
            return message

        return receive_limited if scope["type"] == "http" else receive

    def _too_large(self, found: str) -> str:
        return f"body: {found}, expected at most {self.config.max_body} bytes (--max-body)"

    def _record(self, scope: Scope, fields: dict[str, object], answer: Answer, seconds: float) -> None:
        if scope["path"] in OPEN_PATHS:  # probes arrive every few seconds
            return
        status = answer.status or (CLIENT_LEFT if fields.get("disconnected") else 500)
        if status < 400 and scope["path"].startswith(PAGE_FILES):
            return
        if status >= 400:
            self.metrics.errors.labels(str(status)).inc()
        fields |= audio_fields(scope.get("streams", ()))
        client = scope.get("client") or ("", 0)
        line = {
            "client": client[0],
            "method": scope.get("method", "WEBSOCKET"),
            "path": scope["path"],
            "status": status,
        }
        level = logging.ERROR if fields.get("cut") else logging.INFO
        log.log(level, "request", extra={"fields": {**line, "seconds": round(seconds, 4), **fields}})


class Answer:
    """Sends the messages of an answer, with its id, at the client's pace; keeps its status. Raises StallError as the pace does."""

    def __init__(self, send: Send, pace: Pace, request_id: str) -> None:
        self.send, self.pace, self.status = send, pace, 0
        self.header = (b"x-request-id", request_id.encode())  # OpenAI's, which clients log

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), self.header]}
        elif message["type"] == "websocket.accept":
            self.status = 101
        elif message["type"] == "websocket.close":
            self.status = self.status or 403
        await self.pace.send(self.send(message))


def audio_fields(streams: Sequence[SpeechStream]) -> dict[str, float]:
    """Return the fields of a line of log about the audio of streams, if there are any."""
    if not streams:
        return {}
    firsts = [stream.first for stream in streams if stream.first is not None]
    audio = sum(stream.samples / stream.sampling_rate for stream in streams)
    return {"first_byte": round(min(firsts, default=0.0), 4), "audio_seconds": round(audio, 3)}


def canonical(path: str) -> str:
    """Return the path of a route of the API that clients also name without /v1, with a slash at its end or a doubled one."""
    inner = re.sub("/{2,}", "/", path).rstrip("/")
    if inner in OPEN_PATHS:
        return inner
    name = inner.removeprefix("/v1")
    return f"/v1{name}" if name != inner or ROUTES.match(name) else path


def as_get(scope: Scope) -> Scope:
    """Return the scope of a GET for a HEAD of the API, whose body uvicorn leaves out. A speech would be computed in vain."""
    path = scope["path"]
    is_read = path in OPEN_PATHS or (path.startswith(API) and path != SPEECH)
    return {**scope, "method": "GET"} if is_read and scope.get("method") == "HEAD" else scope


def is_limited(scope: Scope) -> bool:
    """True if --max-body applies to a request: to all but uploads of sound files."""
    return scope["type"] == "http" and not scope["path"].startswith(UPLOAD)
