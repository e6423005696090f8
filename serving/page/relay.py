"""Audio on its way from the page's events to the player in the browser, which reads /page/audio/TOKEN."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

from serving.limits import Pace, pace_of

UNREAD = 30.0  # seconds that finished audio waits for its player


class Channel:
    """16-bit samples at a rate in Hz, on their way to one reader."""

    def __init__(self, token: str, rate: int) -> None:
        self.token, self.rate = token, rate
        self.left = False  # True once the reader has gone before the end
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(self, samples: bytes | None) -> None:
        """Pass samples on; None ends them."""
        self._queue.put_nowait(samples)

    async def read(self, pace: Pace) -> AsyncGenerator[bytes, None]:
        """Yield the samples until they end, and count them."""
        is_complete = False
        pace.begin()
        try:
            while (samples := await self._queue.get()) is not None:
                pace.add(len(samples) / 2 / self.rate)  # bytes to samples to seconds
                yield samples
            is_complete = True
        finally:
            self.left = not is_complete


class Relay:
    """Channels by token. Each is read once, while it is written or shortly afterwards."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def open(self, rate: int) -> Channel:
        """Open a channel for samples at `rate` Hz, with a token that nobody can guess."""
        channel = Channel(secrets.token_urlsafe(16), rate)
        self._channels[channel.token] = channel
        return channel

    def close(self, channel: Channel) -> None:
        """End a channel. From a coroutine."""
        channel.put(None)
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
        headers = {"X-Sampling-Rate": str(channel.rate), "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            channel.read(pace_of(request.scope)), media_type="application/octet-stream", headers=headers
        )
