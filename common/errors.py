"""The two kinds of mistake a user can make, and the exit code of each; Ctrl-C has one of its own."""

from __future__ import annotations

import errno
import os
import select
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INTERRUPTED, UNREAD = 130, 141  # as shells count: 128 + SIGINT, 128 + SIGPIPE
# Refusals of the system that concern a file or a disk, and no mistake in the code.
REFUSALS = {
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
}

MAX_REPORTED = 100  # a list of another kind of file has thousands of bad rows
LONG_TEXT = 150  # characters of a phrase that a message shows


def printable(text: str) -> str:
    """Spell control characters, which a terminal would obey: ESC as \\x1b. Line feeds and tabs stay."""
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


def shorten(text: str, longest: int = LONG_TEXT) -> str:
    """Shorten a long text to so many characters for a message."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class UsageError(ValueError):
    """A flag or a combination of flags that cannot work: exit code 2."""

    exit_code = 2


class DataError(ValueError):
    """A file, a row or a tensor that does not fit its purpose: exit code 1."""

    exit_code = 1


def join_problems(problems: Sequence[str]) -> str:
    """Put each problem on a line of its own; of very many, the first ones and a count."""
    rest = len(problems) - MAX_REPORTED
    return "\n".join([*problems[:MAX_REPORTED], *([f"… and {rest} more lines"] if rest > 0 else [])])


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn UsageError, DataError, the system's refusals and Ctrl-C into one message on stderr and their exit code.

    All else keeps its traceback. Where the reader of stdout, such as `head`, has ended, there is an exit code alone.

    The arguments of a KeyboardInterrupt, if any, follow "stopped".
    """
    try:
        yield
    except (UsageError, DataError) as error:
        print(printable(f"error: {error}"), file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _stdout_is_unread():
            raise SystemExit(UNREAD) from None
        if error.errno not in REFUSALS:
            raise
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        print(printable(f"error: {place}{error.strerror}"), file=sys.stderr)
        raise SystemExit(DataError.exit_code) from None
    except KeyboardInterrupt as interrupt:
        print(": ".join(["stopped", *map(str, interrupt.args)]), file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def _stdout_is_unread() -> bool:
    """True where stdout is a pipe without a reader; the rest of the output then goes nowhere."""
    try:
        stdout = sys.stdout.fileno()
    except OSError:  # replaced by an object of Python's
        return False
    poll = select.poll()
    poll.register(stdout, 0)  # errors are reported in any case
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)  # Python flushes stdout once more at its end
    return True
