"""Recordings of any origin: the rows that name them, problems that rule them out for training, and converted copies."""

# N samples, C channels

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from common.audio import silence
from common.audio.audio_processing import read_audio, resample, save_audio
from common.audio.stft import AudioConfig
from common.data.filelist import SHOWN, misplaced_columns
from common.data.parallel import run_parallel
from common.data.transliteration import compose
from common.errors import DataError, shorten
from common.files import atomic_write, read_lines

ENDINGS = (".wav", ".flac", ".ogg", ".opus", ".mp3")
SETTINGS = "settings.json"  # beside copies: the settings they were made with
FILE_HEADINGS = (
    *("file", "filename", "file_name", "path", "audio", "audio_path", "audio_file", "audio_filepath", "wav", "clip"),
    *("recording", "id", "name"),
)
TEXT_HEADINGS = ("normalized_text", "normalised_text", "text", "sentence", "transcript", "transcription")
MARGIN = 0.05  # seconds of silence kept at either end


def name_key(name: str) -> str:
    """Spell a file's name or path so that all spellings agree: of its case, accents (NFC) and slashes."""
    return compose(name).casefold().replace("\\", "/").removeprefix("./")


class Recording(NamedTuple):
    """A row of a list: its number from 0, its audio file and its text."""

    row: int
    path: Path
    text: str

    @property
    def name(self) -> str:
        """The name, without ending, of its copy and its mel."""
        return self.path.stem


class Rows(NamedTuple):
    """The recordings of a list, the problems of its rows by number, from 0, and a phrase about the source of the texts."""

    recordings: list[Recording]
    problems: dict[int, str]
    source: str = ""


@dataclass(frozen=True)
class Treatment:
    """How to treat recordings: the rate in Hz, whether to convert other rates to it, whether to cut silent ends."""

    sampling_rate: int = AudioConfig.sampling_rate
    resample: bool = False
    trim_silence: bool = False


class Clip(NamedTuple):
    """A checked recording: its rate in Hz, its channels, and the range of samples to keep."""

    rate: int
    channels: int
    start: int
    end: int

    @property
    def seconds(self) -> float:
        """The length to keep."""
        return (self.end - self.start) / self.rate


def read_layout(folder: Path) -> Rows:
    """Read folder/metadata.csv, rows `id|raw text|normalised text` or `id|text`; audio is folder/wavs/ID.wav, .flac …

    The normalised text is used if there is one. Raises DataError if metadata.csv is missing, empty or not UTF-8.
    """
    _entries.cache_clear()
    recordings: list[Recording] = []
    problems: dict[int, str] = {}
    normalised: dict[int, tuple[str, str]] = {}
    for row, fields in enumerate(_read_fields(folder / "metadata.csv")):
        if problem := _heading(row, fields):
            problems[row] = problem
            continue
        if len(fields) not in (2, 3) or not fields[0]:
            problems[row] = f"{'|'.join(fields)[:60]!r}, expected id|text or id|text|normalised text"
            continue
        stem = folder / "wavs" / fields[0]
        files = _find_audio(folder, fields[0])
        text = fields[-1] or fields[1]
        if len(fields) == 3 and fields[1] and fields[2]:
            normalised[row] = fields[1], fields[2]
        recordings.append(Recording(row, files[0] if files else stem, text))
        if not files:
            problems[row] = f"no {stem}{{{','.join(ENDINGS)}}}{_other_formats(stem)}"
        elif len(files) > 1:
            names = " and ".join(path.name for path in files)
            problems[row] = f"{names} are both in {stem.parent}, expected one; or write the id with its ending"
    for row, problem in misplaced_columns(normalised).items():
        add_problem(problems, row, problem)
    example = next((shorten(third, SHOWN) for _, third in normalised.values()), "")
    third = f"the third column of {len(normalised)} rows, such as {example!r}" if normalised else ""
    return _check_rows(recordings, problems)._replace(source=third)


def read_list(path: Path, dataset_path: Path) -> Rows:
    """Read rows `path|text`; paths are relative to the list's own folder or, if no file is there, to `dataset_path`.

    Raises DataError if the list is missing, empty or not UTF-8.
    """
    lines = _read_fields(path)
    _entries.cache_clear()
    places = [(path.parent / fields[0], find_path(path.parent, fields[0])) for fields in lines if fields[0]]
    beside = any(os.path.isfile(place) for pair in places for place in pair if place)
    base = path.parent if beside else dataset_path
    recordings, problems = [], {}
    for row, fields in enumerate(lines):
        if problem := _heading(row, fields):
            problems[row] = problem
            continue
        if len(fields) != 2 or not fields[0]:
            problems[row] = f"{'|'.join(fields)[:60]!r}, expected path|text"
            continue
        path = base / fields[0]
        recordings.append(
            Recording(row, path if os.path.isfile(path) else find_path(base, fields[0]) or path, fields[1])
        )
        if not os.path.isfile(recordings[-1].path):
            problems[row] = f"no file {recordings[-1].path}"
    return _check_rows(recordings, problems)


