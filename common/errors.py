"""The two kinds of mistake that a user can make, with their exit codes; Ctrl-C has its own."""

from __future__ import annotations

import errno
import os
import select
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from common.start import after_imports
from common.system import IS_POSIX

INTERRUPTED, UNREAD = 130, 141  # as shells count: 128 + SIGINT, 128 + SIGPIPE
# System errors that are due to a file or a disk, not to a mistake in the code.
REFUSALS = {
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO),
}

MAX_REPORTED = 100  # the wrong kind of file has thousands of bad rows
LONG_TEXT, LONG_LIST = 150, 20  # characters of a phrase and items of a list that a message shows
NAMES_SHOWN = 4  # in a row


def printable(text: str) -> str:
    """Spell out control characters that a terminal would obey, such as ESC as \\x1b. Line feeds and tabs stay."""
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) == "Cc" and c not in "\n\t" else c for c in text)


def shorten(text: str, longest: int = LONG_TEXT) -> str:
    """Shorten a long text for a message."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def shorten_list(items: list[str]) -> list[str]:
    """Return the first items, and the number of the others."""
    rest = len(items) - LONG_LIST
    return items[:LONG_LIST] + ([f"… and {rest} more"] if rest > 0 else [])


def listed(items: Iterable[str], most: int = NAMES_SHOWN, kind: str = "") -> str:
    """Join names by commas; of more than `most` the first ones and a count: "a, b and 3 more", followed by `kind`."""
    names = list(items)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more{kind}" if len(names) > most else "")


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the settings that differ from those before, each with both values."""
    return [f"{name} {before.get(name)}, now {value}" for name, value in now.items() if before.get(name) != value]


class UsageError(ValueError):
    """A flag or a combination of flags that cannot work: exit code 2."""

    exit_code = 2


def require_posix(command: str) -> None:
    """Raise UsageError on a system without POSIX's signals and process groups."""
    if not IS_POSIX:
        raise UsageError(f"{command}: needs Linux or macOS; on Windows, run it in WSL 2 (README.md, Systems)")


class DataError(ValueError):
    """A file, a row or a tensor that does not fit its purpose: exit code 1."""

    exit_code = 1


def join_problems(problems: Sequence[str]) -> str:
    """Join problems, one per line; if there are very many, the first ones and a count."""
    rest = len(problems) - MAX_REPORTED
    return "\n".join([*problems[:MAX_REPORTED], *([f"… and {rest} more lines"] if rest > 0 else [])])


@contextmanager
def explain_refusal(problem: str, advice: str = "") -> Iterator[None]:
    """Turn what the system refuses within the block into a DataError: the problem, the system's reason, and the advice."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{problem} ({error.strerror})" + (f"; {advice}" if advice else "")) from error


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn UsageError, DataError, REFUSALS of the system and Ctrl-C into one message on stderr and an exit code.

    Everything else keeps its traceback. If the reader of stdout, such as `head`, has ended, there is only an exit code. The
    arguments of a KeyboardInterrupt, if any, follow "stopped".
    """
    try:
        after_imports()  # from its middle on, Ctrl-C is an exception
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
    """True if stdout is a pipe without a reader; the rest of the output is then discarded."""
    try:
        stdout = sys.stdout.fileno()
    except OSError:  # replaced by a Python object
        return False
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(stdout, 0)  # errors are always reported
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)  # Python flushes stdout once more at its end
    return True
