"""Errors in the words of the page: without the folders of this machine."""

from __future__ import annotations

import re
from pathlib import Path

from common.errors import printable
from studio.machine import ROOT

ABSOLUTE = re.compile(r"(?<![\w.:/<])/(?:[^\s/:;,'\"()]+/)*(?=[^\s/:;,'\"()])")  # the folders of an absolute path


def without_folders(message: str, projects: Path) -> str:
    """Name files relative to the folder of the projects, and others without their folders; spell control characters."""
    for folder in (projects, projects.absolute(), projects.resolve(), ROOT):
        message = message.replace(f"{folder}/", "")
    return printable(ABSOLUTE.sub("", message))
