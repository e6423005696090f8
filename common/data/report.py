"""Measurements of a corpus's clips for its report: sound, text, repetitions, outliers, unusable rows."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from common.audio import silence
from common.audio.audio_processing import load_audio
from common.audio.mpeg import quiet_decoder
from common.data.filelist import sift_filelist
from common.data.parallel import run_parallel
from common.errors import DataError

# N samples, C clips
Floats = npt.NDArray[np.float64]

FULL_SCALE = 32767 / 32768  # the largest sample of 16 bits
CLIPPED_RUN = 3  # consecutive samples at full scale; one or two may be a peak that just fits
OUTLIER_DEVIATIONS = 5.0  # in median absolute deviations
HISTOGRAM_DEVIATIONS = 8.0  # likewise; values farther out share the outermost bars, to keep the others apart


class Place(NamedTuple):
    """Place of a row: filelist and line number, from 1."""

    filelist: str
    line: int

    def __str__(self) -> str:
        return f"{self.filelist}:{self.line}"


class ListedClip(NamedTuple):
    """A readable row of a filelist, and its file in the dataset's folder."""

    place: Place
    path: str
    text: str
    file: str


class Header(NamedTuple):
    """Header of an audio file: Hz, channels, and container with codec."""

    rate: int
    channels: int
    encoding: str


class Sound(NamedTuple):
    """Measurements of one clip. Levels are about its mean; 0 dBFS means every sample at full scale, and silence has -inf."""

    duration: float  # s
    rms: float  # dBFS
    peak: float  # dBFS
    leading_silence: float  # s
    trailing_silence: float  # s
    clipped_runs: int
    longest_run: int  # samples
    digest: str  # of the samples, so the same sound has the same digest in any file or format


class Clip(NamedTuple):
    """A usable row and its sound."""

    row: ListedClip
    sound: Sound

    @property
    def characters(self) -> int:
        """Characters of the text as written."""
        return len(self.row.text)

    @property
    def words(self) -> int:
        """Words of the text as written, separated by white space."""
        return len(self.row.text.split())

    @property
    def pace(self) -> float:
        """Characters per second."""
        return self.characters / self.sound.duration


@dataclass(frozen=True)
class Survey:
    """The clips of all filelists, in order: usable clips, all readable headers, and the problems of the other rows."""

    filelists: list[str]
    clips: list[Clip]
    headers: list[Header]
    problems: list[tuple[Place, str]]


class Outliers(NamedTuple):
    """Values far from the median: their indices, farthest first, and all distances in deviations."""

    median: float
    deviation: float  # median absolute
    indices: list[int]
    deviations: Floats  # for all values


def survey(
    filelists: Sequence[Path],
    dataset_path: Path,
    sampling_rate: int,
    unusable: Callable[[Sequence[ListedClip], Sequence[int | None]], Mapping[int, str]],
    workers: int,
) -> Survey:
    """Measure every clip of some filelists, in parallel.

    Args:
        filelists: filelists with rows audio|text.
        dataset_path: the folder that the rows' paths are relative to.
        sampling_rate: the expected rate in Hz.
        unusable: maps rows, with the samples of each readable clip, to the problems of those that training refuses, by index.
        workers: number of processes.

    Raises:
        DataError: a filelist that is missing, empty, or names mels. Bad rows are listed as problems instead.
    """
    rows: list[ListedClip] = []
    problems: list[tuple[Place, str]] = []
    for path in filelists:
        good, bad = read_rows(path, dataset_path)
        rows += good
        problems += bad
    measured = _measure_files([row.file for row in rows], sampling_rate, workers)
    lengths = [round(sound.duration * sampling_rate) if isinstance(sound, Sound) else None for _, sound in measured]
    refused = unusable(rows, lengths)
    clips = []
    for number, (row, (_, sound)) in enumerate(zip(rows, measured, strict=True)):
        of_row = [refused[number]] if number in refused else []
        if isinstance(sound, str):
            of_row.append(sound)
        if of_row:
            problems.append((row.place, "; ".join(of_row)))
        elif isinstance(sound, Sound):
            clips.append(Clip(row, sound))
    names = [str(path) for path in filelists]
    problems.sort(key=lambda problem: (names.index(problem[0].filelist), problem[0].line))
    return Survey(names, clips, [header for header, _ in measured if header], problems)


def read_rows(path: Path, dataset_path: Path) -> tuple[list[ListedClip], list[tuple[Place, str]]]:
    """Read the rows `path|text` of a filelist, and the problems of its other lines.

    Raises:
        DataError: if the filelist is missing, empty, or names mels.
    """
    items, faults = sift_filelist(path)
    problems = [(Place(str(path), number), fault) for number, fault in faults.items()]
    rows = [
        ListedClip(Place(str(path), number), item.path, item.text, os.path.normpath(dataset_path / item.path))
        for number, item in items.items()
    ]
    if rows and all(row.path.endswith(".pt") for row in rows):
        twin = path.with_name(path.name.replace("_mel_", "_audio_"))
        advice = f", here {twin}" if twin != path and twin.is_file() else ""
        raise DataError(f"{path}: its rows name mels (.pt), expected audio files: pass the audio list{advice}")
    return rows, problems


