"""The files of a project: one folder for everything that becomes of a set of recordings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from common.errors import DataError, UsageError

PROJECTS = Path("output/studio")  # the default of --projects
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # of a folder, and a part of file names


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project by its name; `studio.prepare` creates it, and the steps after it read it.

    Raises UsageError for a name that no folder may have.
    """

    name: str
    projects: Path = PROJECTS

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"project {self.name!r}: expected at most 64 Latin letters, digits, - and _, the first a letter or digit"
            )

    @property
    def root(self) -> Path:
        """The folder of the project."""
        return self.projects / self.name

    @property
    def settings(self) -> Path:
        """The settings of `studio.prepare`, JSON: the folder of the recordings, the rate, the limits of clips."""
        return self.root / "project.json"

    @property
    def clips(self) -> Path:
        """The folder of the clips: clips/NAME.wav, mono, 16 bits, at the rate of the models."""
        return self.root / "clips"

    @property
    def review(self) -> Path:
        """The clips with their texts and their faults, a row each, for people to edit."""
        return self.root / "clips.tsv"

    @property
    def state(self) -> Path:
        """The folder of finished work, which lets an interrupted `studio.prepare` go on."""
        return self.root / "state"

    @property
    def symbols(self) -> Path:
        """The alphabet of the texts, `--symbols-file` of train.py, where they need another one than English."""
        return self.root / "symbols.txt"

    @property
    def training_list(self) -> Path:
        """The filelist of training: rows path|text, the path relative to `root`."""
        return self.root / "filelists" / "train.txt"

    @property
    def validation_list(self) -> Path:
        """The filelist of validation."""
        return self.root / "filelists" / "val.txt"

    @property
    def plan(self) -> Path:
        """The settings of training that `studio.plan` has proposed, JSON."""
        return self.root / "plan.json"

    def run(self, model: str) -> Path:
        """The folder of the checkpoints of a model, `-o` of train.py."""
        return self.root / "runs" / model.lower()

    @property
    def voice(self) -> Path:
        """The folder of the complete voice: checkpoints, config, card, samples."""
        return self.root / "voice"

    def require(self, path: Path, command: str) -> Path:
        """Return a file or folder of the project. Raises DataError, with the command that writes it, where it is missing."""
        if not path.exists():
            raise DataError(f"{path}: no such file; run python -m {command} {self.name} first")
        return path


def list_projects(projects: Path) -> list[str]:
    """List the names of the projects in a folder, in alphabetical order. Links are left out: they may lead out of it."""
    try:
        found = [path for path in projects.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    return sorted(path.name for path in found if NAME.fullmatch(path.name))
