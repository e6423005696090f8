"""Uvicorn's server, as serving and the studio run it."""

from __future__ import annotations

from typing import Any

import uvicorn


class Server(uvicorn.Server):
    """A server without access log, Server header and WebSockets. At its end, clients have `last_seconds` to read their answers.

    `options` are further settings of uvicorn.Config.
    """

    def __init__(self, app: Any, last_seconds: int, **options: Any) -> None:
        options |= {"access_log": False, "server_header": False, "ws": "none"}
        super().__init__(uvicorn.Config(app, timeout_graceful_shutdown=last_seconds, **options))
