"""Connections of HTTP/1.1 by uvicorn, with limits that uvicorn lacks: their number, and the time for the head of a request and for
the unread end of an answer.
"""

from __future__ import annotations

import asyncio
import math
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

OWN_FILES = 100  # that the process opens beside its connections, and connections that it is about to close
ACCEPTED_AT_ONCE = 8  # in one turn of the event loop; closing one takes some turns
SLOWEST_READER = 1000  # bytes a second; speech has 4,000 and more


def most_connections() -> int:
    """Return how many connections the limit of open files leaves room for; beyond it, no other could be accepted."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if files == resource.RLIM_INFINITY else max(1, files - OWN_FILES)


class Connection(H11Protocol):
    """Closes itself where `most` others are open, or where the head of a request takes `patience` seconds.

    A client that does not read the end of its answer within about that time is cut off.
    """

    def __init__(self, *arguments: Any, patience: float, most: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.patience, self.most = patience, most
        self.deadline: asyncio.TimerHandle | None = None
        self.app_state = self.app_state | {"abort": self._abort}  # a part of each request's scope

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
        """End the wait for a request."""
        super().connection_lost(exc)
        if self.deadline is not None:
            self.deadline.cancel()

    def _set_deadline(self) -> None:
        """Start the time at the first byte of a head; end it with the head's last one."""
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self.deadline is None:
            self.deadline = self.loop.call_later(self.patience, self._close)
        elif not is_waiting and self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _abort(self) -> None:
        """Close, and drop bytes that the client has not read."""
        self.transport.abort()

    def _look(self, before: float = math.inf) -> None:
        """Abort once a client leaves the end of a closed connection unread; `before`: bytes of it when looked at last."""
        left, is_closing = self.transport.get_write_buffer_size(), self.transport.is_closing()
        if is_closing and left > before - SLOWEST_READER * self.patience:
            self.transport.abort()
        elif left or not is_closing:
            self.loop.call_later(self.patience, self._look, left if is_closing else math.inf)

    def _close(self) -> None:
        if self in self.connections:  # not a WebSocket, which has another protocol by now
            self.transport.close()
