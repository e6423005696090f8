"""Warm starts: what --from names, the embedded voice, checkpoints, voice folders, or none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.audio.stft import AudioConfig
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import data_of, restore_model
from common.errors import DataError, UsageError
from common.inference.voice_folder import read_voice_folder
from common.options import given_fields
from common.spec import ModelSpec
from studio.plan.file import MODELS
from synthesizer import EMBEDDED

EMBEDDED_NAME, NOTHING = "embedded", "none"
Starts = dict[str, Path | None]  # by the names of models


def find_starts(named: Sequence[str]) -> Starts:
    """Return the checkpoint that each model starts from.

    A model that `named` leaves out starts from the embedded voice if the audio settings agree, else from random weights.
    Raises UsageError for `none` beside others, DataError for files without a model.
    """
    if NOTHING in named and len(named) > 1:
        raise UsageError(f"--from {' '.join(named)}: {NOTHING} cannot be combined")
    if list(named) == [NOTHING]:
        return dict.fromkeys(MODELS)
    found: Starts = {}
    for word in named:
        found |= _starts_of(word)
    settings = [audio_of(path) for path in found.values() if path]
    for name, path in _in_folder(EMBEDDED).items():
        fits = not settings or audio_of(path) == settings[0]
        found.setdefault(name, path if fits else None)
    check_audio(found)
    return {name: found.get(name) for name in MODELS}


def check_audio(starts: Starts) -> None:
    """Raise UsageError if two starts have different audio settings."""
    paths = [path for path in starts.values() if path]
    for first, other in itertools.pairwise(paths):
        if audio_of(first) != audio_of(other):
            problem = "have different audio settings; choose checkpoints of one voice"
            raise UsageError(f"--from: {first} and {other} {problem}")


def audio_of(path: Path) -> dict[str, Any]:
    """Return the audio settings that a checkpoint stores."""
    return given_fields(AudioConfig, data_of(load_checkpoint(path)))


def count_weights(path: Path) -> int:
    """Count the weights of a checkpoint."""
    return sum(tensor.numel() for tensor in load_checkpoint(path)["state_dict"].values())


def _starts_of(word: str) -> dict[str, Path]:
    if word == EMBEDDED_NAME:
        return _in_folder(EMBEDDED)
    path = Path(word)
    if path.is_dir():
        return _in_folder(path)
    return {model_of(path).name: path}


def _in_folder(folder: Path) -> dict[str, Path]:
    by_flag = read_voice_folder(folder, MODELS.values())
    return {spec.name: by_flag[spec.flag] for spec in MODELS.values() if spec.flag in by_flag}


def model_of(path: Path) -> ModelSpec:
    """Return the spec of a checkpoint's model. Raises DataError if it is none of the registered ones."""
    checkpoint = load_checkpoint(path)
    for spec in MODELS.values():
        try:
            restore_model(spec, checkpoint, path)
        except (DataError, UsageError):
            continue
        return spec
    raise DataError(f"{path}: no checkpoint of {' or '.join(MODELS)} with its config")
