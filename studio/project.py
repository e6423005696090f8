"""The files of a project: one folder for everything made from a set of recordings."""

from __future__ import annotations

import re
import shlex
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from common.errors import DataError, UsageError
from common.files import atomic_write, display_path, make_folder, read_object, remove_leftovers, writing
from common.options import option
from common.quality.recogniser import ENGLISH, RecogniserConfig
from common.system import lock_for_process

ROOT = Path(__file__).resolve().parents[1]  # of the code
PROJECTS = Path("output/studio")  # default of --projects
VALIDATION = 0.05  # share of the clips
# Of every file in a zip, so that equal folders make equal ones: the earliest date that a zip can have, and the permissions.
EARLIEST, MODE = (1980, 1, 1, 0, 0, 0), 0o644 << 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # of a folder, and a part of file names


class Place:
    """A file or folder of a project, as an attribute: its path below the project's folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __get__(self, project: Project, owner: type[Project]) -> Path:
        return project.root / self.path


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project by its name: `studio.prepare` creates it, and the later steps read it.

    Raises UsageError for a name that cannot be a folder's.
    """

    name: str = option(MISSING, "name of the project: Latin letters, digits, - and _", required=True)
    projects: Path = option(PROJECTS, "folder of all projects", metavar="DIR")

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"project {self.name!r}: expected at most 64 Latin letters, digits, - and _, the first a letter or digit"
            )

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self.projects / self.name

    settings = Place("project.json")  # of `studio.prepare`: folder of the recordings, sampling rate, limits of clips
    recordings = Place("recordings")  # dropped on the page; `studio.prepare` reads any folder
    clips = Place("clips")  # NAME.wav: mono, 16 bits, at the rate of the models
    review = Place("clips.tsv")  # the clips, a row each, with their texts and faults; people edit it
    state = Place("state")  # finished work, from which an interrupted `studio.prepare` continues
    proposals = Place("state/proposals.jsonl")  # the rows of clips.tsv before edits
    left_out = Place("state/left_out.txt")  # the files that `studio.prepare` could not use, one a line, with the reason
    transcripts = Place("state/transcripts.txt")  # the transcript files, one a line, and what became of them
    symbols = Place("symbols.txt")  # alphabet of texts that are not English: train.py's --symbols-file
    training_list = Place("filelists/train.txt")  # rows path|text, paths relative to `root`
    validation_list = Place("filelists/val.txt")
    plan = Place("plan.json")  # training settings that `studio.plan` has proposed
    voice = Place("voice")  # the finished voice: checkpoints, config, card, samples
    spoken = Place("voice/samples/phrases.txt")  # the texts of the voice's samples
    exports = Place("exports")  # of `studio.export`, a folder for each target, and each packed

    def run(self, model: str) -> Path:
        """Return the folder of a model's checkpoints: train.py's --output."""
        return self.root / "runs" / model.lower()

    @property
    def packed_voice(self) -> Path:
        """The voice in one file, as `studio.share` packs it."""
        return self.root / f"{self.name}.zip"

    def require(self, path: Path, command: str) -> Path:
        """Return a path of the project. Raises DataError, naming the command that writes it, if nothing is there."""
        if not path.exists():
            raise DataError(f"{path}: no such file; run {self.command(*command.split())} first")
        return path

    def command(self, *argv: str) -> str:
        """Return the command line `python -m ARGV NAME`, with --projects unless it is the default."""
        place = [] if self.projects.absolute() == PROJECTS.absolute() else ["--projects", str(self.projects)]
        return shlex.join(["python", "-m", *argv, self.name, *place])


def read_settings(project: Project) -> dict[str, Any]:
    """Read project.json. Raises DataError if it is missing, or no JSON object."""
    path = project.require(project.settings, "studio.prepare FOLDER --name")
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        again = project.command("studio.prepare", "FOLDER", "--name")
        raise DataError(f"{path}: cannot be used ({error}); run {again} again") from None


