"""The report of a data set: measurements of its clips' sound and texts, repetitions, outliers and unusable rows, as tables."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from common.audio import silence
from common.audio.audio_processing import load_audio
from common.audio.mpeg import quiet_decoder
from common.data.filelist import Utterance, sift_filelist
from common.data.mels import unusable_rows
from common.data.parallel import run_parallel
from common.errors import DataError, shorten
from common.files import locate_problems
from common.progress import counted
from common.spec import AcousticInference, ModelSpec, Options
from common.tables import text_table

# N samples, C clips
Floats = npt.NDArray[np.float64]

FULL_SCALE = 32767 / 32768  # the largest sample of 16 bits
CLIPPED_RUN = 3  # consecutive samples at full scale; one or two may be a peak that just fits
OUTLIER_DEVIATIONS = 5.0  # in median absolute deviations
WORST = 10  # most rows of a table of clips
LONG_TEXT = 200  # characters
LONG_CLIP, SHORT_CLIP = 11.0, 0.3  # s
SHOWN_TEXT = 60  # characters


class ListedClip(NamedTuple):
    """A readable row of a filelist: its line, from 1, and its file in the dataset's folder."""

    filelist: str
    line: int
    path: str
    text: str
    file: str

    @property
    def place(self) -> str:
        """Filelist and line."""
        return f"{self.filelist}:{self.line}"


class Header(NamedTuple):
    """Header of an audio file: Hz, channels, and container with codec."""

    rate: int
    channels: int
    encoding: str


class SoundMeasures(NamedTuple):
    """Measurements of one clip. Levels are about its mean; 0 dBFS means every sample at full scale, and silence has -inf."""

    duration: float  # s
    rms: float  # dBFS
    peak: float  # dBFS
    leading_silence: float  # s; the whole length of a clip without any sound, as the next
    trailing_silence: float  # s
    clipped_runs: int
    longest_run: int  # samples
    digest: str  # of the samples, so the same sound has the same digest in any file or format


class MeasuredClip(NamedTuple):
    """A usable row and its sound."""

    row: ListedClip
    sound: SoundMeasures

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
    """The clips of all filelists, in order: usable clips, all readable headers, problems of the other rows."""

    clips: list[MeasuredClip]
    headers: list[Header]
    problems: dict[str, dict[int, str]]  # of each filelist, by index of the row; empty without any

    def describe_problems(self, dataset_path: Path) -> str:
        """List every unusable row as FILELIST:LINE: problem, and count them in a last line; "" if there are none."""
        lines = [line for name, found in self.problems.items() for line in locate_problems(name, found)]
        if not lines:
            return ""
        is_missing = any(line.endswith("no such audio file") for line in lines)
        advice = f" (paths are relative to --dataset-path, now {dataset_path})" if is_missing else ""
        rows = counted(len(lines) + len(self.clips), "row")
        return "\n".join(["unusable rows", *lines, f"unusable: {len(lines)} of {rows}{advice}: fix or remove them"])


class Outliers(NamedTuple):
    """Values far from the median: their indices, farthest first, and all distances in deviations."""

    median: float
    deviation: float  # median absolute
    indices: list[int]
    deviations: Floats  # for all values


