"""Interrupted uploads leave nothing behind: they are made to look damaged, since Gradio only removes the parts of damaged ones."""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress
from email.message import Message as Header
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ROUTE = "/upload"  # the end of the path that takes files
OLD = 3600.0  # seconds without a change


class WholeUploads:
    """ASGI middleware that ends an interrupted upload as a damaged one, whose parts are removed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        # The parser would warn of the damage made here, without saying which upload it was in.
        logging.getLogger("python_multipart").setLevel(logging.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_upload = scope["type"] == "http" and scope["method"] == "POST" and scope["path"].endswith(ROUTE)
        await self.app(scope, end_damaged(scope, receive) if is_upload else receive, send)


def end_damaged(scope: Scope, receive: Receive) -> Receive:
    """Return a `receive` that ends an interrupted body with a part that has no name."""
    damage = f"\r\n--{boundary_of(scope)}\r\nX: 0\r\n\r\n".encode("latin-1", "replace")
    is_whole = False

    async def receive_whole() -> Message:
        nonlocal is_whole
        message = await receive()
        if message["type"] == "http.disconnect" and not is_whole:
            is_whole = True
            return {"type": "http.request", "body": damage, "more_body": False}
        is_whole = is_whole or not message.get("more_body", False)
        return message

    return receive_whole


def boundary_of(scope: Scope) -> str:
    """Return the boundary between the parts of a body; "" if its type names none."""
    header = Header()
    header["Content-Type"] = Headers(scope=scope).get("content-type", "")
    return str(header.get_param("boundary", ""))


def remove_old(folder: Path) -> None:
    """Remove uploads left by an earlier server: files and folders unchanged for an hour."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in folder.iterdir():
        with suppress(OSError):
            newest = max(item.lstat().st_mtime for item in (path, *path.rglob("*")))
            if time.time() - newest > OLD:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
