"""What a plan begins with: figures of a project's clips, and the warm starts that --from names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import soundfile

from common.audio.stft import AudioConfig
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import data_of, restore_model
from common.data.filelist import check_files, read_filelist
from common.errors import DataError, UsageError
from common.inference.voice_folder import read_voice_folder
from common.options import given_fields
from common.quality.recogniser import RecogniserConfig
from models import recognise
from studio.plan.file import MODELS
from studio.prepare.lists import ENGLISH
from studio.project import Project, read_settings, recogniser_of
from synthesizer import EMBEDDED

EMBEDDED_NAME, NOTHING = "embedded", "none"


@dataclass(frozen=True, kw_only=True)
class Material:
    """Figures of the prepared clips; `minutes` and `clips` are those for training."""

    minutes: float
    clips: int
    validation_clips: int
    longest_seconds: float
    characters: int  # distinct characters in the texts
    sampling_rate: int  # Hz
    text_options: dict[str, Any] = field(default_factory=dict)  # of train.py; empty for English
    hearing: RecogniserConfig = field(default_factory=RecogniserConfig)


def read_material(project: Project) -> Material:
    """Measure the clips of both filelists. Raises DataError for missing or unreadable lists and clips."""
    paths = (project.training_list, project.validation_list)
    lists = [project.require(path, "studio.prepare FOLDER --name") for path in paths]
    training, validation = (read_filelist(path) for path in lists)
    for rows, path in zip((training, validation), lists, strict=True):
        check_files(rows, path, project.root)
    seconds, rates = zip(*(clip_length(project.root / row.path) for row in training), strict=True)
    if len(set(rates)) > 1:
        raise DataError(f"{lists[0]}: clips of {min(rates)} and of {max(rates)} Hz, expected one rate")
    return Material(
        minutes=sum(seconds) / 60,
        clips=len(training),
        validation_clips=len(validation),
        longest_seconds=max(seconds),
        characters=len(set().union(*(row.text for row in training))),
        sampling_rate=rates[0],
        text_options=read_text_options(project),
        hearing=recogniser_of(project),
    )


def read_text_options(project: Project) -> dict[str, Any]:
    """Return the cleaners and the alphabet that `studio.prepare` chose; {} for English.

    Raises DataError for a damaged project.json or a missing alphabet.
    """
    if not project.settings.exists():  # filelists written by hand
        return {}
    settings = read_settings(project)
    cleaners: Any = settings.get("text_cleaners", ENGLISH)
    cleaners = [cleaners] if isinstance(cleaners, str) else cleaners  # of one alone, up to 0.10
    if not isinstance(cleaners, list) or not all(isinstance(name, str) for name in cleaners):
        raise DataError(f"{project.settings}: text_cleaners: {cleaners!r}, expected names of cleaners")
    if cleaners == [ENGLISH]:
        return {}
    if not settings.get("symbols_file"):
        return {"text_cleaners": cleaners}
    symbols = project.require(project.symbols, "studio.prepare FOLDER --name")
    return {"text_cleaners": cleaners, "symbols_file": str(symbols)}


def clip_length(path: Path) -> tuple[float, int]:
    """Return the length in seconds and the rate of an audio file. Raises DataError for other files."""
    try:
        info = soundfile.info(path)
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(f"{path}: cannot be read as audio ({error})") from None
    return info.frames / info.samplerate, info.samplerate


class Start(NamedTuple):
    """A checkpoint to start from, with the sound settings that it stores, and its number of weights."""

    path: Path
    model: str
    audio: dict[str, Any]
    weights: int


def find_starts(named: Sequence[str]) -> dict[str, Start | None]:
    """Return what each model starts from, by its name; None: random weights.

    A model that `named` leaves out starts from the embedded voice if the audio settings agree, else from random weights.
    Raises UsageError for `none` beside others, DataError for files without a model.
    """
    if NOTHING in named and len(named) > 1:
        raise UsageError(f"--from {' '.join(named)}: {NOTHING} cannot be combined")
    found = {start.model: start for word in named for start in _starts_of(word)}
    for first, other in itertools.pairwise(found.values()):
        if first.audio != other.audio:
            problem = "have different audio settings; choose checkpoints of one voice"
            raise UsageError(f"--from: {first.path} and {other.path} {problem}")
    if list(named) != [NOTHING]:
        audio = [start.audio for start in found.values()]
        rest = (start for start in _starts_of(EMBEDDED_NAME) if not audio or start.audio == audio[0])
        found = {start.model: start for start in rest} | found
    return {name: found.get(name) for name in MODELS}


def audio_of(starts: Mapping[str, Start | None]) -> dict[str, Any]:
    """Return the sound settings of the starts; {} where all weights are random."""
    return next((start.audio for start in starts.values() if start), {})


def _starts_of(word: str) -> list[Start]:
    if word == NOTHING:
        return []
    path = EMBEDDED if word == EMBEDDED_NAME else Path(word)
    if not path.is_dir():
        return [read_start(path)]
    return [read_start(file) for file in read_voice_folder(path, MODELS.values()).values()]


def read_start(path: Path) -> Start:
    """Read a checkpoint to start from. Raises DataError if it has no config, or is none of a registered model."""
    checkpoint = load_checkpoint(path)
    if not checkpoint.get("config"):
        raise DataError(f"{path}: no checkpoint of {' or '.join(MODELS)} with its config")
    spec = recognise(checkpoint, MODELS.values())
    restore_model(spec, checkpoint, path)  # raises the error of one of another kind
    weights = sum(tensor.numel() for tensor in checkpoint["state_dict"].values())
    return Start(path, spec.name, given_fields(AudioConfig, data_of(checkpoint)), weights)
