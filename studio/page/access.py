"""The gate of the page: a token beyond loopback, no foreign names of this machine, no requests from other pages; and uploads."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.web.gate import bearer_token, host_name, is_loopback, is_own_origin, is_secret

COOKIE = "studio-token"
PARAMETER = "token"  # of the address that is printed
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
NO_TOKEN = "This page needs its token: open the address that the server printed, which ends in ?token=…\n"
WRONG_HOST = (
    "This server is open to this machine alone: use http://127.0.0.1 or http://localhost, not the name {host}.\n"
)
WRONG_ORIGIN = "This request comes from another page ({origin}); it was refused.\n"
HEADERS = {  # of every answer: no page elsewhere may show this one in a frame, and the token stays here
    b"x-frame-options": b"SAMEORIGIN",
    b"content-security-policy": b"frame-ancestors 'self'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}


@dataclass(frozen=True, kw_only=True)
class Access:
    """Rights of visitors. token: needed by every request, or None, which suffices on loopback alone. port: of the server."""

    token: str | None
    port: int


class TokenGate:
    """An ASGI middleware around the app; it answers requests that may not pass."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        if scope["type"] == "http":
            send = _with_headers(send)
            if answer := self.answer(scope):
                await answer(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def answer(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not pass; None where it may."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.access.token is None and not is_loopback(host_name(host)):
            return PlainTextResponse(WRONG_HOST.format(host=repr(host)), 403)
        if scope["method"] not in SAFE_METHODS and not is_own_origin(headers):
            return PlainTextResponse(WRONG_ORIGIN.format(origin=repr(origin)), 403)
        return None if self.access.token is None else self._check_token(scope, headers, self.access.token)

    def _check_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """Return the answer to a request without the token; one with it in its address gets the cookie."""
        found = parse_qs(scope["query_string"].decode("latin-1")).get(PARAMETER, [""])[0]
        if scope["method"] == "GET" and is_secret(found.encode("utf-8", "surrogateescape"), token):
            return self._welcome(scope, token)
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "").encode("utf-8", "surrogateescape")
        if is_secret(cookie, token) or is_secret(bearer_token(headers), token):
            return None
        return PlainTextResponse(NO_TOKEN, 401)

    @property
    def cookie(self) -> str:
        """The cookie's name. Cookies of all ports of a host are one set, so the port is in it."""
        return f"{COOKIE}-{self.access.port}"

    def _welcome(self, scope: Scope, token: str) -> Response:
        """Set the cookie and go on to the page by a link of its own: a strict cookie would not follow a redirect from elsewhere."""
        path = escape(scope["path"], quote=True)
        page = HTMLResponse(f'<meta http-equiv="refresh" content="0; url={path}"><a href="{path}">Voice studio</a>')
        page.set_cookie(self.cookie, token, httponly=True, samesite="strict", path="/")
        page.headers["cache-control"] = "no-store"
        return page


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *((n, v) for n, v in HEADERS.items() if n not in present)]
        await send(message)

    return add


ROUTE = "/upload"  # the end of the path that takes files
OLD = 3600.0  # seconds without a change


class WholeUploads:
    """ASGI middleware that makes an interrupted upload look damaged, since Gradio removes the parts of damaged ones alone."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_whole = False

        async def receive_whole() -> Message:
            nonlocal is_whole
            message = await receive()
            if message["type"] == "http.disconnect" and not is_whole:
                raise MultiPartException("the upload was interrupted")
            is_whole = not message.get("more_body", False)
            return message

        is_upload = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith(ROUTE)
        await self.app(scope, receive_whole if is_upload else receive, send)


def remove_old(folder: Path) -> None:
    """Remove uploads left by an earlier server: files and folders unchanged for an hour."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        with suppress(OSError):
            newest = max(item.lstat().st_mtime for item in (path, *path.rglob("*")))
            if time.time() - newest > OLD:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
