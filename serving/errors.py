"""Errors of requests, in the shape of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.errors import shorten

INVALID = "invalid_request_error"
SERVER = "server_error"
LONGEST_REASON = 123  # bytes
QUOTING = frozenset({"invalid_body", "invalid_text"})  # codes of messages that may quote a text
LONGEST_VALUE = 60  # characters of a wrong value that a message shows


class RequestError(Exception):
    """An answer other than speech: an HTTP status, and the fields of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """The error's type: of the request, or of the server."""
        return INVALID if self.status < 500 else SERVER

    @property
    def log_message(self) -> str:
        """The message without words of a text, which the log must not have."""
        return f"{self.param}: {self.code}" if self.code in QUOTING else self.message

    @property
    def reason(self) -> str:
        """The message as the reason of a closing WebSocket, at most 123 bytes of UTF-8 (RFC 6455, 5.5)."""
        return self.message.encode()[:LONGEST_REASON].decode(errors="ignore")

    def body(self) -> dict[str, Any]:
        """Return the JSON of the answer."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def quote_value(value: object) -> str:
    """Return a wrong value as a message shows it: as a literal of Python, without the end of a long one."""
    return shorten(repr(value), LONGEST_VALUE)


def overload_error(max_queue: int) -> RequestError:
    """Return the error for a request beyond the queue."""
    message = f"the server has {max_queue} requests in its queue (--max-queue); try again later"
    return RequestError(503, message, code="overloaded", headers={"Retry-After": "1"})


def not_ready_error(is_stopping: bool) -> RequestError:
    """Return the error for a request that comes while the server stops, or before its voices are loaded."""
    loading = "the voices are being loaded; try again in some seconds"
    message = "the server stops; try another one" if is_stopping else loading
    return RequestError(503, message, code="not_ready", headers={"Retry-After": "5"})


def timeout_error(timeout: float) -> RequestError:
    """Return the error for a request whose time has passed."""
    return RequestError(504, f"the audio was not ready within {timeout:g} seconds (--timeout)", code="timeout")
