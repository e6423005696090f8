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
from studio.plan.file import settings_of
from studio.project import Project, check_inside
from studio.voice.verdict import read_verdict
from studio.voice.voice import start_strength
from synthesizer import EMBEDDED, Checkpoint

FINISHED, EMBEDDED_KEY = "voice", "embedded"
OWN = "own"  # the vocoder of the voice itself
BEST, LAST = "best", "last"
PLACES = {FINISHED: "the finished voice", EMBEDDED_KEY: "the embedded voice"}


class VoiceChoice(NamedTuple):
    """A checkpoint to choose, its key and its label."""

    key: str
    label: str
    checkpoint: Checkpoint


class ChosenFiles(NamedTuple):
    """The checkpoints of a choice, and the denoiser's strength, if it is set. Without a vocoder Griffin-Lim speaks."""

    acoustic: VoiceChoice
    vocoder: VoiceChoice | None
    strength: float | None = None

    @property
    def paths(self) -> list[Path]:
        """The paths of the checkpoints."""
        return [choice.checkpoint.path for choice in (self.acoustic, self.vocoder) if choice]


def list_voices(project: Project) -> list[tuple[str, str]]:
    """List the labels and keys of the voices to choose from, the finished one first."""
    return [(choice.label, choice.key) for choice in find_choices(project, "acoustic")]


def list_vocoders(project: Project) -> list[tuple[str, str]]:
    """List the labels and keys of the vocoders to choose from, the voice's own first."""
    fixed = [("the voice's own", OWN), ("Griffin-Lim", GRIFFIN_LIM)]
    return [*fixed, *((choice.label, choice.key) for choice in find_choices(project, "vocoder"))]


def choose_key(keys: Sequence[str], before: Sequence[str], chosen: str | None, defaults: Sequence[str]) -> str | None:
    """Choose one of the keys: the first default if it is new, as after a training; else what was chosen; else a default."""
    is_new = bool(before) and defaults[0] not in before
    preferred = [*defaults[: int(is_new)], chosen, *defaults]
    return next((key for key in preferred if key in keys), keys[0] if keys else None)


def default_voices(project: Project) -> list[str]:
    """Return the keys of the voices to begin with: the embedded one comes first if the verdict found the finished one worse."""
    keys = [FINISHED, EMBEDDED_KEY]
    return keys[::-1] if read_verdict(project.voice).prefers_embedded else keys


def find_choices(project: Project, role: str) -> list[VoiceChoice]:
    """List the existing checkpoints for a role."""
    return [
        *_in_folder(project.voice, FINISHED, role),
        *_in_runs(project, role),
        *_in_folder(EMBEDDED, EMBEDDED_KEY, role),
    ]


def find_files(project: Project, voice: str, vocoder: str = OWN) -> ChosenFiles:
    """Find the checkpoints of two keys. Raises DataError if one is gone, or a link leads out of the project."""
    acoustic = _find(project, "acoustic", voice)
    if vocoder == OWN:
        vocoder = _own_vocoder(project, voice)
    if vocoder == GRIFFIN_LIM:
        return ChosenFiles(acoustic, None)
    found = _find(project, "vocoder", vocoder)
    return ChosenFiles(acoustic, found, _strength_of_run(project, found.checkpoint))


def _find(project: Project, role: str, key: str) -> VoiceChoice:
    choices = find_choices(project, role)
    found = next((choice for choice in choices if choice.key == key), None)
    if found is None:
        expected = ", ".join(choice.label for choice in choices) or "there is none"
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


def _in_folder(folder: Path, key: str, role: str) -> Iterator[VoiceChoice]:
    """Yield the checkpoints of a voice folder for a role: its acoustic model, or each of its vocoders."""
    for spec in REGISTRY.values():
        path = find_checkpoint(folder, spec) if spec.role == role else None
        if path and role == "acoustic":
            yield VoiceChoice(key, PLACES[key], Checkpoint(spec, path))
            return
        if path:
            yield VoiceChoice(f"{key} {spec.flag}", f"{spec.name} of {PLACES[key]}", Checkpoint(spec, path))


def _in_runs(project: Project, role: str) -> Iterator[VoiceChoice]:
    """Yield the checkpoints of the runs: the best, the last, and those of other epochs."""
    for spec in REGISTRY.values():
        if spec.role != role:
            continue
        folder = project.run(spec.name)
        best, last = best_path(folder, spec.name), last_link(folder, spec.name)
        for path in [*([best] if best.is_file() else []), *find_all(folder, spec.name)]:
            kind = {best: BEST, last: LAST}.get(path, path.stem.rpartition("_")[2])
            words = f"{kind} checkpoint" if kind in (BEST, LAST) else f"epoch {kind}"
            yield VoiceChoice(f"{spec.name} {kind}", f"{spec.name}, {words}", Checkpoint(spec, path))


def _strength_of_run(project: Project, vocoder: Checkpoint) -> float | None:
    """Return the denoising strength that the plan gives the finished voice, for a vocoder of a run."""
    if vocoder.path.parent != project.run(vocoder.spec.name):
        return None
    settings = settings_of(project.plan, vocoder.spec.name)
    return start_strength(settings) if settings else None  # without a plan the checkpoint's own
