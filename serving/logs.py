"""The log on stdout: plain lines for a terminal, one line of JSON a record for programs. Imports nothing that takes time."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from common.errors import printable

PREFIX = "TTS_"  # of the environment variables that stand for flags
LOG_FORMATS = ("plain", "json")
INCOMPLETE = "returned without completing response"  # uvicorn's message; the request's own log line has the reason

log = logging.getLogger("serving")


def announce(argv: Sequence[str]) -> None:
    """Say that the server is starting, before the packages that take seconds are imported and the flags are checked."""
    words = [word for argument in argv for word in argument.split("=", 1)]
    if {"-h", "--help"}.isdisjoint(words):
        named = [os.environ.get(f"{PREFIX}LOG_FORMAT")]
        named += [value for flag, value in pairwise(words) if flag == "--log-format"]
        set_up_logging(named[-1])
        log.info("loading …")


def set_up_logging(log_format: str | None) -> None:
    """Log to stdout, by default in plain lines if it is a terminal, otherwise in JSON."""
    handler = logging.StreamHandler(sys.stdout)
    is_plain = log_format == "plain" if log_format in LOG_FORMATS else sys.stdout.isatty()
    handler.setFormatter(PlainFormatter() if is_plain else JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.WARNING)
    uvicorn_log.addFilter(lambda record: INCOMPLETE not in record.getMessage())


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time in UTC, level, message, and the fields of a request."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{moment}.{int(record.msecs):03d}Z", "level": record.levelname, "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # ASCII, so that control characters in a path never reach a terminal


class PlainFormatter(logging.Formatter):
    """Formats a log record as a line to read: the local time, a level other than INFO, the message, a request's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; only a traceback has more of them."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname}: "
        message, fields = record.getMessage(), getattr(record, "fields", {})
        words = [
            f"{name}={json.dumps(value, default=str, ensure_ascii=False)}"
            for name, value in fields.items()
            if str(value) not in message
        ]
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = printable(" ".join([moment, level + message, *words])).replace("\n", "\\n")
        return "\n".join([line, *([self.formatException(record.exc_info)] if record.exc_info else [])])
