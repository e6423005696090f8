"""Export the voice of a project for other runtimes: python -m studio.export NAME TARGET …, after studio.train.

For each target, writes PROJECT/exports/TARGET/ as `python -m exports TARGET` does, and PROJECT/exports/NAME_TARGET.zip with it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from common.arguments import HelpFormatter
from common.errors import DataError, exit_on_user_error
from common.files import display_path
from common.inference.arguments import vocoder_flags
from common.inference.config import SynthesisConfig
from common.inference.voice_folder import read_voice_folder
from common.parser import Parser
from exports.targets import TARGETS, Source, check_packages, export
from models import REGISTRY
from studio.project import PROJECTS, Project
from studio.share import pack
from synthesizer import Synthesizer, choose_checkpoints


def main(argv: list[str] | None = None) -> None:
    """Write the exports, and print the path and the size of each file."""
    args = parse_args(sys.argv[1:] if argv is None else argv)
    project = Project(name=args.name, projects=args.projects)
    targets = list(dict.fromkeys(args.targets))
    for target in targets:
        check_packages(target)
    source = load_source(project)
    for target in targets:
        folder, path = exports_folder(project) / target, packed_export(project, target)
        export(target, source, folder)
        pack(folder, path, path.stem)
        print(f"{display_path(path)}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def load_source(project: Project) -> Source:
    """Load the plain models of a project's voice on the CPU. Raises DataError where it has no vocoder model."""
    folder = project.require(project.voice, "studio.train")
    found = read_voice_folder(folder, REGISTRY.values())
    vocoders = vocoder_flags(REGISTRY.values())
    own = next((flag for flag in vocoders if flag in found), None)
    if own is None:
        raise DataError(f"{folder}: no {' or '.join(vocoders)} in it, and an export contains a vocoder model")
    choice = choose_checkpoints(found, own)
    voice = Synthesizer.from_choice(choice, config=SynthesisConfig(plain=True), device="cpu")
    assert voice.vocoding is not None
    return Source(voice, voice.acoustic.model, voice.vocoding.model)


def exports_folder(project: Project) -> Path:
    """Return the folder of a project's exports."""
    return project.root / "exports"


def packed_export(project: Project, target: str) -> Path:
    """Return the path of a packed export."""
    return exports_folder(project) / f"{project.name}_{target}.zip"


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m studio.export", description=__doc__, allow_abbrev=False, formatter_class=HelpFormatter
    )
    add = parser.add_argument
    add("name", metavar="NAME", help="the project whose voice is exported")
    add("targets", metavar="TARGET", nargs="+", choices=list(TARGETS), help=f"the runtimes: {', '.join(TARGETS)}")
    add("--projects", type=Path, default=PROJECTS, metavar="DIR", help="the folder of all projects")
    return parser.parse_args(argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
