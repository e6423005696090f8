"""What a plan needs to know about a project's clips."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import soundfile

from common.data.filelist import check_files, read_filelist
from common.errors import DataError
from studio.prepare.lists import ENGLISH
from studio.project import Project, read_settings


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
