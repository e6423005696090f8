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

from common.web.gate import basic_password, bearer_token, host_name, is_loopback, is_own_origin, is_secret
from serving.config import ServingConfig
from serving.errors import RequestError, quote_value
from serving.limits import ReadingPace, StallError, pace_of
from serving.metrics import Metrics
from serving.responses import error_response
from serving.stream import SpeechStream

OPEN_PATHS = frozenset({"/healthz", "/health", "/readyz", "/metrics"})  # need no key: probes have none
API = "/v1/"
SPEECH = f"{API}audio/speech"
ROUTES = re.compile(r"/(audio/|dev/|(models|voices)(/|$))")
CLIENT_LEFT = 499  # logged if the client left before its answer

log = logging.getLogger("serving.access")


class Gate:
    """An ASGI middleware around the app."""

    def __init__(self, app: ASGIApp, config: ServingConfig, metrics: Metrics) -> None:
        self.app, self.config, self.metrics = app, config, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass or answer it with an error, then log it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        root = self.config.root_path
        path = scope["path"].removeprefix(root) if scope["path"].startswith(f"{root}/") else scope["path"]
        scope["path"] = canonical(path)
        fields, scope["streams"] = scope.setdefault("log", {}), []
        start = time.monotonic()
        scope["pace"] = ReadingPace(self.config.idle_timeout)
        fields["request_id"] = secrets.token_hex(8)
        answer = Answer(send, pace_of(scope), fields["request_id"])
        try:
            if error := self._error(scope):
                fields["error"] = error.message
                await error_response(error)(scope, receive, answer)
            else:
                # Routes expect the prefix in the path (ASGI), and the files of /docs have it.
                await self.app(as_get(scope, root), self._limit_body(scope, receive), answer)
        except StallError as error:
            fields |= {"error": str(error), "disconnected": True}
            # The connection is cut off, since closing it would wait until the client has read the rest. Under another server than
            # ours there is no `abort`, and bool() does nothing.
            scope.get("state", {}).get("abort", bool)()
        finally:
            self._record(scope, fields, answer, time.monotonic() - start)

    def _error(self, scope: Scope) -> RequestError | None:
        headers = Headers(scope=scope)
        if self._is_foreign_host(headers):
            message = f"the header Host names {quote_value(headers['host'])}, expected this machine (--allowed-host)"
            return RequestError(403, message, code="host_not_allowed")
        if self._is_foreign_page(scope, headers):
            message = "pages of other sites may not call this server (--cors-origin)"
            return RequestError(403, message, code="origin_not_allowed")
        key = None if scope["path"] in OPEN_PATHS else self.config.api_key
        if key is not None and not any(is_secret(found(headers), key) for found in (bearer_token, basic_password)):
            message = "the key is missing or wrong, expected the header Authorization: Bearer KEY"
            is_page = "text/html" in headers.get("accept", "") or not scope["path"].startswith(API)
            browser = {"WWW-Authenticate": 'Basic realm="speech"'} if is_page else {}  # shows its own form
            return RequestError(401, message, code="invalid_api_key", headers=browser)
        size = headers.get("content-length", "")
        if size.isdecimal() and int(size) > self.config.max_body:
            return RequestError(413, self._too_large(f"{size} bytes"), code="body_too_large")
        return None

    def _is_foreign_host(self, headers: Headers) -> bool:
        """True for a name of another host on a loopback address: a page whose name was bound to it again asks so."""
        name = host_name(headers.get("host", ""))
        is_named = not {name, "*"}.isdisjoint(self.config.allowed_host)
        return "host" in headers and is_loopback(self.config.host) and not (is_named or is_loopback(name))

    def _is_foreign_page(self, scope: Scope, headers: Headers) -> bool:
        """True if a page of another site asks for what costs something. Links that a user follows are welcome."""
        is_allowed = not {headers.get("origin"), "*"}.isdisjoint(self.config.cors_origin)
        if is_allowed or headers.get("sec-fetch-site") in ("same-origin", "none") or scope["path"] in OPEN_PATHS:
            return False
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in ("GET", "HEAD")
        return not is_own_origin(headers) or (headers.get("sec-fetch-site") == "cross-site" and not is_link)

    def _limit_body(self, scope: Scope, receive: Receive) -> Receive:
        """Refuse a body that exceeds the limit or does not arrive in time."""
        total, has_more, end = 0, True, time.monotonic() + self.config.idle_timeout

        async def receive_limited() -> Message:
            nonlocal total, has_more
            try:
                message = await asyncio.wait_for(receive(), max(0.0, end - time.monotonic()) if has_more else None)
            except (TimeoutError, asyncio.TimeoutError):
                text = f"the body did not arrive within {self.config.idle_timeout:g} seconds (--idle-timeout)"
                raise HTTPException(408, text, {"Connection": "close"}) from None
            has_more = message.get("more_body", False)
            size = len(message.get("body", b"")) if message["type"] == "http.request" else 0
            total += size
            if total > self.config.max_body:
                raise HTTPException(413, self._too_large("more"))
            return message

        return receive_limited

    def _too_large(self, found: str) -> str:
        return f"body: {found}, expected at most {self.config.max_body} bytes (--max-body)"

    def _record(self, scope: Scope, fields: dict[str, object], answer: Answer, seconds: float) -> None:
        if scope["path"] in OPEN_PATHS:  # probes arrive every few seconds
            return
        status = answer.status or (CLIENT_LEFT if fields.get("disconnected") else 500)
        if status >= 400:
            self.metrics.errors.labels(str(status)).inc()
        fields |= audio_fields(scope.get("streams", ()))
        client = scope.get("client") or ("", 0)
        line = {"client": client[0], "method": scope["method"], "path": scope["path"], "status": status}
        level = logging.ERROR if fields.get("cut") else logging.INFO
        log.log(level, "request", extra={"fields": {**line, "seconds": round(seconds, 4), **fields}})


class Answer:
    """Sends the messages of an answer, with its id, at the client's pace; keeps its status. Raises StallError as the pace does."""

    def __init__(self, send: Send, pace: ReadingPace, request_id: str) -> None:
        self.send, self.pace, self.status = send, pace, 0
        self.header = (b"x-request-id", request_id.encode())  # OpenAI's, which clients log

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), self.header]}
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


def as_get(scope: Scope, root: str) -> Scope:
    """Return the app's scope of a request: with a prefix, and a GET for a HEAD of the API, whose body uvicorn leaves out.

    A speech would be computed in vain, and has a HEAD of its own.
    """
    path = scope["path"]
    is_read = path in OPEN_PATHS or (path.startswith(API) and path != SPEECH)
    method = "GET" if is_read and scope["method"] == "HEAD" else scope["method"]
    return {**scope, "method": method, "path": f"{root}{path}"}