def _read_fields(path: Path) -> list[list[str]]:
    """Split every line of a UTF-8 file into its fields; trailing blank lines do not count."""
    return [[field.strip() for field in line.split("|")] for line in read_lines(path)]


def _heading(row: int, fields: Sequence[str]) -> str:
    """Return the problem of a first row with the names of columns; "" for others."""
    names = [field.casefold() for field in fields]
    is_heading = row == 0 and names[0] in FILE_HEADINGS and any(name in TEXT_HEADINGS for name in names[1:])
    return f"{'|'.join(fields)!r} is a heading, expected the first clip: remove the line" if is_heading else ""


def _find_audio(folder: Path, identifier: str) -> list[Path]:
    """Return the files of an id, in folder/wavs: the one it names, or otherwise one for each ending that exists.

    The id may have an ending or a folder, as in wavs/one.wav or C:\\voice\\one.wav; case and Unicode form do not matter.
    """
    key = name_key(identifier)
    for path in (f"wavs/{key}", key, f"wavs/{key.rpartition('/')[2]}"):
        place = find_path(folder, path.rpartition("/")[0])
        name = path.rpartition("/")[2]
        files = [place / entry for entry in _entries(place).get(name, ())] if place else []
        if name.endswith(ENDINGS) and len(files) == 1 and os.path.isfile(files[0]):
            return files
        for stem in dict.fromkeys((name, name.removesuffix(Path(name).suffix) if name.endswith(ENDINGS) else name)):
            entries = [entry for ending in ENDINGS for entry in _entries(place).get(stem + ending, ())] if place else []
            if files := [place / entry for entry in entries if place and os.path.isfile(place / entry)]:
                return files
    return []


def find_path(folder: Path, name: str) -> Path | None:
    """Return the file or folder with this path in a folder, in any case, Unicode form and kind of slashes; None without one."""
    path = folder
    for part in name_key(name).split("/"):
        if part not in ("", "."):
            found = [part] if part == ".." else _entries(path).get(part, ())
            if len(found) != 1:
                return None
            path = path / found[0]
    return path


@cache
def _entries(folder: Path) -> Mapping[str, Sequence[str]]:
    """Return the names in a folder by their keys."""
    by_key: dict[str, list[str]] = defaultdict(list)
    try:
        for name in sorted(os.listdir(folder)):
            by_key[name_key(name)].append(name)
    except OSError:
        pass
    return by_key


def _other_formats(stem: Path) -> str:
    """Name files of an id in formats that are not read here; "" without any."""
    found = [names[0] for key, names in _entries(stem.parent).items() if key.rpartition(".")[0] == name_key(stem.name)]
    return f"; {', '.join(found)} is of another format: convert it to wav" if found else ""


def _check_rows(recordings: list[Recording], problems: dict[int, str]) -> Rows:
    """Add the problems of texts and names; two clips with one name, such as A.wav and A.flac, would share a copy and a mel."""
    first: dict[str, int] = {}
    for recording in recordings:
        earlier = first.setdefault(recording.name, recording.row)
        if not recording.text:
            add_problem(problems, recording.row, "no text")
        if earlier != recording.row:
            add_problem(problems, recording.row, f"a clip named {recording.name} is in row {earlier + 1}, too")
    return Rows(recordings, problems)


def add_problem(problems: dict[int, str], row: int, problem: str) -> None:
    """Add a problem to a row's others."""
    problems[row] = f"{problems[row]}; {problem}" if row in problems else problem


def read_mono(path: Path, treatment: Treatment) -> tuple[np.ndarray, Clip]:
    """Return the samples (N,) of a recording at its own rate, float32 in [-1, 1], mixed down to mono, and its properties.

    Raises what read_audio raises; with `treatment.resample`, any rate and number of channels is accepted.
    """
    audio = read_audio(path, None if treatment.resample else treatment.sampling_rate)
    return audio.samples.numpy(), Clip(audio.rate, audio.channels, 0, len(audio.samples))


