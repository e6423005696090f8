"""Write docs/cli.md, the flags of every command, from their parsers: python -m scripts.write_cli_docs [--check].

--check writes nothing and fails if the file is out of date.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from common.errors import DataError, exit_on_user_error
from common.files import write_text
from common.parser import Parser, help_text, shown_flags
from common.training.arguments import parse_training_arguments
from models import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"
HEAD = """# Command-line reference

This page is generated from the parsers; `make docs` regenerates it.

Unknown and abbreviated flags are errors. Flags that only the published recipe used are accepted without effect, with a note.
`train.py` can also read flags from a JSON file (`--config-file`, `{group: {flag: value}}`); the command line overrides the file.
"""
# Defaults that depend on the machine that writes the page.
MACHINE_DEFAULTS = {"num_workers": "one per core", "threads": "as many as PyTorch chooses"}
# argparse type -> name of its value
KINDS = {**dict.fromkeys(("int", "positive", "batch_size", "seed"), "N"), "float": "X", "Path": "PATH"}
ARGPARSE_GROUPS = ("options", "positional arguments")
# Command -> the module whose parse_args it calls, and the words that come first.
COMMANDS = {
    "inference.py": "inference",
    "evaluate.py": "evaluate",
    "python -m serving": "serving.config",
    "python -m studio": "studio.arguments",
    "python -m studio.plan": "studio.plan.__main__",
    "python -m studio.train": "studio.train.__main__",
    "python -m studio.share": "studio.share",
    "python -m studio.export": "studio.export",
    "python -m exports TARGET": "exports.__main__ onnx",
    "python -m exports run": "exports.__main__ run",
    "python -m exports.triton_client": "exports.triton_client",
    "python -m serving.conversation": "serving.conversation",
    "bash scripts/prepare_dataset.sh --dataset": "scripts.prepare_recordings",
    "python -m studio.prepare": "studio.prepare.arguments",
    "python -m common.data.mels": "common.data.mels",
    "python -m scripts.dataset_report": "scripts.dataset_report",
    "python -m common.checkpoint inspect": "common.checkpoint.__main__ inspect",
    "python -m common.checkpoint convert": "common.checkpoint.__main__ convert",
    "python -m scripts.predict_mels": "scripts.predict_mels",
    "python -m scripts.sharpen_mels": "scripts.sharpen_mels",
    "python -m benchmarks.latency": "benchmarks.latency",
    "python -m benchmarks.speed": "benchmarks.speed",
    "python -m benchmarks.load": "benchmarks.load",
}


class Flag(NamedTuple):
    """One row of a table."""

    names: str
    default: str
    meaning: str


Tables = dict[str, dict[str, Flag]]  # group's title -> destination -> flag


def capture_parser(parse: Callable[[list[str]], object]) -> argparse.ArgumentParser:
    """The parser that answers --help in parse(["--help"])."""
    parsers: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser, file: object = None) -> None:
        parsers.append(parser)

    with mock.patch.object(argparse.ArgumentParser, "print_help", keep), contextlib.suppress(SystemExit):
        parse(["--help"])
    (parser,) = parsers
    return parser


def parse_of(command: str) -> Callable[[list[str]], object]:
    """Return the function that parses a command's words."""
    module, *first = COMMANDS[command].split()
    parse = import_module(module).parse_args
    return lambda words: parse([*first, *words])


def tables_of(parser: argparse.ArgumentParser) -> Tables:
    """Collect a parser's flags, group by group; -h and flags without help are left out."""
    return {
        group.title or "": {action.dest: describe(parser, action) for action in actions}
        for group in parser._action_groups
        if (actions := [a for a in group._group_actions if a.help != argparse.SUPPRESS and a.dest != "help"])
    }


def describe(parser: argparse.ArgumentParser, action: argparse.Action) -> Flag:
    """The table row of a flag; the default moves from the help text into its own column."""
    if action.dest in MACHINE_DEFAULTS and isinstance(action.default, int):
        action.default = MACHINE_DEFAULTS[action.dest]
    action.help = help_text(action)
    text = argparse.HelpFormatter(parser.prog)._expand_help(action)
    default = show(action.default)
    if written := re.search(r"\s*\(default: ((?:[^()]|\([^()]*\))*)\)", text):
        default = written[1]
        text = text.replace(written[0], "")
    names = ", ".join(f"`{name}`" for name in sorted(shown_flags(action), key=len))
    value = values_of(action)
    return Flag((names or f"`{action.metavar or action.dest}`") + (f" {value}" if value else ""), default, text)


