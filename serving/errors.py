"""Errors of requests, in the shape of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.errors import shorten

INVALID = "invalid_request_error"
SERVER = "server_error"
NOTHING = "nothing_to_say"  # code of a text without words; within a longer text, the rest is spoken
NOT_READY = "not_ready"  # code; if the server stops, after all text that has arrived
QUOTING = frozenset({"invalid_body", "invalid_text", NOTHING})  # codes whose messages may quote a text
LONGEST_VALUE = 60  # characters of a wrong value shown in a message


class RequestError(Exception):
    """An answer other than speech: an HTTP status and the fields of OpenAI's error object."""

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
        """The error's type in OpenAI's terms."""
        return INVALID if self.status < 500 else SERVER

    @property
    def log_message(self) -> str:
        """The message for the log, which must not contain words of a text."""
        return f"{self.param}: {self.code}" if self.code in QUOTING else self.message

    def body(self) -> dict[str, Any]:
        """Return the answer's JSON."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def quote_value(value: object) -> str:
    """Return a wrong value for a message: as a Python literal, shortened if it is long."""
    return shorten(repr(value), LONGEST_VALUE)


def overload_error(reason: str, retry_after: int) -> RequestError:
    """Return the error for a request that the queue has no room or no time for, with the seconds after which to repeat it."""
    message = f"{reason}; try again in {retry_after} seconds"
    return RequestError(503, message, code="overloaded", headers={"Retry-After": str(retry_after)})


def not_ready_error(is_stopping: bool) -> RequestError:
    """Return the error for a request that arrives before the voices are loaded or while the server is stopping."""
    loading = "the voices are being loaded; try again in a few seconds"
    message = "the server is stopping; try another one" if is_stopping else loading
    return RequestError(503, message, code=NOT_READY, headers={"Retry-After": "5"})


def timeout_error(timeout: float, has_begun: bool = False) -> RequestError:
    """Return the error for a request that has timed out before its first audio, or without progress after it."""
    problem = "the audio made no progress for" if has_begun else "the audio did not begin within"
    return RequestError(504, f"{problem} {timeout:g} seconds (--timeout)", code="timeout")
