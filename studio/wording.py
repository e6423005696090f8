"""What people write into the page's fields, and what it says: numbers, tables, and messages without the folders of this machine."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from common.errors import UsageError, printable
from studio.project import ROOT

ABSOLUTE = re.compile(r"(?<![\w.:/<])/(?:[^\s/:;,'\"()]+/)*(?=[^\s/:;,'\"()])")  # the folders of an absolute path


def parse_number(text: str | None, name: str, kind: Callable[[str], Any], expected: str) -> Any:
    """Return the number in a field, or None if it is empty. Raises UsageError for other text, and where `kind` makes it NaN."""
    if not (text := (text or "").strip()):
        return None
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if value != value:
        raise UsageError(f"{name}: {text!r}, expected {expected}, or nothing")
    return value


def without_folders(message: str, projects: Path) -> str:
    """Shorten a message for the page: paths start at the folder of projects, or lose their folders. Escapes control characters."""
    message = message.replace(f" --projects {shlex.quote(str(projects))}", "")  # of commands in messages
    for folder in (projects, projects.absolute(), projects.resolve(), ROOT):
        message = message.replace(f"{folder}/", "")
    return printable(ABSOLUTE.sub("", message))


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as an HTML table, the first cell of each its heading: Gradio's would hide the last columns on a phone."""
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    cells = [[escape(cell) for cell in row] for row in rows]
    lines = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
