"""Tables of options: each flag of a command has a row, and what the row names must change when the flag is given."""

import contextlib
import io
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any


def flags_of(parse: Callable[[list[str]], object]) -> set[str]:
    """The long flags that a command lists with --help, without --help itself."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse(["--help"])
    return set(re.findall(r"^  (?:-\w+, )*(--[\w-]+)", printed.getvalue(), re.MULTILINE)) - {"--help"}


def flag_in(words: str, flags: Collection[str]) -> str:
    """The flag that a row's words begin with; --no-x is --x where the help lists that first."""
    flag = words.split()[0]
    return flag if flag in flags else flag.replace("--no-", "--")


def unmatched(parse: Callable[[list[str]], object], *tables: Collection[str]) -> set[str]:
    """Flags of a command that begin no row, and flags that begin a row but are gone."""
    found = flags_of(parse)
    return found ^ {flag_in(words, found) for table in tables for words in table}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Names of what differs between two observations, in order."""
    return " ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
