"""What the page says: tables, and messages without the folders of this machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path

from common.errors import printable
from studio.project import ROOT

ABSOLUTE = re.compile(r"(?<![\w.:/<])/(?:[^\s/:;,'\"()]+/)*(?=[^\s/:;,'\"()])")  # the folders of an absolute path


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
