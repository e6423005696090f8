"""Recordings of any origin: the rows that name them, problems that rule them out for training, and converted copies.

Each stays one clip: studio.prepare's parts check and convert it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from common.arguments import sampling_rate
from common.audio.audio_processing import check_header
from common.audio.stft import AudioConfig
from common.data.parallel import run_parallel
from common.data.sources import Names, SourceFile, find_files, find_sources
from common.data.tables import WANTED, read_table
from common.errors import DataError, UsageError, shorten_list
from common.files import make_folder, writing
from common.options import option
from common.progress import counted
from studio.prepare.arguments import CuttingConfig
from studio.prepare.clips import CuttingJob, cut_recording, remove_stale
from studio.prepare.cutting import spans_of, units_of
from studio.prepare.levels import AUDIBLE, measure_levels
from studio.prepare.transcripts import Transcript

TRAINED = (".wav", ".flac", ".ogg", ".opus", ".mp3")  # endings of what training reads; others have to be converted
RECORDS = "records"  # beside the folder of copies: what each was made from
EARLIER = "settings.json"  # among copies, of version 0.12 and before
MARGIN = 0.05  # seconds of silence kept at either end
WHOLE, LONGEST = 1e8, 1e9  # seconds: a margin that reaches both ends of any recording, and no limit


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
    """The rows of a list: its file, its recordings, problems by number of the row from 0, and a phrase about the texts' source."""

    place: Path
    recordings: list[Recording]
    problems: dict[int, str]
    source: str = ""


@dataclass(frozen=True)
class Treatment:
    """How to treat recordings."""

    sampling_rate: int = option(
        AudioConfig.sampling_rate, "sampling rate of all clips in Hz", "-sr", type=sampling_rate
    )
    resample: bool = option(False, "convert other sampling rates and formats, and stereo to mono")
    trim_silence: bool = option(False, "trim silence at both ends to 50 ms")

    @property
    def cutting(self) -> CuttingConfig:
        """How studio.prepare cuts a recording that stays one clip, as loud as it is."""
        margin = MARGIN if self.trim_silence else WHOLE
        return CuttingConfig(
            sampling_rate=self.sampling_rate, max_duration=LONGEST, margin=margin, normalize="none", fill_silence=False
        )


class CheckedClip(NamedTuple):
    """A checked recording: its rate in Hz, its channels, and the seconds to keep."""

    rate: int
    channels: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """The length to keep."""
        return self.end - self.start


Clips = dict[Recording, CheckedClip]


def read_rows(path: Path, dataset_path: Path) -> Rows:
    """Read the recordings that a folder's metadata.csv or a list names, and the problems of all rows.

    Two clips with one name, such as A.wav and A.flac, would share a copy and a mel. Raises DataError for a table that is missing
    or has no rows, and for a list that names no file and may be prose.
    """
    place = path / "metadata.csv" if path.is_dir() else path
    if not place.exists():
        other = "python -m studio.prepare FOLDER reads recordings with other texts or none"
        raise DataError(f"{place}: no such file; {WANTED}; {other}")
    table = read_table(place)
    if not table.rows and not table.problems:
        raise DataError(f"{place}: no rows in it; {WANTED}")
    named = [identifier for identifier, _ in table.rows.values()]
    files = _named_below(path, named) if path.is_dir() else _listed(path, named, dataset_path)
    if table.may_be_prose and not path.is_dir() and all(problem for _, problem in files):
        raise DataError(f"{path}: names no file under {path.parent} or {dataset_path}; expected rows path|text")
    rows = Rows(place, [], dict(table.problems), table.note.removeprefix("; "))
    first: dict[str, int] = {}
    for (line, (_, text)), (file, problem) in zip(table.rows.items(), files, strict=True):
        recording = Recording(line - 1, file, text)
        rows.recordings.append(recording)
        earlier = first.setdefault(recording.name, recording.row)
        shared = f"a clip named {recording.name} is in row {earlier + 1}, too" if earlier != recording.row else ""
        for found in filter(None, (problem, "" if text else "no text", shared)):
            add_problem(rows.problems, recording.row, found)
    return rows


