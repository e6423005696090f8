"""A client whose text becomes several requests, one after the other: a WebSocket, a Wyoming connection, an answer on the page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class Visit:
    """The time of such a client. The engine takes its requests until its end, and stops after it.

    `on_stop` is called in the client's loop when the engine begins to stop. The client then takes no more text, and ends after the
    text that it has.
    """

    def __init__(self, on_stop: Callable[[], object]) -> None:
        self._on_stop, self._loop = on_stop, asyncio.get_running_loop()

    def begin_stop(self) -> None:
        """Call `on_stop`, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the client has left
            self._loop.call_soon_threadsafe(self._on_stop)
