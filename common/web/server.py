"""Uvicorn's server, as serving and the studio run it."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, NoReturn

import uvicorn

LOADER = "models"  # name of the threads that load voices


def end_at_once() -> NoReturn:
    """End a process in which a thread still loads a voice: an ordinary exit would abort within the thread's C++ code."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


class Server(uvicorn.Server):
    """A server without access log, Server header and WebSockets. At its end, clients have `last_seconds` to read their answers.

    `options` are further settings of uvicorn.Config.
    """

    def __init__(self, app: Any, last_seconds: int, **options: Any) -> None:
        options |= {"access_log": False, "server_header": False, "ws": "none"}
        super().__init__(uvicorn.Config(app, timeout_graceful_shutdown=last_seconds, **options))
