"""Parts of every parser: help with defaults, JSON config files, retired flags, the flags of audio."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.audio.stft import MAX_RATE, AudioConfig
from common.errors import DataError, UsageError
from common.files import parse_json, read_content
from common.options import ABOVE_ZERO, AT_LEAST_ONE, Check, add_fields, flag_of
from common.parser import Parser

if TYPE_CHECKING:
    from common.spec import ModelSpec

LARGEST_SEED = 2**32 - 1
TRUTH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
DETERMINISTIC_HELP = (
    "bit-identical results for equal seeds on one machine with the same versions: on a GPU through slower algorithms that add in a "
    "fixed order, on a CPU through a fixed number of threads"
)
INT8_HELP = (
    "on an x86 CPU, multiply in 8 bits in the vocoder (with VNNI instructions) and read the acoustic model's large weights in "
    "float16, as with --fp16: faster for few texts at once, less exact"
)
PLAIN_HELP = "plain PyTorch steps in place of the fast ways: slower, for comparison"


class IgnoreFlag(argparse.Action):
    """Accept a flag without effect, and print a note once."""

    def __call__(self, parser, namespace, values, option_string=None):
        printed = parser.__dict__.setdefault("retired_flags_said", set())
        if option_string not in printed:
            print(f"note: {option_string} has no effect here; it can be left out")
            printed.add(option_string)


def actions_of(*adders: Callable[[argparse.ArgumentParser], None]) -> list[argparse.Action]:
    """Return the flags that functions add to a parser."""
    parser = Parser(add_help=False)
    for add_arguments in adders:
        add_arguments(parser)
    return parser._actions


def copy_arguments(
    parser: argparse.ArgumentParser, names: Iterable[str], *adders: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Add those flags of functions that add arguments whose options have these names."""
    chosen = set(names)
    for action in actions_of(*adders):
        if action.dest in chosen:
            parser._add_action(action)


def words_for(flag: str, value: Any, has_negation: bool = True) -> list[str]:
    """Turn a flag's value into arguments: true is the bare flag, false its --no- form, None nothing, and a list several values."""
    if value is None or (value is False and not has_negation):
        return []
    if isinstance(value, bool):
        return [flag if value else _negation(flag)]
    return [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]


def _negation(flag: str) -> str:
    return f"--no-{flag.removeprefix('--')}"


def option_argv(options: Mapping[str, Any]) -> list[str]:
    """Turn options by name into arguments; an empty list counts as none."""
    return [word for name, value in options.items() if value != [] for word in words_for(flag_of(name), value)]


