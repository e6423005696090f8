"""Messages without the folders of this machine."""

from __future__ import annotations

import re
import shlex
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