def _measure_files(files: list[str], sampling_rate: int, workers: int) -> list[tuple[Header | None, Sound | str]]:
    return run_parallel(partial(measure_file, sampling_rate=sampling_rate), files, workers, "report")


def measure_file(file: str, sampling_rate: int) -> tuple[Header | None, Sound | str]:
    """Return the header of an audio file (None if unreadable), and its sound or the problem with it."""
    try:
        with quiet_decoder(file):
            info = soundfile.info(file)
    except (soundfile.LibsndfileError, TypeError):  # TypeError: a .raw file without a header
        header = None
    else:
        header = Header(info.samplerate, info.channels, f"{info.format} {info.subtype}")
    try:
        return header, measure(load_audio(file, sampling_rate).numpy(), sampling_rate)
    except DataError as error:
        return header, str(error)


def measure(samples: npt.NDArray[np.float32], sampling_rate: int) -> Sound:
    """Measure samples (N,) in [-1, 1]; N is at least 1."""
    leading, trailing = end_silences(samples, sampling_rate)
    runs = clipped_runs(samples)
    centred = silence.without_offset(samples)
    return Sound(
        duration=len(samples) / sampling_rate,
        rms=_decibels(float(np.square(centred).mean())),
        peak=_decibels(float(np.abs(centred).max()) ** 2),
        leading_silence=leading,
        trailing_silence=trailing,
        clipped_runs=len(runs),
        longest_run=int(runs.max(initial=0)),
        digest=hashlib.blake2b(np.ascontiguousarray(samples).tobytes(), digest_size=16).hexdigest(),
    )


def _decibels(power: float) -> float:
    return float(10 * np.log10(power)) if power > silence.NO_POWER else -np.inf


def clipped_runs(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return the lengths of the runs of at least CLIPPED_RUN samples (N,) at full scale."""
    at_limit = np.abs(samples) >= FULL_SCALE
    edges = np.diff(np.concatenate(([0], at_limit.astype(np.int8), [0])))
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    return lengths[lengths >= CLIPPED_RUN]


def end_silences(samples: npt.NDArray[np.float32], sampling_rate: int) -> tuple[float, float]:
    """Measure the seconds of silence at the start and end of samples (N,); the whole length without any sound."""
    start, end = silence.sound_bounds(samples, sampling_rate)
    ends = (start, len(samples) - end) if end else (len(samples), len(samples))
    return ends[0] / sampling_rate, ends[1] / sampling_rate


def outliers(values: Floats) -> Outliers:
    """Find the values (C,) more than OUTLIER_DEVIATIONS median absolute deviations from their median."""
    median = float(np.median(values))
    distances = np.abs(values - median)
    deviation = float(np.median(distances))
    # If over half of the values are equal, all others are infinitely far.
    far = np.full_like(distances, np.inf)
    deviations = np.divide(distances, deviation, out=far, where=deviation > 0)
    deviations[distances == 0] = 0
    farthest_first = np.lexsort((-distances, -deviations))
    return Outliers(
        median, deviation, [int(i) for i in farthest_first if deviations[i] > OUTLIER_DEVIATIONS], deviations
    )


def move_into_view(values: Floats) -> tuple[Floats, int]:
    """Return the finite values (C,) with far ones moved to HISTOGRAM_DEVIATIONS from the median, and the number moved.

    Nothing is moved unless that halves the range of the values.
    """
    finite = values[np.isfinite(values)]
    median = np.median(finite)
    reach = HISTOGRAM_DEVIATIONS * np.median(np.abs(finite - median)) or np.inf
    clipped_values = np.clip(finite, median - reach, median + reach)
    if np.ptp(finite) < 2 * np.ptp(clipped_values):
        return finite, 0
    return clipped_values, int((clipped_values != finite).sum())


def group_by(clips: Sequence[Clip], key: Callable[[Clip], Hashable]) -> list[list[Clip]]:
    """Group clips that share a key, largest group first; single clips are left out."""
    groups: dict[Hashable, list[Clip]] = defaultdict(list)
    for clip in clips:
        groups[key(clip)].append(clip)
    return sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)


def group_same_audio(clips: Sequence[Clip]) -> list[list[Clip]]:
    """Group clips with identical samples in different files."""
    groups = group_by(clips, lambda clip: clip.sound.digest)
    return [group for group in groups if len({clip.row.file for clip in group}) > 1]


def lists_of(clips: Sequence[Clip]) -> Counter[str]:
    """Count the clips of each filelist."""
    return Counter(clip.row.place.filelist for clip in clips)