def add_retired_arguments(parser: argparse.ArgumentParser, flags: Iterable[str]) -> None:
    """Accept, without effect, those flags that the parser does not define."""
    known = {flag for action in parser._actions for flag in action.option_strings}
    for flag in flags:
        if flag not in known:
            parser.add_argument(flag, action=IgnoreFlag, nargs="*", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_audio_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of AudioConfig."""
    add_fields(parser.add_argument_group("audio"), AudioConfig)


def model_options(specs: Iterable[ModelSpec]) -> dict[str, Any]:
    """Return the defaults of the flags of audio and of models by name."""
    adders = [add_audio_arguments, *(spec.add_arguments for spec in specs)]
    return {action.dest: action.default for action in actions_of(*adders)}


def model_flags(specs: Iterable[ModelSpec]) -> dict[str, str]:
    """Return those flags by the names of their options."""
    return {
        action.dest: action.option_strings[-1]
        for action in actions_of(add_audio_arguments, *(s.add_arguments for s in specs))
    }


def log_path(output: Path, log_file: str) -> Path:
    """Return the file that --log-file names: inside --output, unless it already begins with --output or is absolute.

    Raises UsageError for a path that leaves --output by `..`.
    """
    path = Path(log_file)
    inner = path.relative_to(output) if path.is_relative_to(output) else path
    if ".." in inner.parts:
        raise UsageError(
            f"--log-file: {log_file}: leaves --output {output}; expected a name inside it, or a whole path"
        )
    return output / inner  # `/` drops output if the path is absolute


def file_suffix(text: str) -> str:
    """An argparse type: the end of a file name, without a folder."""
    if {"/", "\0", os.sep} & set(text):
        raise argparse.ArgumentTypeError(f"{text!r}, expected a part of a file name, without '/'")
    return text


def utf8(text: str) -> str:
    """An argparse type: a text without bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected UTF-8") from None
    return text


def checked(kind: Callable[[str], Any], check: Check, name: str) -> Callable[[str], Any]:
    """Make an argparse type of a kind of number and a check; argparse's own message about another text has its name."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not check.holds(value):
            raise argparse.ArgumentTypeError(f"{text}, expected {check.expected}")
        return value

    parse.__name__ = name
    return parse


positive = checked(int, AT_LEAST_ONE, "positive")
batch_size = checked(int, Check(lambda size: size >= 0, "at least 0"), "batch_size")  # 0: all in one batch
seed = checked(int, Check(lambda value: 0 <= value <= LARGEST_SEED, "0 to 2^32 - 1"), "seed")
share_or_number = checked(
    float,
    Check(lambda x: 0 < x < 1 or (x >= 1 and x.is_integer()), "a share between 0 and 1, or a number of clips"),
    "share_or_number",
)
seconds = checked(float, ABOVE_ZERO._replace(expected="more than 0 seconds"), "seconds")
sampling_rate = checked(int, Check(lambda rate: 1 <= rate <= MAX_RATE, f"1 to {MAX_RATE} Hz"), "sampling_rate")


def config_file_argv(path: Path, parser: argparse.ArgumentParser, others: Collection[str] = ()) -> list[str]:
    """Convert a JSON file of {group: {flag: value}} to command-line arguments, but for the groups in `others`.

    Raises UsageError that names the file and each entry that the parser refuses.
    """
    try:
        groups = parse_json(read_content(path))
    except OSError as error:
        raise UsageError(f"--config-file: {path}: cannot be read ({error.strerror})") from None
    except DataError as error:  # a device
        raise UsageError(f"--config-file: {error}") from None
    except ValueError as error:
        raise UsageError(f"--config-file: {path}: not JSON ({error})") from None
    argv, problems = groups_argv(groups, parser, others)
    if problems:
        raise UsageError("\n".join(f"--config-file: {path}: {problem}" for problem in problems))
    return argv


def groups_argv(
    groups: Any, parser: argparse.ArgumentParser, others: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Convert {group: {flag: value}} to command-line arguments, but for the groups in `others`. Returns them and what is wrong.

    true is the bare flag; false is --no-FLAG if the parser has it, else nothing, like null; a list is several values.
    """
    if not isinstance(groups, dict) or not all(isinstance(flags, dict) for flags in groups.values()):
        return [], ["expected {group: {flag: value}}"]
    argv: list[str] = []
    problems = []
    for group, flags in groups.items():
        for name, value in flags.items() if group not in others else ():
            flag = "--" + name.lstrip("-").replace("_", "-")
            if any("\0" in argument for argument in _arguments(parser, flag, value)):
                problems.append(f"{group}.{name}: a NUL character in its value")
            elif problem := _refusal(parser, flag, value):
                problems.append(f"{group}.{name}: {problem}")
            argv += _arguments(parser, flag, value)
    return argv, problems


def _arguments(parser: argparse.ArgumentParser, flag: str, value: Any) -> list[str]:
    return words_for(flag, value, _negation(flag) in parser._option_string_actions)


def _refusal(parser: argparse.ArgumentParser, flag: str, value: Any) -> str | None:
    """Return the parser's error for a flag and its value, or None if it accepts them."""
    if not any(flag in action.option_strings for action in parser._actions):
        return f"no such flag, {flag}"
    if isinstance(parser._option_string_actions[flag], argparse._HelpAction):
        return f"{flag} shows the help and ends the run, expected a setting"
    problem, rest = _try(parser, _arguments(parser, flag, value))
    return problem or (f"{flag} takes no value, but true or false: {' '.join(rest)}" if rest else None)


def _words_of(
    parser: argparse.ArgumentParser, action: argparse.Action, flag: str, text: str
) -> tuple[list[str], str | None]:
    """Return the arguments that a variable's text stands for, and the parser's error, if any."""
    if action.nargs == 0 and text.lower() not in TRUTH:
        return [], f"expected {' or '.join(TRUTH)}"
    if action.nargs == 0:
        words = _arguments(parser, flag, TRUTH[text.lower()])
    else:
        values = re.split(r"[,\s]+", text) if isinstance(action, argparse._AppendAction) else [text]
        words = [f"{flag}={value}" for value in values if value]
    return words, _try(parser, words)[0]


def _try(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the parser's error for arguments, if any, and those that it does not know."""
    parser.exit_on_error = False
    try:
        return None, parser.parse_known_args(argv)[1]
    except argparse.ArgumentError as error:
        return error.message, []
    finally:
        parser.exit_on_error = True


def environment_argv(
    parser: argparse.ArgumentParser, prefix: str, environment: Mapping[str, str], given: Collection[str] = ()
) -> list[str]:
    """Convert variables such as PREFIX_PORT=8000 to command-line arguments, except for the options in `given`.

    A flag without a value takes true or false, a repeated one its values with commas between them; an empty variable counts as
    none. Raises UsageError that names each variable that the parser refuses.
    """
    argv: list[str] = []
    problems = []
    for action in parser._actions:
        flag = next((name for name in action.option_strings if name.startswith("--")), "")
        name = prefix + flag.removeprefix("--").replace("-", "_").upper()
        text = environment.get(name, "")
        # Kubernetes gives each pod NAME_PORT=tcp://… for a service of that name.
        if not text.strip() or not flag or action.dest in (*given, "help") or text.startswith("tcp://"):
            continue
        words, problem = _words_of(parser, action, flag, text.strip())
        problems += [f"{name}: {text!r}: {problem}"] if problem else []
        argv += words
    if problems:
        raise UsageError("\n".join(problems))
    return argv


def given_options(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    """Return only the options that the command line names, without defaults."""
    unset = object()
    # A repeated flag appends to what it finds, and begins a list where that is None.
    repeated = {action.dest: None for action in parser._actions if isinstance(action, argparse._AppendAction)}
    blank = argparse.Namespace(**{action.dest: unset for action in parser._actions} | repeated)
    return {
        name: value
        for name, value in vars(parser.parse_args(argv, blank)).items()
        if value is not repeated.get(name, unset)
    }
