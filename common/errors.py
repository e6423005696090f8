"""The two kinds of mistake a user can make, and the exit code of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(ValueError):
    """A flag or a combination of flags that cannot work: exit code 2."""

    exit_code = 2


class DataError(ValueError):
    """A file, a row or a tensor that is not what it has to be: exit code 1."""

    exit_code = 1


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn UsageError and DataError into one message on stderr and their exit code; everything else keeps its traceback."""
    try:
        yield
    except (UsageError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