def last_settings(project: Project) -> dict[str, Any]:
    """Return the settings of the last run. Raises DataError if they are missing, damaged, or lack the entries that edits need."""
    path, settings = project.settings, read_settings(project)
    again = project.command("studio.prepare", "FOLDER", "--name")
    try:
        language, rate = settings["texts"]["language"], settings["cutting"]["sampling_rate"]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be used (no entry {error}); run {again} again") from None
    if not isinstance(language, str) or type(rate) is not int or rate < 1:
        found = f"texts.language {language!r} and cutting.sampling_rate {rate!r}"
        raise DataError(f"{path}: {found}, expected a string and a rate in Hz; run {again} again")
    validation = settings.setdefault("validation", VALIDATION)
    if not isinstance(validation, (int, float)) or not validation > 0:
        raise DataError(f"{path}: validation {validation!r}, expected a number of clips or a share; run {again} again")
    return settings


def recogniser_of(project: Project) -> RecogniserConfig:
    """Return the language that `studio.prepare` found or was told, and its recogniser; English where nothing says it."""
    try:
        texts = read_settings(project)["texts"]
        return RecogniserConfig(language=str(texts["language"]), recogniser=texts.get("recogniser"))
    except (DataError, KeyError, TypeError):
        return RecogniserConfig(language=ENGLISH)


def speaking_command(project: Project) -> str:
    """Return the command line of inference.py with a project's voice: in English on phrases/, in other languages on its samples."""
    phrases = "phrases/phrase.txt"
    if recogniser_of(project).code != ENGLISH:
        phrases = display_path(project.spoken)
    return shlex.join(["python", "inference.py", "--voice", display_path(project.voice), "-i", phrases])


@contextmanager
def lock_project(project: Project) -> Iterator[None]:
    """Refuse a second run on the same project, and remove the half-written files of a killed one."""
    for folder in (project.root, project.clips, project.state):
        make_folder(folder)
        remove_leftovers(folder)
    with (project.state / "lock").open("w") as file:
        try:
            lock_for_process(file.fileno())
        except OSError:
            commands = "studio.prepare or studio.train"
            raise DataError(f"{project.root}: another {commands} is working on it; wait until it ends") from None
        yield


def list_projects(projects: Path) -> list[str]:
    """List the projects in a folder by name. Links are left out, since they may lead elsewhere."""
    try:
        found = [path for path in projects.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    return sorted(path.name for path in found if NAME.fullmatch(path.name))


def find_project(projects: Path, name: str | None) -> Project:
    """Return an existing project. Raises DataError if there is none of this name, UsageError for an impossible name."""
    if not name:
        raise DataError("no project is chosen; make one in the Data tab, or choose one above the tabs")
    project = Project(name=name, projects=projects)
    if not project.root.is_dir() or project.root.is_symlink():
        raise DataError(f"project {name}: no such project")
    return project


def create_project(projects: Path, name: str | None) -> Project:
    """Make the folder of a new project. Raises UsageError for an impossible name, DataError for one in use."""
    project = Project(name=(name or "").strip(), projects=projects)
    try:
        make_folder(projects)
        project.root.mkdir()  # fails for a link too, which would lead elsewhere
        project.recordings.mkdir()
    except FileExistsError:
        raise DataError(
            f"project {project.name}: a file or folder with this name exists already; choose another name"
        ) from None
    return project


def check_inside(project: Project, path: Path) -> Path:
    """Return a path of a project. Raises DataError if links or `..` lead out of the project."""
    if "\0" in str(path) or not path.resolve().is_relative_to(project.root.resolve()):
        raise DataError(f"{path.name}: leads out of the project {project.name}")
    return path


def pack(folder: Path, path: Path, name: str) -> None:
    """Zip the files of a folder, without hidden ones, under NAME/. Raises DataError if the file cannot be written."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    with writing(path), atomic_write(path) as target, zipfile.ZipFile(target, "w") as archive:
        for file in files:
            entry = zipfile.ZipInfo(f"{name}/{file.relative_to(folder).as_posix()}", EARLIEST)
            entry.external_attr, entry.compress_type = MODE, zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
