"""Files of a project for download: the packed voice and the packed exports. A name is looked up among them, so it is no path."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from common.files import display_path
from studio.export import exports_folder, packed_export
from studio.project import Project
from studio.share import packed_voice


class Download(NamedTuple):
    """A file for download: its name, its path, its size in bytes, and seconds since 1970 of its writing."""

    name: str
    path: Path
    size: int
    written: float


def list_downloads(project: Project) -> list[Download]:
    """List the files that are there, the packed voice first. Links are left out: they may lead out of the project."""
    exports = exports_folder(project)
    packed = [] if exports.is_symlink() else sorted(exports.glob(packed_export(project, "*").name))
    found = []
    for path in (packed_voice(project), *packed):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            found.append(Download(path.name, path, status.st_size, status.st_mtime))
    return found


def find_download(project: Project, name: str) -> Download | None:
    """Return the file of a name; None where there is none."""
    return next((download for download in list_downloads(project) if download.name == name), None)


def describe_commands(project: Project) -> list[str]:
    """Return the command lines that pack, export and use the voice of a project."""
    voice = shlex.quote(display_path(project.voice))
    shown = Project(name=project.name, projects=Path(display_path(project.projects)))
    return [
        shown.command("studio.share"),
        f"{shown.command('studio.export')} onnx",
        f"python inference.py --voice {voice} -i phrases/phrase.txt",
        f"python -m serving --voices {voice}",
    ]
