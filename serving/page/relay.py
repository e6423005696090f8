"""Audio on its way from an event of the page to the player in the browser, which reads it from /page/audio/TOKEN."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse

UNREAD = 30.0  # seconds after its end for which audio waits for its player


@dataclass
class Channel:
    """Samples of 16 bits at a rate in Hz; None ends them."""

    rate: int
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)


class Relay:
    """Channels by their tokens. Each is read once, while it is written or shortly after."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def open(self, rate: int) -> str:
        """Open a channel for samples at `rate` Hz; return its token."""
        token = secrets.token_urlsafe(16)
        self._channels[token] = Channel(rate)
        return token

    def put(self, token: str, samples: bytes) -> None:
        """Pass samples on; without a reader they are dropped once the channel is closed for a while."""
        if channel := self._channels.get(token):
            channel.queue.put_nowait(samples)

    def close(self, token: str) -> None:
        """End a channel. From a coroutine."""
        if channel := self._channels.get(token):
            channel.queue.put_nowait(None)
            asyncio.get_running_loop().call_later(UNREAD, self._channels.pop, token, None)

    def rate(self, token: str) -> int | None:
        """Return the rate of a channel in Hz; None where there is none."""
        channel = self._channels.get(token)
        return channel.rate if channel else None

    async def read(self, token: str) -> AsyncIterator[bytes]:
        """Yield the samples of a channel until its end."""
        channel = self._channels[token]
        while (samples := await channel.queue.get()) is not None:
            yield samples
        self._channels.pop(token, None)


def add_route(app: FastAPI, relay: Relay) -> None:
    """Add the route that the player reads from; a token is needed, and works once."""

    @app.get("/page/audio/{token}", include_in_schema=False)
    async def audio(token: str) -> StreamingResponse:
        rate = relay.rate(token)
        if rate is None:
            raise HTTPException(404, "this audio has been played, or there is none")
        headers = {"X-Sampling-Rate": str(rate), "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(relay.read(token), media_type="application/octet-stream", headers=headers)