def check_clip(path: Path, treatment: Treatment) -> Clip | str:
    """Return the properties of a recording and the range to keep, or the problem with it."""
    try:
        samples, clip = read_mono(path, treatment)
    except DataError as error:
        return str(error)
    if silence.is_silent(samples):
        return f"{path}: nothing but silence"
    if not treatment.trim_silence:
        return clip
    start, end = silence.sound_bounds(samples, clip.rate)
    margin = round(MARGIN * clip.rate)
    return clip._replace(start=max(0, start - margin), end=min(len(samples), end + margin))


def check_clips(rows: Rows, treatment: Treatment, workers: int) -> dict[int, Clip]:
    """Return the clips of all good recordings by row, and add the problems of the others to the rows' problems."""
    there = [recording for recording in rows.recordings if os.path.isfile(recording.path)]
    check = partial(check_clip, treatment=treatment)
    found = run_parallel(check, [recording.path for recording in there], workers, "checking")
    clips = {}
    for recording, result in zip(there, found, strict=True):
        if isinstance(result, str):
            add_problem(rows.problems, recording.row, result)
        else:
            clips[recording.row] = result
    return clips


def needs_copies(clips: Iterable[Clip], treatment: Treatment) -> bool:
    """Return True if any recording must be converted or trimmed."""
    return treatment.trim_silence or any((c.rate, c.channels) != (treatment.sampling_rate, 1) for c in clips)


def convert(job: tuple[Path, Clip, Path], treatment: Treatment) -> str | None:
    """Make the 16-bit copy of a recording for training. Returns the problem with it, or None."""
    source, clip, target = job
    rate = treatment.sampling_rate
    try:
        samples = read_mono(source, treatment)[0][clip.start : clip.end]
        if clip.rate != rate:
            samples = resample(samples, clip.rate, rate)
        save_audio(target, torch.from_numpy(samples), rate)
    except DataError as error:
        return str(error)
    return None


def convert_clips(jobs: Sequence[tuple[Path, Clip, Path]], treatment: Treatment, folder: Path, workers: int) -> int:
    """Make the copies that are missing in `folder`, older than their recording, or made with other settings. Returns their number.

    Raises:
        DataError: recordings that changed since they were checked, or copies that cannot be written; all are listed.
    """
    labelled = _label(folder, treatment, [source for source, _, _ in jobs])
    todo = [job for job in jobs if not _is_current(job[2], labelled, job[0])]
    problems = run_parallel(partial(convert, treatment=treatment), todo, workers, "converting")
    if any(problems):
        raise DataError("\n".join(problem for problem in problems if problem))
    return len(todo)


def _label(folder: Path, treatment: Treatment, sources: Sequence[Path]) -> Path:
    """Write the sources and settings of the copies if they changed; copies older than this file were made with others."""
    path = folder / SETTINGS
    common = os.path.commonpath([source.resolve().parent for source in sources])
    settings = asdict(treatment) | {"trim_db": silence.DEPTH, "margin": MARGIN, "recordings": common}
    if treatment.trim_silence:
        settings["trim_frame"] = silence.FRAME
    content = f"{json.dumps(settings, indent=1)}\n".encode()
    try:
        if folder.is_dir() and not path.exists() and any(folder.iterdir()):
            raise DataError(f"{folder}: not empty, and not made by this command: choose another name for the copies")
        if not os.path.isfile(path) or path.read_bytes() != content:
            with atomic_write(path) as file:
                file.write(content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
    return path


def _is_current(copy: Path, *sources: Path) -> bool:
    return os.path.isfile(copy) and all(copy.stat().st_mtime_ns >= source.stat().st_mtime_ns for source in sources)


def choose_held_out(names: Sequence[str], validation: float) -> set[str]:
    """Choose the clips for validation, a number or a share below 1: those whose names have the lowest hashes.

    So adding or removing clips later moves few others. Raises DataError if none would be left for training.
    """
    count = max(1, round(validation * len(names))) if validation < 1 else int(validation)
    if count >= len(names):
        raise DataError(f"{len(names)} clips, expected more than the {count} for validation")
    return set(sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())[:count])


def changes(clips: Mapping[str, Clip], treatment: Treatment) -> list[str]:
    """Describe the changes made to clips, each with its number of clips."""
    rates = Counter(clip.rate for clip in clips.values() if clip.rate != treatment.sampling_rate)
    phrases = [f"{count} resampled from {rate} Hz" for rate, count in sorted(rates.items())]
    mixed = sum(clip.channels > 1 for clip in clips.values())
    phrases += [f"{mixed} mixed down to mono"] if mixed else []
    return phrases + (["silent ends cut"] if treatment.trim_silence else [])
