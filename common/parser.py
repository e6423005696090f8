"""The class of every parser. It imports no PyTorch, for commands that need none."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from common.errors import printable

SWITCHED = {"True": True, "true": True, "False": False, "false": False}


class Parser(argparse.ArgumentParser):
    """The parser of every command.

    Its errors spell the control characters of the words that it refuses. Switches also take a value, `--mask-padding True`, which
    is how the published recipe wrote some.
    """

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with code 2."""
        super().error(printable(message))

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as argparse does."""
        argv = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args([*self._bare_switches(argv)], namespace)

    def _bare_switches(self, argv: list[str]) -> Iterator[str]:
        """Yield a command line in which each switch with a value is the switch alone, its negation, or left out."""
        place = 0
        while place < len(argv):
            word, place = argv[place], place + 1
            if word == "--":
                yield from argv[place - 1 :]
                return
            flag, equals, value = word.partition("=")
            action = self._option_string_actions.get(flag)
            if action is None or action.nargs != 0 or not isinstance(action.default, (bool, type(None))):
                yield word
                continue
            if not equals and place < len(argv) and argv[place] in SWITCHED:
                value, place = argv[place], place + 1
            if value not in SWITCHED:
                yield word
            elif SWITCHED[value]:
                yield flag
            elif (negation := f"--no-{flag.removeprefix('--')}") in action.option_strings:
                yield negation
