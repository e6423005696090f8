"""The class of every parser. It imports no PyTorch, for commands that need none."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from common.errors import printable
from common.files import display_path

COMMAND = re.compile(r"\s|$|python |bash |\.venv/")  # begins a line of a description that stays as it is
CLOSE = 0.82  # of difflib's ratio: a slip of the keyboard, not another flag
UNKNOWN = "unrecognized arguments: "
SWITCHED = {"True": True, "true": True, "False": False, "false": False}
# Name of an argument's type -> the word for its value in the help.
KINDS = {**dict.fromkeys(("int", "positive", "batch_size", "seed"), "N"), "float": "X", "Path": "PATH"}
KINDS |= {"sampling_rate": "HZ", "seconds": "S"}


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Appends defaults, except None, False, empty ones and those that the help names; fills paragraphs, but keeps commands."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        has_own = "(default:" in (action.help or "")
        if has_own or action.default is None or action.default is False or action.default in ([], ""):
            # Python 3.10's BooleanOptionalAction appends a default of its own
            return action.help and action.help.removesuffix(" (default: %(default)s)")
        if isinstance(
            action.default, Path
        ):  # before the line is broken: the page of all flags is the same in any folder
            shown = display_path(action.default).replace("%", "%%")
            return f"{action.help} (default: {shown})"
        return super()._get_help_string(action)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        shown = copy(action)
        if shown.metavar is None and shown.choices is None:
            shown.metavar = KINDS.get(getattr(action.type, "__name__", ""), "VALUE")
        # without the negation of a negative flag, which works but is hard to read
        flags = [flag for flag in action.option_strings if not (flag.startswith("--no-") and "-no-" in flag[4:])]
        values = [] if action.nargs == 0 else [self._format_args(shown, "")]
        return " ".join([", ".join(flags), *values])  # the value once, as Python has it from 3.13 on

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # flags stay whole

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for is_command, group in groupby(text.strip().splitlines(), lambda line: bool(COMMAND.match(line))):
            block = list(group)
            lines += block if is_command else textwrap.wrap(" ".join(block), width)
        return "\n".join(indent + line for line in lines)


class Parser(argparse.ArgumentParser):
    """The parser of every command: HelpFormatter, no abbreviations.

    Its errors suggest a flag for an unknown one, and spell the control characters of the words that they refuse. Switches also take
    a value, `--mask-padding True`, which is how the published recipe wrote some.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        ours: dict[str, Any] = {"formatter_class": HelpFormatter, "allow_abbrev": False}
        super().__init__(*args, **ours | settings)
        self._given: list[str] = []  # the words of the command line

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, with the flags that were probably meant, and exit with code 2."""
        words = message.removeprefix(UNKNOWN).split() if message.startswith(UNKNOWN) else []
        if message.endswith("required") or "are required" in message:  # perhaps the flag is there, but misspelled
            words = [word for word in self._given if word.partition("=")[0] not in self._option_string_actions]
        meant = [self.suggest(word) for word in words if word.startswith("--")]
        hint = f"; did you mean {', '.join(filter(None, meant))}?" if any(meant) else ""
        super().error(printable(message + hint))

    def suggest(self, word: str) -> str:
        """The flag closest to an unknown word, or one that begins with it; "" if none is close."""
        actions, name = [*self._actions], word.partition("=")[0]
        for action in self._actions:  # a subcommand's unknown words are this parser's error
            if isinstance(action, argparse._SubParsersAction):
                actions += [inner for command in action.choices.values() for inner in command._actions]
        flags = [
            flag
            for action in actions
            if action.help != argparse.SUPPRESS
            for flag in action.option_strings
            if flag[:2] == "--"
        ]
        begun = [name[1:]] if name[1:] in self._option_string_actions else []  # --bs for -bs
        begun += [flag for flag in flags if flag.startswith(name)]
        close = difflib.get_close_matches(name[2:], [flag[2:] for flag in flags], 1, CLOSE)
        return next(iter(begun or ["--" + flag for flag in close]), "")

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as argparse does."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args([*self._bare_switches(self._given)], namespace)

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
