"""Export a project's voice for other runtimes: python -m studio.export NAME TARGET …, after studio.train.

For each target this writes PROJECT/exports/TARGET/, as `python -m exports` does, and packs it as NAME_TARGET.zip beside it.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from common.errors import exit_on_user_error
from common.files import display_path
from common.inference.config import SynthesisConfig
from common.inference.voice_folder import read_voice_folder
from common.options import from_options
from exports.targets import TARGETS, ExportSource, check_packages, export, load_source, vocoders_for
from models import REGISTRY
from studio.arguments import project_parser
from studio.project import Project, pack, speaking_command


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of the command."""

    project: Project
    targets: list[str]


def main(argv: list[str] | None = None) -> None:
    """Write the exports, and print the path and the size of each file."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    project, targets = options.project, list(dict.fromkeys(options.targets))
    for target in targets:
        check_packages(target)
    folder = project.require(project.voice, "studio.train")
    found = read_voice_folder(folder, REGISTRY.values())

    @cache  # targets with the same vocoder share the conversions
    def load(*flags: str) -> ExportSource:
        return load_source(flags, found, SynthesisConfig(plain=True), folder)

    sources = [load(*vocoders_for(target)) for target in targets]
    for target, source in zip(targets, sources, strict=True):
        directory, path = project.exports / target, packed_export(project, target)
        export(target, source, directory)
        pack(directory, path, path.stem)
        print(f"{display_path(path)}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def packed_export(project: Project, target: str) -> Path:
    """Return the path of a packed export."""
    return project.exports / f"{project.name}_{target}.zip"


def parse_args(argv: list[str]) -> ExportOptions:
    parser = project_parser("studio.export", __doc__, "project with the voice to export")
    runtimes = f"runtimes to export for: {', '.join(TARGETS)}"
    parser.add_argument("targets", metavar="TARGET", nargs="+", choices=list(TARGETS), help=runtimes)
    return from_options(ExportOptions, vars(parser.parse_args(argv)))


class Download(NamedTuple):
    """A packed voice or export for download; `size` in bytes."""

    name: str
    path: Path
    size: int


def list_downloads(project: Project) -> list[Download]:
    """List the files for download, the packed voice first. Links are left out: they may lead out of the project."""
    packed = [] if project.exports.is_symlink() else sorted(project.exports.glob(packed_export(project, "*").name))
    found = []
    for path in (project.packed_voice, *packed):
        if path.is_file() and not path.is_symlink():
            found.append(Download(path.name, path, path.stat().st_size))
    return found


def find_download(project: Project, name: str) -> Download | None:
    """Return the file of this name, which is looked up, not used as a path; None if there is none."""
    return next((download for download in list_downloads(project) if download.name == name), None)


def describe_commands(project: Project) -> list[str]:
    """Return the command lines that pack, export and use a project's voice."""
    voice = shlex.quote(display_path(project.voice))
    shown = Project(name=project.name, projects=Path(display_path(project.projects)))
    return [
        shown.command("studio.share"),
        f"{shown.command('studio.export')} onnx",
        speaking_command(project),
        f"python -m serving --voices {voice}",
    ]


if __name__ == "__main__":
    with exit_on_user_error():
        main()