def survey(filelists: Sequence[Path], spec: ModelSpec, options: Options, workers: int) -> Survey:
    """Measure every clip of some filelists, in parallel.

    Args:
        filelists: filelists with rows audio|text.
        spec: the model that reads texts, to find the rows that its training refuses.
        options: its flags by name, and dataset_path and sampling_rate.
        workers: number of processes.

    Raises:
        DataError: a filelist that is missing, empty, or names mels. Bad rows are listed as problems instead.
    """
    rows: list[ListedClip] = []
    problems: dict[str, dict[int, str]] = {}
    for path in filelists:
        good, problems[str(path)] = read_rows(path, options["dataset_path"])
        rows += good
    rate = options["sampling_rate"]
    measured = run_parallel(partial(measure_file, sampling_rate=rate), [row.file for row in rows], workers, "report")
    lengths = [round(sound.duration * rate) if isinstance(sound, SoundMeasures) else None for _, sound in measured]
    refused = unusable_rows(spec, options, [Utterance(row.path, row.text) for row in rows], lengths)
    clips = []
    for number, (row, (_, sound)) in enumerate(zip(rows, measured, strict=True)):
        of_row = [refused[number]] if number in refused else []
        of_row += [sound] if isinstance(sound, str) else []
        if of_row:
            problems[row.filelist][row.line - 1] = "; ".join(of_row)
        elif isinstance(sound, SoundMeasures):
            clips.append(MeasuredClip(row, sound))
    return Survey(clips, [header for header, _ in measured if header], problems)


def read_rows(path: Path, dataset_path: Path) -> tuple[list[ListedClip], dict[int, str]]:
    """Read the rows `path|text` of a filelist, and the problems of its other lines by index from 0.

    Raises:
        DataError: if the filelist is missing, empty, or names mels.
    """
    items, faults = sift_filelist(path)
    rows = [
        ListedClip(str(path), line, item.path, item.text, os.path.normpath(dataset_path / item.path))
        for line, item in items.items()
    ]
    if rows and all(row.path.endswith(".pt") for row in rows):
        twin = path.with_name(path.name.replace("_mel_", "_audio_"))
        advice = f", here {twin}" if twin != path and twin.is_file() else ""
        raise DataError(f"{path}: its rows name mels (.pt), expected audio files: pass the audio list{advice}")
    return rows, {line - 1: fault for line, fault in faults.items()}


def measure_file(file: str, sampling_rate: int) -> tuple[Header | None, SoundMeasures | str]:
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


