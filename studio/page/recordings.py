"""Recordings and transcripts stored in a project, each under its own name and none over another file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.data.sources import ENDINGS, TRANSCRIPTS, file_digest
from common.errors import DataError, printable
from common.files import make_folder
from common.progress import counted
from studio.prepare.report import count_faults, minutes, read_stored
from studio.prepare.review import YES, ClipRow
from studio.project import Project, check_inside, read_settings
from studio.wording import html_table


class Storage(NamedTuple):
    """New files, files that were there already with the same content, and problems."""

    new: list[str]
    repeated: list[str]
    problems: list[str]


def store_files(project: Project, files: Sequence[Path]) -> Storage:
    """Move files into the project's recordings, each on its own: one that cannot be stored is a problem, and the others are stored.

    An existing file with other content is kept, and reported as a problem. Raises DataError if the folder leads out of the project.
    """
    folder = check_inside(project, project.recordings)
    make_folder(folder)
    storage = Storage([], [], [])
    for path in dict.fromkeys(files):  # a file that is dropped twice has one place among the uploads
        name = printable(path.name)
        try:
            problem = _store_file(path, folder / path.name, storage)
        except OSError as error:
            problem = f"{error.strerror}; drop it again"
        if problem:
            storage.problems.append(f"{name}: {problem}")
    return storage


def _store_file(path: Path, target: Path, storage: Storage) -> str:
    """Move a file, and note it as new or repeated. Returns the problem, if there is one."""
    if problem := problem_of_name(path.name):
        return problem
    if target.is_symlink():
        return "a link with this name exists; remove it first"
    if not target.exists():
        shutil.move(path, target)
        storage.new.append(printable(path.name))
    elif target.is_file() and file_digest(target) == file_digest(path):
        storage.repeated.append(printable(path.name))
    else:
        return "another file with this name exists; rename yours, or remove the other"
    return ""


def problem_of_name(name: str) -> str:
    """Say why a file of this name is neither a recording nor a transcript; "" if it is one."""
    ending = Path(name).suffix.lower()
    if name.startswith("."):
        return "a hidden file; expected a recording or a transcript"
    if "/" in name or "\0" in name:
        return "expected a name without a folder"
    if ending not in ENDINGS | TRANSCRIPTS:
        return f"{ending or 'no ending'}, expected a recording (wav, flac, mp3, m4a …) or a transcript (txt, srt, TextGrid, csv …)"
    return ""


def list_recordings(project: Project) -> list[str]:
    """List the stored files."""
    return sorted(printable(path.name) for path in project.recordings.glob("[!.]*"))


def describe_storage(project: Project, storage: Storage) -> str:
    """Describe what was stored, and list all files of the project."""
    lines = [f"not stored: {problem}" for problem in storage.problems]
    lines += [f"already there: {', '.join(storage.repeated)}"] if storage.repeated else []
    return "\n".join([*lines, *list_recordings(project)])


def list_fates(project: Project, rows: Sequence[ClipRow]) -> list[tuple[str, str, str, str]]:
    """Say of each stored file what became of it: its name, minutes of its clips that are used and that are not, and words.

    `rows` are those of clips.tsv, [] before recordings are prepared.
    """
    if not rows:
        return []
    said = [*read_stored(project.transcripts), *read_stored(project.left_out)]
    places = dict(line.split(": ", 1) for line in said if ": " in line)
    words = {Path(place).name: problem for place, problem in places.items()}
    fates = []
    for name in list_recordings(project):
        own = [row for row in rows if row.recording == name]
        if not own:
            fates.append((name, "", "", words.get(name) or "not used yet: prepare again"))
            continue
        used, lost = [row for row in own if row.use == YES], [row for row in own if row.use != YES]
        faults = f"faults: {', '.join(count_faults(lost))}; " if count_faults(lost) else ""
        sources = ", ".join(dict.fromkeys(row.source for row in own))
        about = f"{len(used)} of {counted(len(own), 'clip')} used; {faults}text: {sources}"
        fates.append((name, f"{minutes(used):.1f}", f"{minutes(lost):.1f}", about))
    return fates


def fates_table(project: Project, rows: Sequence[ClipRow]) -> str:
    """Return what became of each file as an HTML table, folded; "" without any."""
    if not (fates := list_fates(project, rows)):
        return ""
    table = html_table(("file", "minutes used", "minutes not used", "what became of it"), fates)
    return f"<details open><summary>Files</summary>{table}</details>"


def prepare_argv(project: Project, language: str | None, several_speakers: bool) -> list[str]:
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
    if language and language.strip():  # an empty field is None
        argv += ["--language", language.strip()]
    return [*argv, *(["--allow-several-speakers"] if several_speakers else [])]


def recorded_folder(project: Project) -> str:
    """Return the folder that the clips come from; "" before the first run."""
    try:
        return str(read_settings(project).get("recordings", ""))
    except DataError:
        return ""
