"""Write docs/cli.md, what every command prints with --help: python -m scripts.write_cli_docs [--check].

--check writes nothing and fails if the file is out of date.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest import mock

from common.errors import DataError, exit_on_user_error
from common.files import write_text
from common.options import option, parse_options
from common.training.arguments import parse_training_arguments
from models import REGISTRY

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"
WIDTH = "120"  # columns of the page
HEAD = """# Command-line reference

This page has what every command prints with `--help`, a group of flags once; `make docs` writes it anew.

Unknown and abbreviated flags are errors. Flags that only the published recipe used are accepted without effect, with a note.
`train.py` can also read flags from a JSON file (`--config-file`, `{group: {flag: value}}`); the command line overrides the file.
"""
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
    "python -m exports": "exports.__main__",
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
    "python -m scripts.sharpen_vocoder": "scripts.sharpen_vocoder",
    "python -m benchmarks.latency": "benchmarks.latency",
    "python -m benchmarks.speed": "benchmarks.speed",
    "python -m benchmarks.load": "benchmarks.load",
    "python -m benchmarks.peers": "benchmarks.peers",
}


def parse_of(command: str) -> Callable[[list[str]], object]:
    """Return the function that parses a command's words."""
    module, *first = COMMANDS[command].split()
    parse = import_module(module).parse_args
    return lambda words: parse([*first, *words])


def parse_training(first: list[str], words: list[str]) -> object:
    """Parse train.py's words after the first ones."""
    return parse_training_arguments([*first, *words], REGISTRY, "")


def help_of(parse: Callable[[list[str]], object]) -> list[str]:
    """Return the paragraphs of what a command prints with --help, but for its usage; a group of flags is one of them."""
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS=WIDTH),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        parse(["--help"])
    usage, *paragraphs = printed.getvalue().strip().split("\n\n")
    assert usage.startswith("usage:")
    return paragraphs


def section(name: str, paragraphs: list[str], written: set[str]) -> Iterator[str]:
    """Yield the lines of a command. A group that an earlier command has, perhaps in other columns, is named alone."""
    new, above = [], []
    for paragraph in paragraphs:
        title, words = paragraph.partition("\n")[0], " ".join(paragraph.split())
        if title.endswith(":") and title != "options:" and words in written:
            above.append(title.removesuffix(":"))
        else:
            new.append(paragraph)
        written.add(words)
    yield f"## {name}\n"
    yield "```text\n" + "\n\n".join(new) + "\n```\n"
    if above:
        yield f"As above: {', '.join(above)}.\n"


def page() -> str:
    """Return the text of the page."""
    written: set[str] = set()
    shared = help_of(partial(parse_training, []))
    lines = [HEAD, *section("train.py", shared, written)]
    titles = {paragraph.partition("\n")[0] for paragraph in shared}
    for name in REGISTRY:  # the groups that all models share stand above, with the defaults of each
        own = help_of(partial(parse_training, ["-m", name]))
        own = [paragraph for paragraph in own if paragraph.partition("\n")[0] not in titles]
        lines += section(f"train.py -m {name}", own, written)
    for command in COMMANDS:
        lines += section(command, help_of(parse_of(command)), written)
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


@dataclass(frozen=True, kw_only=True)
class DocsOptions:
    """The command's flag."""

    check: bool = option(False, "write nothing; fail if the page is out of date")


def main(argv: list[str] | None = None) -> None:
    """Write the page, or compare it with the existing one."""
    args = parse_options(DocsOptions, "python -m scripts.write_cli_docs", __doc__, argv)
    text = page()
    if args.check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            raise DataError(f"{PAGE}: out of date; `make docs` regenerates it")
        return
    write_text(PAGE, text)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