def show(default: object) -> str:
    """A default as on a command line; empty if there is none."""
    if default is None or default is False or default in ("", [], argparse.SUPPRESS):
        return ""
    if isinstance(default, (list, tuple)):
        return " ".join(map(str, default))
    return "on" if default is True else str(default).replace(f"{ROOT}/", "")


def values_of(action: argparse.Action) -> str:
    """The values of a flag: its choices, or a placeholder; empty for a switch or a positional."""
    if action.nargs == 0 or not action.option_strings or isinstance(action, argparse.BooleanOptionalAction):
        return ""
    if action.choices is not None:
        return f"{{{', '.join(map(str, action.choices))}}}"
    name = action.metavar or KINDS.get(getattr(action.type, "__name__", ""), "VALUE")
    name = name if isinstance(name, str) else " ".join(name)
    return f"{name} …" if action.nargs in ("+", "*") else name


def lines_of(tables: Tables, written: dict[str, dict[str, Flag]]) -> Iterator[str]:
    """Markdown tables, each below its title; a table that an earlier command already has becomes a link.

    Adds the new tables to `written`.
    """
    links = [title for title, flags in tables.items() if title not in ARGPARSE_GROUPS and written.get(title) == flags]
    rows = [flag for title in ARGPARSE_GROUPS[::-1] for flag in tables.get(title, {}).values()]
    yield from table_of(rows)
    for title, flags in tables.items():
        if title not in ARGPARSE_GROUPS and title not in links:
            written.setdefault(title, flags)
            yield f"### {heading(title)}\n"
            yield from table_of(flags.values())
    if links:
        yield "As above: " + ", ".join(f"[{heading(title)}](#{anchor(title)})" for title in links) + ".\n"


def table_of(flags: Iterable[Flag]) -> Iterator[str]:
    yield "| flag | default | meaning |\n|---|---|---|"
    for flag in flags:
        yield "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in flag) + " |"
    yield ""


def heading(title: str) -> str:
    return title[:1].upper() + title[1:]


def anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")


def training_tables() -> Tables:
    """train.py's tables: those that all models share, with the defaults of each, then the models' own."""
    tables = tables_of(capture_parser(lambda words: parse_training_arguments(words, REGISTRY, "")))
    for name in REGISTRY:
        parse = partial(lambda name, words: parse_training_arguments(["-m", name, *words], REGISTRY, ""), name)
        own = tables_of(capture_parser(parse))
        tables |= {title: flags for title, flags in own.items() if title not in tables}
    return tables


def page() -> str:
    lines = [HEAD, "## train.py\n"]
    written: dict[str, dict[str, Flag]] = {}
    lines += lines_of(training_tables(), written)
    for command in COMMANDS:
        lines += [f"## {command}\n", *lines_of(tables_of(capture_parser(parse_of(command))), written)]
    lines += ["## Shell scripts\n", "| script | purpose |\n|---|---|"]
    for path in (path for pattern in ("scripts/*.sh", "scripts/*/*.sh", "*.sh") for path in sorted(ROOT.glob(pattern))):
        if purpose := purpose_of(path):
            lines.append(f"| `{path.relative_to(ROOT)}` | {purpose} |")
    return "\n".join(lines).rstrip() + "\n"


def purpose_of(script: Path) -> str:
    """The first line of a script's head comment; empty for a file that other scripts source."""
    lines = script.read_text(encoding="utf-8").splitlines()
    if len(lines) < 2 or not lines[0].startswith("#!") or not lines[1].startswith("# "):
        return ""
    return lines[1].removeprefix("# ").replace("|", r"\|")


def main(argv: list[str] | None = None) -> None:
    """Write the page, or compare it with the existing one."""
    parser = Parser(prog="python -m scripts.write_cli_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    args = parser.parse_args(argv)
    text = page()
    if args.check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            raise DataError(f"{PAGE}: out of date; `make docs` regenerates it")
        return
    write_text(PAGE, text)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
