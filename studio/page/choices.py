"""The voices and vocoders a project can speak with: its finished voice, the checkpoints of its runs, and the embedded voice.

Each has a key, which is looked up among the existing files and never used as a path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common.checkpoint.files import best_path, find_all, last_link
from common.errors import DataError
from common.inference.config import GRIFFIN_LIM
from common.inference.voice_folder import default_vocoder, find_checkpoint
from models import REGISTRY
from studio.plan.file import read_plan
from studio.project import Project, check_inside
from studio.voice.verdict import read_verdict
from studio.voice.voice import start_strength
from synthesizer import EMBEDDED, Checkpoint

FINISHED, EMBEDDED_KEY = "voice", "embedded"
OWN = "own"  # the vocoder of the voice itself
BEST, LAST = "best", "last"
EPOCH = " (epoch {epoch})"  # in a checkpoint's name; the epoch is read with the weights
PLACES = {FINISHED: "the finished voice", EMBEDDED_KEY: "the embedded voice"}


class Option(NamedTuple):
    """A choice and its label."""

    key: str
    label: str


class Files(NamedTuple):
    """The checkpoints of a choice."""

    acoustic: Checkpoint
    vocoder: Checkpoint | None  # None: Griffin-Lim
    acoustic_name: str
    vocoder_name: str
    strength: float | None = None  # of the denoiser, if it is set


class CheckpointChoice(NamedTuple):
    """A checkpoint with its option, and a name for results, which may contain EPOCH."""

    option: Option
    checkpoint: Checkpoint
    name: str


def list_voices(project: Project) -> list[Option]:
    """List the voices to choose from, the finished one first."""
    return [place.option for place in find_places(project, "acoustic")]


def list_vocoders(project: Project) -> list[Option]:
    """List the vocoders to choose from, the voice's own first."""
    fixed = [Option(OWN, "the voice's own"), Option(GRIFFIN_LIM, "Griffin-Lim")]
    return [*fixed, *(place.option for place in find_places(project, "vocoder"))]


def choose_key(keys: Sequence[str], before: Sequence[str], chosen: str | None, defaults: Sequence[str]) -> str | None:
    """Choose one of the keys: the first default if it is new, as after a training; else what was chosen; else a default."""
    is_new = bool(before) and defaults[0] not in before
    preferred = [*defaults[: int(is_new)], chosen, *defaults]
    return next((key for key in preferred if key in keys), keys[0] if keys else None)


def default_voices(project: Project) -> list[str]:
    """Return the keys of the voices to begin with: the embedded one comes first if the verdict found the finished one worse."""
    keys = [FINISHED, EMBEDDED_KEY]
    return keys[::-1] if read_verdict(project.voice).prefers_embedded else keys


def find_places(project: Project, role: str) -> list[CheckpointChoice]:
    """List the existing checkpoints for a role."""
    return [
        *_in_folder(project.voice, FINISHED, role),
        *_in_runs(project, role),
        *_in_folder(EMBEDDED, EMBEDDED_KEY, role),
    ]


def find_files(project: Project, voice: str, vocoder: str = OWN) -> Files:
    """Find the checkpoints of two keys. Raises DataError if one is gone, or a link leads out of the project."""
    acoustic = _find(project, "acoustic", voice)
    if vocoder == OWN:
        vocoder = _own_vocoder(project, voice)
    if vocoder == GRIFFIN_LIM:
        return Files(acoustic.checkpoint, None, acoustic.name, GRIFFIN_LIM)
    found = _find(project, "vocoder", vocoder)
    strength = _strength_of_run(project, found)
    return Files(acoustic.checkpoint, found.checkpoint, acoustic.name, found.name, strength)


def _find(project: Project, role: str, key: str) -> CheckpointChoice:
    places = find_places(project, role)
    found = next((place for place in places if place.option.key == key), None)
    if found is None:
        expected = ", ".join(place.option.label for place in places) or "there is none"
        raise DataError(f"this {'voice' if role == 'acoustic' else role} is gone; choose another one: {expected}")
    if found.checkpoint.path.parent != EMBEDDED:
        check_inside(project, found.checkpoint.path)
    return found


def _own_vocoder(project: Project, voice: str) -> str:
    """Return the key of a voice's own vocoder: the one in a voice folder's config.json, for checkpoints of runs Griffin-Lim."""
    folders = {FINISHED: project.voice, EMBEDDED_KEY: EMBEDDED}
    if voice not in folders:
        return GRIFFIN_LIM
    flag = default_vocoder(folders[voice], REGISTRY.values())
    return GRIFFIN_LIM if flag == GRIFFIN_LIM else f"{voice} {flag}"


def _in_folder(folder: Path, key: str, role: str) -> Iterator[CheckpointChoice]:
    """Yield the checkpoints of a voice folder for a role: its acoustic model, or each of its vocoders."""
    for spec in REGISTRY.values():
        path = find_checkpoint(folder, spec) if spec.role == role else None
        if path is None:
            continue
        if role == "acoustic":
            yield CheckpointChoice(Option(key, PLACES[key]), Checkpoint(spec, path), f"{PLACES[key]}{EPOCH}")
            return
        words = f"{spec.name} of {PLACES[key]}"
        yield CheckpointChoice(Option(f"{key} {spec.flag}", words), Checkpoint(spec, path), words)


def _in_runs(project: Project, role: str) -> Iterator[CheckpointChoice]:
    """Yield the checkpoints of the runs: the best, the last, and those of other epochs."""
    for spec in REGISTRY.values():
        if spec.role != role:
            continue
        folder = project.run(spec.name)
        best, last = best_path(folder, spec.name), last_link(folder, spec.name)
        if best.is_file():
            option = Option(f"{spec.name} {BEST}", f"{spec.name}, best checkpoint")
            yield CheckpointChoice(option, Checkpoint(spec, best), f"{spec.name}, best{EPOCH}")
        for path in find_all(folder, spec.name):
            kind = LAST if path == last else path.stem.rpartition("_")[2]
            words = "last checkpoint" if kind == LAST else f"epoch {kind}"
            option = Option(f"{spec.name} {kind}", f"{spec.name}, {words}")
            yield CheckpointChoice(option, Checkpoint(spec, path), f"{spec.name}{EPOCH}")


def _strength_of_run(project: Project, vocoder: CheckpointChoice) -> float | None:
    """Return the denoising strength that the plan gives the finished voice, for a vocoder of a run."""
    name = vocoder.checkpoint.spec.name
    if vocoder.checkpoint.path.parent != project.run(name):
        return None
    try:
        settings = read_plan(project.plan).models.get(name)
        return start_strength(settings) if settings else None
    except DataError:  # no plan, or one being edited: the checkpoint's own strength
        return None