def _named_below(folder: Path, named: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the recording in a folder that each identifier names, and "" or the problem with it."""
    places = {source.name: source.path for source in find_sources(folder).sources}
    names, found = Names(places), []
    for identifier in named:
        matches = names.find(identifier)
        files = [name for name in matches if name.lower().endswith(TRAINED)] or matches
        problem = ""
        if not files:
            problem = f"no recording {identifier} in {folder}"
        elif len(files) > 1:
            problem = f"{identifier} names {' and '.join(files)}, expected one; write the id with its ending"
        found.append((places[files[0]] if files else folder / identifier, problem))
    return found


def _listed(path: Path, named: Sequence[str], dataset_path: Path) -> list[tuple[Path, str]]:
    """Return the files of a list, in its own folder or, if none is there, in `dataset_path`, and "" or the problem with each."""
    found, base = find_files(path.parent, named), path.parent
    if not any(found):
        found, base = find_files(dataset_path, named), dataset_path
    return [(file or base / name, "" if file else f"no file {base / name}") for file, name in zip(found, named)]


def add_problem(problems: dict[int, str], row: int, problem: str) -> None:
    """Add a problem to a row's others."""
    problems[row] = f"{problems[row]}; {problem}" if row in problems else problem


def check_clip(path: Path, treatment: Treatment) -> CheckedClip | str:
    """Return the properties of a recording and the part to keep, or the problem with it."""
    try:
        levels = measure_levels(path)
        if not treatment.resample:
            check_header(str(path), levels.channels, levels.rate, treatment.sampling_rate)
            if path.suffix.lower() not in TRAINED:
                return f"{path}: training does not read {path.suffix} files: convert it, for instance to wav"
    except DataError as error:
        return str(error)
    if levels.missing:
        whole = levels.samples + levels.missing
        return f"{path}: cut short or damaged, {levels.samples} samples of {whole}: copy it again"
    if levels.levels.max() < AUDIBLE:
        return f"{path}: nothing but silence"
    clip = CheckedClip(levels.rate, levels.channels, 0.0, levels.seconds)
    if not treatment.trim_silence:
        return clip
    spans = spans_of(units_of(levels, treatment.cutting, is_one_clip=True), levels.seconds, treatment.cutting)
    return clip._replace(start=spans[0].start, end=spans[0].end) if spans else f"{path}: no speech found in it"


def check_clips(rows: Rows, treatment: Treatment, workers: int) -> Clips:
    """Return the clips of the recordings that can be read, in order, and add the others' problems to those of the rows."""
    there = [recording for recording in rows.recordings if os.path.isfile(recording.path)]
    check = partial(check_clip, treatment=treatment)
    found = run_parallel(check, [recording.path for recording in there], workers, "checking")
    clips: Clips = {}
    for recording, result in zip(there, found, strict=True):
        if isinstance(result, str):
            add_problem(rows.problems, recording.row, result)
        else:
            clips[recording] = result
    return clips


def within_limits(clips: Clips, shortest: float, longest: float) -> Clips:
    """Select the clips within the limits in seconds, and print the others."""
    short = [recording for recording, clip in clips.items() if clip.seconds < shortest]
    long = [recording for recording, clip in clips.items() if clip.seconds > longest]
    for left_out, what in ((short, f"shorter than {shortest} s"), (long, f"longer than {longest} s")):
        if left_out:
            named = shorten_list([f"{recording.name} ({clips[recording].seconds:.2f} s)" for recording in left_out])
            print(f"left out, {what}: {counted(len(left_out), 'clip')}: {', '.join(named)}")
    return {recording: clip for recording, clip in clips.items() if recording not in {*short, *long}}


def place_clips(clips: Clips, folder: Path, treatment: Treatment, workers: int) -> dict[Recording, Path]:
    """Return the files to train on: the recordings or, if any has to be converted, copies of all in `folder`."""
    changed = changes(clips, treatment)
    if not changed:
        print("all clips can be used as they are: no copies")
        return {recording: recording.path for recording in clips}
    if any(recording.path.resolve().is_relative_to(folder.resolve()) for recording in clips):  # the only ones, perhaps
        raise UsageError(f"--name: copies would go to {folder}, where the recordings are; choose another name")
    records = folder.parent / RECORDS
    if not (records.is_dir() or (folder / EARLIER).is_file()) and folder.is_dir() and any(folder.iterdir()):
        raise DataError(f"{folder}: not empty, and not made by this command: choose another name for the copies")
    with writing(folder):
        make_folder(records)
        make_folder(folder)
    jobs = [
        CuttingJob(
            SourceFile(r.path, str(r.path), r.name), Transcript(r.name, r.text), treatment.cutting, records, folder
        )
        for r in clips
    ]
    before = {path.stem for path in records.iterdir()}
    found = run_parallel(cut_recording, jobs, workers, "converting")
    if problems := [problem for problem in found if isinstance(problem, str)]:
        raise DataError("\n".join(problems))
    copies = [copy for copy in found if not isinstance(copy, str)]
    remove_stale(records, folder, copies)
    n_new = sum(copy.key not in before for copy in copies)
    print(f"copies in {folder}: {', '.join(changed)}; {n_new} made, {len(copies) - n_new} up to date")
    return {recording: folder / f"{recording.name}.wav" for recording in clips}


def changes(clips: Clips, treatment: Treatment) -> list[str]:
    """Describe the changes made to clips, each with its number of clips."""
    formats = Counter(recording.path.suffix for recording in clips)
    phrases = [f"{count} converted from {ending}" for ending, count in formats.items() if ending.lower() not in TRAINED]
    rates = Counter(clip.rate for clip in clips.values() if clip.rate != treatment.sampling_rate)
    phrases += [f"{count} resampled from {rate} Hz" for rate, count in sorted(rates.items())]
    mixed = sum(clip.channels > 1 for clip in clips.values())
    phrases += [f"{mixed} mixed down to mono"] if mixed else []
    return phrases + (["silent ends cut"] if treatment.trim_silence else [])
