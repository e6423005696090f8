"""The clips of a project, as far as a plan depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import soundfile

from common.data.filelist import check_files, read_filelist
from common.errors import DataError
from studio.project import Project


@dataclass(frozen=True, kw_only=True)
class Material:
    """Figures of the prepared clips: minutes and clips of training, clips of validation, seconds, characters, rate in Hz."""

    minutes: float
    clips: int
    validation_clips: int
    longest_seconds: float
    characters: int  # different ones in the texts
    sampling_rate: int


def read_material(project: Project) -> Material:
    """Measure the clips of both filelists. Raises DataError for lists and clips that are missing or cannot be read."""
    lists = [project.require(path, "studio.prepare") for path in (project.training_list, project.validation_list)]
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
    )


def clip_length(path: Path) -> tuple[float, int]:
    """Return the seconds and the rate of an audio file. Raises DataError for a file that is no audio."""
    try:
        info = soundfile.info(path)
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(f"{path}: cannot be read as audio ({error})") from None
    return info.frames / info.samplerate, info.samplerate
