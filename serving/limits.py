"""Limits on clients that uvicorn lacks: number of connections, time for the head of a request, slow readers.

Uvicorn's limit_concurrency refuses requests but leaves idle connections open, and its timeout_keep_alive starts only after an
answer. Nothing in it limits a client that reads slowly, during an answer or at its end.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, MutableMapping
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from common.system import open_files_limit

OWN_FILES = 100  # opened by the process itself, and connections that are about to be closed
ACCEPTED_AT_ONCE = 8  # in one turn of the event loop; closing one takes some turns
SLOWEST_READER = 1000  # bytes per second; speech has at least 4,000
SLOWEST = 0.5  # of real time; a player may pause between sentences, or play slowly


def most_connections() -> int:
    """Return how many connections fit into the limit of open files, beyond which none could be accepted."""
    files = open_files_limit()
    return 2**16 if files is None else max(1, files - OWN_FILES)


class Connection(H11Protocol):
    """A connection that closes if `most` are open, or if the head of a request takes longer than `patience` seconds.

    It also cuts off a client that leaves the end of its answer unread for about that long.
    """

    def __init__(self, *arguments: Any, patience: float, most: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.patience, self.most = patience, most
        self.deadline: asyncio.TimerHandle | None = None
        # A part of each request's scope. It closes, and drops the bytes that the client has not read.
        self.app_state = self.app_state | {"abort": lambda: self.transport.abort()}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        self._set_deadline()
        self._look()

    def data_received(self, data: bytes) -> None:
        """Read bytes of a request."""
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a request."""
        super().connection_lost(exc)
        if self.deadline is not None:
            self.deadline.cancel()

    def _set_deadline(self) -> None:
        """Start the deadline when a head is awaited; cancel it when the head is complete."""
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self.deadline is None:
            self.deadline = self.loop.call_later(self.patience, self.transport.close)
        elif not is_waiting and self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _look(self, before: float = math.inf) -> None:
        """Abort if a client stops reading the end of a closing connection; `before`: bytes that were left at the last look."""
        left, is_closing = self.transport.get_write_buffer_size(), self.transport.is_closing()
        if is_closing and left > before - SLOWEST_READER * self.patience:
            self.transport.abort()
        elif left or not is_closing:
            self.loop.call_later(self.patience, self._look, left if is_closing else math.inf)


class StallError(Exception):
    """A client reads nothing, or more slowly than its audio plays, and keeps its connection open."""


class ReadingPace:
    """Limits how long a client may keep messages waiting: each for `limit` seconds, all of an audio for duration / SLOWEST more.

    Clients that play in real time hit neither limit, and none can hold an answer for hours by reading a few bytes now and then.
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.lag, self.has_audio = limit, 0.0, False

    def begin(self) -> None:
        """Begin another audio; unused time of the last one is not carried over."""
        self.lag, self.has_audio = max(0.0, self.lag), True

    def add(self, seconds: float) -> None:
        """Count the audio that is sent next, in seconds."""
        self.lag -= seconds / SLOWEST

    async def send(self, sending: Awaitable[object]) -> None:
        """Send a message. Raises StallError if it takes too long."""
        start = time.monotonic()
        try:
            await asyncio.wait_for(sending, max(0.0, self.limit - max(0.0, self.lag)))
        except (TimeoutError, asyncio.TimeoutError):
            reason = f"the client read nothing for {self.limit:g} s, or fell as far behind its audio (--idle-timeout)"
            raise StallError(reason) from None
        if self.has_audio:
            self.lag += time.monotonic() - start


def pace_of(scope: MutableMapping[str, Any]) -> ReadingPace:
    """Return the pace that the gate has put into a request's scope."""
    pace: ReadingPace = scope.setdefault("pace", ReadingPace(math.inf))
    return pace
