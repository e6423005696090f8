"""Voice folders: a checkpoint for each model and, as studio.train writes it, config.json."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import DataError, listed
from common.files import read_object
from common.inference.config import GRIFFIN_LIM
from common.spec import ModelSpec

ENDINGS = (".safetensors", ".pt", ".pth")
CONFIG = "config.json"  # optional: {"name": …, "vocoder": …}, the fields of About, and notes for readers


def read_voice_folder(folder: Path, specs: Collection[ModelSpec]) -> dict[str, Path]:
    """Find the checkpoints of a voice, by the flags of their models. Raises DataError if there is no acoustic model."""
    found = {spec.flag: path for spec in specs if (path := find_checkpoint(folder, spec))}
    acoustic = [spec for spec in specs if spec.role == "acoustic"]
    if not any(spec.flag in found for spec in acoustic):
        files = [
            f"{spec.file_stem}.safetensors, {spec.file_stem}.pt or checkpoint_{spec.name}_best.pt" for spec in acoustic
        ]
        wanted = " or ".join(files)
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder, expected one with {wanted}")
        voices = [
            path.name for path in sorted(folder.iterdir()) if any(find_checkpoint(path, spec) for spec in acoustic)
        ]
        within = f"; it has voices in it, choose one: {listed(voices)}" if voices else ""
        raise DataError(f"{folder}: no acoustic model, expected {wanted}{within}")
    return found


def find_checkpoint(folder: Path, spec: ModelSpec) -> Path | None:
    """Return a model's file in a folder: STEM.safetensors, STEM.pt, or a training run's best or last checkpoint."""
    names = [f"{spec.file_stem}{ending}" for ending in ENDINGS]
    names += [f"checkpoint_{spec.name}_{kind}.pt" for kind in ("best", "last")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def default_vocoder(folder: Path, specs: Collection[ModelSpec]) -> str:
    """Return the vocoder of a voice: the one in config.json, otherwise the first with a checkpoint, otherwise Griffin-Lim.

    Raises DataError if config.json names one that the folder lacks.
    """
    own = [spec.flag for spec in specs if spec.role == "vocoder" and find_checkpoint(folder, spec)]
    named = read_config(folder).get("vocoder", next(iter(own), GRIFFIN_LIM))
    if named not in (*own, GRIFFIN_LIM):
        raise DataError(f"{folder / CONFIG}: vocoder: {named!r}, expected one of {', '.join((*own, GRIFFIN_LIM))}")
    return str(named)


class About(NamedTuple):
    """What config.json says of a voice: its language by ISO 639-1, its speaker ("a woman"), and its share of wrong words."""

    language: str = "en"
    speaker: str = ""
    words_wrong: float | None = None


def about_voice(folder: Path) -> About:
    """Read what config.json says of a voice; what is missing or no such value is left out, and the language is then English."""
    config = read_config(folder)
    language, speaker, wrong = (config.get(name) for name in About._fields)
    return About(
        language if isinstance(language, str) and language else About().language,
        speaker if isinstance(speaker, str) else "",
        float(wrong) if isinstance(wrong, (int, float)) and not isinstance(wrong, bool) else None,
    )


def voice_name(folder: Path) -> str:
    """Return the name of a voice, from config.json or the folder."""
    return str(read_config(folder).get("name") or folder.resolve().name)


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json, {} if there is none. Raises DataError if it is not a JSON object."""
    path = folder / CONFIG
    try:
        return read_object(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None
