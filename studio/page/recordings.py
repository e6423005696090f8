"""Recordings and transcripts stored in a project, each under its own name and none over another file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.errors import DataError, printable
from common.files import make_folder, parse_json
from studio.prepare.arguments import TextConfig
from studio.prepare.sources import ENDINGS, TRANSCRIPTS, file_digest
from studio.project import Project, check_inside


class Storage(NamedTuple):
    """New files, files that were there already with the same content, and problems."""

    new: list[str]
    repeated: list[str]
    problems: list[str]


def store_files(project: Project, files: Sequence[Path]) -> Storage:
    """Move files into the project's recordings. An existing file with other content is kept, and reported as a problem.

    Raises DataError if the folder leads out of the project.
    """
    folder = check_inside(project, project.recordings)
    make_folder(folder)
    new, repeated, problems = [], [], []
    for path in files:
        name = printable(path.name)
        target = folder / path.name
        if problem := problem_of_name(path.name):
            problems.append(f"{name}: {problem}")
        elif target.is_symlink():
            problems.append(f"{name}: a link with this name exists; remove it first")
        elif not target.exists():
            shutil.move(path, target)
            new.append(name)
        elif target.is_file() and file_digest(target) == file_digest(path):
            repeated.append(name)
        else:
            problems.append(f"{name}: another file with this name exists; rename yours, or remove the other")
    return Storage(new, repeated, problems)


def problem_of_name(name: str) -> str:
    """Say why a file of this name is neither a recording nor a transcript; "" if it is one."""
    ending = Path(name).suffix.lower()
    if name.startswith("."):
        return "a hidden file; expected a recording or a transcript"
    if "/" in name or "\0" in name:
        return "expected a name without a folder"
    if ending not in ENDINGS | TRANSCRIPTS:
        return f"{ending or 'no ending'}, expected a recording (wav, flac, mp3, m4a …) or a transcript (txt, srt, vtt, csv, tsv)"
    return ""


def list_recordings(project: Project) -> list[str]:
    """List the stored files."""
    try:
        return sorted(printable(path.name) for path in project.recordings.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def describe_storage(project: Project, storage: Storage) -> str:
    """Describe what was stored, and list all files of the project."""
    lines = [f"not stored: {problem}" for problem in storage.problems]
    lines += [f"already there: {', '.join(storage.repeated)}"] if storage.repeated else []
    return "\n".join([*lines, *list_recordings(project)])


def prepare_argv(project: Project, language: str, several_speakers: bool) -> list[str]:
    """Return the arguments of `studio.prepare` for the stored recordings.

    Raises DataError if there are none, or if the project's clips come from another folder: a run would remove them.
    """
    folder = check_inside(project, project.recordings)
    if not list_recordings(project):
        raise DataError(f"{project.name}: no recordings yet; drop some files first")
    if (other := recorded_folder(project)) and Path(other) != folder.resolve():
        raise DataError(
            f"{project.name}: its clips come from another folder of this machine, which the page does not read; "
            f"continue with {project.command('studio.prepare', 'FOLDER', '--name')}"
        )
    argv = ["studio.prepare", str(folder), "--name", project.name, "--projects", str(project.projects)]
    argv += ["--language", language.strip() or TextConfig.language]
    return [*argv, *(["--allow-several-speakers"] if several_speakers else [])]


def recorded_folder(project: Project) -> str:
    """Return the folder that the clips come from; "" before the first run."""
    try:
        settings = parse_json(project.settings.read_bytes())
    except (OSError, ValueError):
        return ""
    return str(settings.get("recordings", "")) if isinstance(settings, dict) else ""
