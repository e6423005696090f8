"""Speech on its way from the page's events to the player in the browser, which reads /page/audio/TOKEN."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from serving.limits import Pace, pace_of

UNREAD = 30.0  # seconds that finished speech waits for its player

Line = Mapping[str, Any]  # of JSON; serving/page/player.js has its keys


class Channel:
    """Lines on their way to one reader."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.left = False  # True once the reader has gone before the end
        self._queue: asyncio.Queue[tuple[Line, float] | None] = asyncio.Queue()

    def put(self, line: Line, seconds: float = 0.0) -> None:
        """Pass a line on, with the seconds of its audio."""
        self._queue.put_nowait((line, seconds))

    def end(self) -> None:
        """Let the reader come to an end."""
        self._queue.put_nowait(None)

    async def read(self, pace: Pace) -> AsyncGenerator[bytes, None]:
        """Yield the lines until they end, and count their audio."""
        is_complete = False
        pace.begin()
        try:
            while (item := await self._queue.get()) is not None:
                line, seconds = item
                pace.add(seconds)
                yield json.dumps(line).encode() + b"\n"
            is_complete = True
        finally:
            self.left = not is_complete


class Relay:
    """Channels by token. Each is read once, while it is written or shortly afterwards."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def open(self) -> Channel:
        """Open a channel with a token that nobody can guess."""
        channel = Channel(secrets.token_urlsafe(16))
        self._channels[channel.token] = channel
        return channel

    def close(self, channel: Channel) -> None:
        """End a channel. From a coroutine."""
        channel.end()
        asyncio.get_running_loop().call_later(UNREAD, self._channels.pop, channel.token, None)

    def take(self, token: str) -> Channel | None:
        """Hand a channel to its reader, once. None if there is none."""
        return self._channels.pop(token, None)


def add_route(app: FastAPI, relay: Relay) -> None:
    """Add the route that the player reads from. A token works once."""

    @app.get("/page/audio/{token}", include_in_schema=False)
    async def audio(token: str, request: Request) -> StreamingResponse:
        channel = relay.take(token)
        if channel is None:
            raise HTTPException(404, "this audio has already been played, or never existed")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        lines = channel.read(pace_of(request.scope))
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)
