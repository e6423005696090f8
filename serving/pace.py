"""The pace of a reader: how long the server has waited for it, beside how long the audio lasts that it got."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, MutableMapping
from typing import Any

SLOWEST = 0.5  # of real time; a player may pause between sentences, or play slowly


class StallError(Exception):
    """A client keeps its connection open and reads nothing, or slower than its audio plays."""


class Pace:
    """Limits the time that messages wait for their reader: each `limit` seconds; all of an audio that and duration / SLOWEST.

    So a client may play in real time, and none can hold an answer for hours by reading a few bytes now and then.
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.lag, self.has_audio = limit, 0.0, False

    def begin(self) -> None:
        """Begin another audio: time that the last one left over does not count for it."""
        self.lag, self.has_audio = max(0.0, self.lag), True

    def add(self, seconds: float) -> None:
        """Count audio that is sent next."""
        self.lag -= seconds / SLOWEST

    async def send(self, sending: Awaitable[object]) -> None:
        """Send a message. Raises StallError where it takes too long."""
        start = time.monotonic()
        try:
            await asyncio.wait_for(sending, max(0.0, self.limit - max(0.0, self.lag)))
        except (TimeoutError, asyncio.TimeoutError):
            reason = f"the client read nothing for {self.limit:g} s, or fell as far behind its audio (--idle-timeout)"
            raise StallError(reason) from None
        if self.has_audio:
            self.lag += time.monotonic() - start


def pace_of(scope: MutableMapping[str, Any]) -> Pace:
    """Return the pace of a request's client, as the gate has put it into the scope."""
    pace: Pace = scope.setdefault("pace", Pace(math.inf))
    return pace
