"""The socket that a server listens on: its --host and --port."""

from __future__ import annotations

import os
import socket

from common.errors import DataError
from common.options import Check

WAITING = 2048  # connections that the system holds until the server accepts them
LARGEST_PORT = 2**16 - 1
PORT = Check(lambda port: 0 <= port <= LARGEST_PORT, f"0 to {LARGEST_PORT}")


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of --host and --port. Raises DataError if the system refuses."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=WAITING)
    except (OSError, OverflowError) as error:
        raise DataError(f"--host {host} --port {port}: cannot listen there ({reason(error)})") from None
    # Each connection inherits it. Else the end of an answer waits 40 ms for the client's acknowledgement of its beginning: asyncio
    # sets it only for sockets whose protocol is named, unlike those of create_server.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def reason(error: Exception) -> str:
    """Return the system's own message, without Python's additions."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error)