def measure(samples: npt.NDArray[np.float32], sampling_rate: int) -> SoundMeasures:
    """Measure samples (N,) in [-1, 1]; N is at least 1."""
    start, end = silence.sound_bounds(samples, sampling_rate)
    runs = clipped_runs(samples)
    centred = silence.without_offset(samples)
    return SoundMeasures(
        duration=len(samples) / sampling_rate,
        rms=_decibels(float(np.square(centred).mean())),
        peak=_decibels(float(np.abs(centred).max()) ** 2),
        leading_silence=(start if end else len(samples)) / sampling_rate,
        trailing_silence=(len(samples) - end) / sampling_rate,
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


def group_by(clips: Sequence[MeasuredClip], key: Callable[[MeasuredClip], Hashable]) -> list[list[MeasuredClip]]:
    """Group clips that share a key, largest group first; single clips are left out."""
    groups: dict[Hashable, list[MeasuredClip]] = defaultdict(list)
    for clip in clips:
        groups[key(clip)].append(clip)
    return sorted((group for group in groups.values() if len(group) > 1), key=len, reverse=True)


def describe(found: Survey, spec: ModelSpec, options: Options) -> str:
    """Write the report of a survey, with the number of unusable rows but not their problems; arguments as survey takes them."""
    sections = [_overview(found), *_files(found)]
    if found.clips:
        findings = [_clipping(found.clips), _repetitions(found.clips), *_outliers(found.clips), *_limits(found.clips)]
        findings.append(_characters(found.clips, spec, options))
        nothing_found = [finding for finding in findings if "\n" not in finding]
        sections += [_quantities(found.clips), *(finding for finding in findings if "\n" in finding)]
        sections += ["\n".join(nothing_found)] if nothing_found else []
    return "\n\n".join(sections)


def table(columns: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Indent a text table by two spaces, to stand below its section's title."""
    return indent(text_table(columns, header, rows), "  ")


def _overview(found: Survey) -> str:
    rows = []
    for name, problems in found.problems.items():
        clips = [clip for clip in found.clips if clip.row.filelist == name]
        rows.append((name, *_sums(clips, len(problems))))
    if len(rows) > 1:
        rows.append(("together", *_sums(found.clips, sum(map(len, found.problems.values())))))
    return table("<>>>>>", ("filelist", "clips", "unusable rows", "hours", "words", "characters"), rows)


def _sums(clips: Sequence[MeasuredClip], unusable: int) -> tuple[int, int, str, int, int]:
    hours = sum(clip.sound.duration for clip in clips) / 3600
    return len(clips), unusable, f"{hours:.3f}", sum(c.words for c in clips), sum(c.characters for c in clips)


def _files(found: Survey) -> Iterator[str]:
    """Yield tables of rates, channels and formats of all headers, including those of unusable files."""
    for name, field in (("sampling rate (Hz)", "rate"), ("channels", "channels"), ("encoding", "encoding")):
        counts = Counter(str(getattr(header, field)) for header in found.headers)
        if counts:
            yield table("<>", (name, "files"), counts.most_common())


def quantities(clips: Sequence[MeasuredClip]) -> dict[str, tuple[int, Floats]]:
    """Return what is told of clips (C,), by name: the decimals to show, and the value of each (C,)."""
    values: dict[str, tuple[int, list[float]]] = {
        "duration (s)": (2, [clip.sound.duration for clip in clips]),
        "words": (0, [clip.words for clip in clips]),
        "characters": (0, [clip.characters for clip in clips]),
        "characters a second": (1, [clip.pace for clip in clips]),
        "level, RMS (dBFS)": (1, [clip.sound.rms for clip in clips]),
        "peak (dBFS)": (1, [clip.sound.peak for clip in clips]),
        "silence at the beginning (s)": (2, [clip.sound.leading_silence for clip in clips]),
        "silence at the end (s)": (2, [clip.sound.trailing_silence for clip in clips]),
    }
    return {name: (digits, np.array(found, np.float64)) for name, (digits, found) in values.items()}


def _quantities(clips: Sequence[MeasuredClip]) -> str:
    # + 0.0, so that a peak that rounds to zero is not printed as -0.0
    rows = [
        (name, *(f"{round(v, digits) + 0.0:.{digits}f}" for v in _spread(values)))
        for name, (digits, values) in quantities(clips).items()
    ]
    note = (
        "  0 dBFS: every sample at full scale. "
        f"Silence: frames of {silence.FRAME * 1000:g} ms more than {silence.DEPTH:g} dB below the clip's loudest."
    )
    return table("<>>>>>>", ("", "least", "5 %", "median", "mean", "95 %", "most"), rows) + "\n" + note


def _spread(values: Floats) -> tuple[float, ...]:
    # not interpolated, since one value may be -inf dB
    low, high = np.quantile(values, (0.05, 0.95), method="inverted_cdf")
    return values.min(), low, float(np.median(values)), values.mean(), high, values.max()


def _name_clips(title: str, found: Sequence[tuple[MeasuredClip, Sequence[Any]]], extra: Sequence[str]) -> str:
    """Write a table of a finding's first WORST clips with their measurements; a single line if there are none."""
    if not found:
        return f"{title}: none"
    more = f", the first {WORST}" if len(found) > WORST else ""
    rows = [(*cells, clip.row.place, clip.row.path) for clip, cells in found[:WORST]]
    columns = ">" * len(extra) + "<<"
    return f"{title}: {counted(len(found), 'clip')}{more}\n" + table(columns, (*extra, "row", "file"), rows)


def _clipping(clips: Sequence[MeasuredClip]) -> str:
    clipped = [clip for clip in clips if clip.sound.clipped_runs]
    clipped.sort(key=lambda clip: (clip.sound.clipped_runs, clip.sound.longest_run), reverse=True)
    found = [(clip, (clip.sound.clipped_runs, clip.sound.longest_run)) for clip in clipped]
    title = f"Clipping, runs of at least {CLIPPED_RUN} samples at full scale"
    return _name_clips(title, found, ("runs", "longest (samples)"))


def _repetitions(clips: Sequence[MeasuredClip]) -> str:
    same_sound = group_by(clips, lambda clip: clip.sound.digest)
    kinds = {
        "path": group_by(clips, lambda clip: clip.row.file),
        "text": group_by(clips, lambda clip: clip.row.text),
        "audio, other path": [group for group in same_sound if len({clip.row.file for clip in group}) > 1],
    }
    if not any(kinds.values()):
        return "Repetitions of a path, a text or the samples of a clip: none"
    rows = []
    for kind, group in ((kind, group) for kind, groups in kinds.items() for group in groups[:WORST]):
        is_across = len({clip.row.filelist for clip in group}) > 1
        places = [clip.row.place for clip in group[:3]] + (["…"] if len(group) > 3 else [])
        shared = repr(shorten(group[0].row.text, SHOWN_TEXT)) if kind == "text" else group[0].row.path
        rows.append((kind, len(group), "yes" if is_across else "no", shared, ", ".join(places)))
    counts = ", ".join(f"{counted(len(groups), 'group')} of the same {kind}" for kind, groups in kinds.items())
    return f"Repetitions: {counts}\n" + table("<><<<", ("same", "clips", "across filelists", "which", "rows"), rows)


def _outliers(clips: Sequence[MeasuredClip]) -> Iterator[str]:
    for name in ("duration (s)", "characters a second"):
        _, values = quantities(clips)[name]
        far = outliers(values)
        found = [(clips[i], (f"{values[i]:.2f}", f"{far.deviations[i]:.2f}")) for i in far.indices]
        around = f"{far.deviation:.2f} from the median of {far.median:.2f}"
        title = f"{name.capitalize()} beyond {OUTLIER_DEVIATIONS:g} MADs of {around}"
        yield _name_clips(title, found, (name, "MADs off"))


def _limits(clips: Sequence[MeasuredClip]) -> Iterator[str]:
    by_length = sorted(clips, key=lambda clip: clip.sound.duration)
    wordy = sorted((clip for clip in clips if clip.characters > LONG_TEXT), key=lambda clip: -clip.characters)
    yield _name_clips(
        f"Texts of over {LONG_TEXT} characters", [(clip, [clip.characters]) for clip in wordy], ["characters"]
    )
    long = [clip for clip in reversed(by_length) if clip.sound.duration > LONG_CLIP]
    short = [clip for clip in by_length if clip.sound.duration < SHORT_CLIP]
    for title, chosen in ((f"Longer than {LONG_CLIP:g} s", long), (f"Shorter than {SHORT_CLIP:g} s", short)):
        yield _name_clips(title, [(clip, [f"{clip.sound.duration:.2f}"]) for clip in chosen], ["duration (s)"])
    silent = [(clip, [f"{clip.sound.duration:.2f}"]) for clip in clips if not np.isfinite(clip.sound.rms)]
    yield _name_clips("Silent throughout", silent, ["duration (s)"])


def _characters(clips: Sequence[MeasuredClip], spec: ModelSpec, options: Options) -> str:
    assert isinstance(spec.inference, AcousticInference)
    texts: Counter[str] = Counter()
    first: dict[str, MeasuredClip] = {}
    for clip in clips:
        for character in spec.inference.dropped(clip.row.text, options):
            texts[character] += 1
            first.setdefault(character, clip)
    title = f"Characters that {', '.join(options['text_cleaners'])} drop"
    if not texts:
        return f"{title}: none"
    rows = [
        (
            count,
            f"U+{ord(character):04X}",
            unicodedata.name(character, "no name").lower(),
            first[character].row.place,
            character if character.isprintable() else ascii(character),
        )
        for character, count in texts.most_common()
    ]  # the character comes last, because a wide or combining one would shift the columns after it
    header = ("texts", "code point", "name", "first row", "character")
    return f"{title}: {len(texts):,} kinds\n" + table("><<<<", header, rows)
