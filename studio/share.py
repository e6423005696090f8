"""Pack a project's voice into one file: python -m studio.share NAME, after studio.train.

Writes PROJECT/NAME.zip with the checkpoints, config.json, the card and the samples. Unpacked, it is a folder for --voice.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import sys
from dataclasses import dataclass
from pathlib import Path

from common.checkpoint.files import load_checkpoint
from common.errors import exit_on_user_error
from common.files import display_path
from common.inference.voice_folder import default_vocoder, read_voice_folder
from common.options import add_fields, from_options, option
from models import REGISTRY
from studio.arguments import project_parser
from studio.project import Project, pack


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
    for checkpoint in read_voice_folder(project.voice, REGISTRY.values()).values():
        load_checkpoint(checkpoint)
    default_vocoder(project.voice, REGISTRY.values())
    path = options.output or project.packed_voice
    pack(project.voice, path, project.name)
    print(f"{display_path(path)}: {path.stat().st_size / 1e6:.1f} MB; unpack it and pass the folder to --voice")


def parse_args(argv: list[str]) -> ShareOptions:
    parser = project_parser("studio.share", __doc__, "project with the voice to pack")
    add_fields(parser, ShareOptions)
    return from_options(ShareOptions, vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
