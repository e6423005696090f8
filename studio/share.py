"""Pack a project's voice into one file: python -m studio.share NAME, after studio.train.

Writes PROJECT/NAME.zip with the checkpoints, config.json, the card and the samples. Unpacked, it is a folder for --voice.
"""

from __future__ import annotations

import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from common.errors import DataError, exit_on_user_error
from common.files import atomic_write, display_path
from common.inference.voice_folder import read_voice_folder
from common.options import add_fields, from_options, option
from models import REGISTRY
from studio.arguments import project_parser
from studio.project import Project

EARLIEST = (1980, 1, 1, 0, 0, 0)  # date of every file, so that equal voices make equal zip files
MODE = 0o644 << 16


@dataclass(frozen=True, kw_only=True)
class ShareOptions:
    """Options of the command."""

    project: Project
    output: Path | None = option(None, "file to write (default: PROJECT/NAME.zip)", "-o", metavar="PATH")


def main(argv: list[str] | None = None) -> None:
    """Write the file, and print its path and size."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    project = options.project
    project.require(project.voice, "studio.train")
    read_voice_folder(project.voice, REGISTRY.values())
    path = options.output or packed_voice(project)
    pack(project.voice, path, project.name)
    print(f"{display_path(path)}: {path.stat().st_size / 1e6:.1f} MB; unpack it and pass the folder to --voice")


def packed_voice(project: Project) -> Path:
    """Return the path of the packed voice."""
    return project.root / f"{project.name}.zip"


def pack(folder: Path, path: Path, name: str) -> None:
    """Zip the files of a folder, without hidden ones, under NAME/. Raises DataError if the file cannot be written."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    try:
        with atomic_write(path) as target, zipfile.ZipFile(target, "w") as archive:
            for file in files:
                entry = zipfile.ZipInfo(f"{name}/{file.relative_to(folder).as_posix()}", EARLIEST)
                entry.external_attr, entry.compress_type = MODE, zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None


def parse_args(argv: list[str]) -> ShareOptions:
    """Parse the command's flags."""
    parser = project_parser("studio.share", __doc__, "project with the voice to pack")
    add_fields(parser, ShareOptions)
    return from_options(ShareOptions, vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
