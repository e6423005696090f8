"""Quality reports: lines spoken by several systems, their measures with confidence intervals, and a table, JSON or page of them.

Intervals are percentile bootstraps over lines (Efron and Tibshirani 1993, chapter 13). The page is one HTML file with players, mels
and alignments, worst lines first.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from common.audio.audio_processing import FORMATS, encode
from common.progress import counted
from common.quality.words import Errors
from common.tables import text_table

# M mels, T frames, S symbols, K decoder steps, N samples
Array = npt.NDArray[Any]

RESAMPLES, LIMITS = 1000, (2.5, 97.5)  # draws of a bootstrap, and the percentiles of its interval
TEMPLATE = "report.html"
RECORDINGS = "recordings"  # the name of the system that they are
GAP = 2  # spaces between the columns of a text table


class ReportLine(NamedTuple):
    """One text from one system: its sound (N,), the recogniser's transcript, and its measures.

    `values` and `counts` have the applicable keys of MEASURES; pictures are mels (M, T) and alignments (S, K).
    """

    text: str
    sound: Array
    transcript: str
    values: dict[str, float]
    counts: dict[str, Errors]
    pictures: dict[str, Array]


class System(NamedTuple):
    """One source of sounds for all lines; `real_time_factor` is seconds of sound per second of work, nan for recordings."""

    name: str
    lines: list[ReportLine]
    real_time_factor: float


class Measure(NamedTuple):
    """A column: its title, its meaning, and the factor and decimals of its numbers."""

    title: str
    meaning: str
    factor: float
    decimals: int
    pooled: bool = False  # errors of all lines divided by words of all lines, instead of the mean over lines


MEASURES: dict[str, Measure] = {
    "wer": Measure("WER %", "wrong words of the recogniser's transcript", 100, 1, True),
    "cer": Measure("CER %", "wrong characters of the transcript", 100, 1, True),
    "mos": Measure("MOS", "Distill-MOS, 1 to 5: how natural it sounds", 1, 2),
    "dnsmos": Measure("DNSMOS", "overall score of DNSMOS P.835, 1 to 5: how clean it sounds", 1, 2),
    "pesq": Measure("PESQ", "wideband PESQ of true mels against the recording, 1 to 4.64", 1, 2),
    "estoi": Measure("ESTOI", "intelligibility of true mels by their likeness to the recording, at most 1", 1, 3),
    "mcd": Measure("MCD dB", "mel-cepstral distortion up to 8 kHz against the recording, after time warping", 1, 2),
    "f0_rmse": Measure("F0 Hz", "root mean square difference of pitch", 1, 1),
    "voicing_error": Measure("voicing %", "frames voiced in one and not in the other", 100, 1),
    "speaker": Measure(
        "speaker", "likeness of the speaker, at most 1: cosine with the mean of the speaker's clips", 1, 3
    ),
    "duration_ratio": Measure("length", "seconds over the recording's", 1, 2),
    "ran_to_limit": Measure("no stop %", "reached the frame limit", 100, 1),
    "stopped_early": Measure("early %", "stopped before the end of the text", 100, 1),
    "skips": Measure("skips", "places where attention jumps ahead, a line", 1, 2),
    "repeats": Measure("repeats", "places where attention returns to earlier text, a line", 1, 2),
    "focus": Measure("focus", "mean largest attention weight of a step", 1, 2),
    "monotonicity": Measure("monotone", "share of steps that do not go back", 1, 2),
    "coverage": Measure("coverage", "share of symbols that got attention", 1, 2),
}


class Interval(NamedTuple):
    """A statistic of all lines and the limits of its confidence interval; nan if the lines do not define it."""

    value: float
    low: float
    high: float


def mean(values: np.ndarray) -> float:
    """Average numbers (L,), ignoring nan; nan if nothing is left."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else math.nan


def pooled_rate(pairs: np.ndarray) -> float:
    """Divide all errors by all counts of pairs (L, 2), so that each word has the same weight; nan if all counts are 0."""
    if not len(pairs):
        return math.nan
    errors, count = pairs.sum(axis=0)
    return float(errors / count) if count else math.nan


def bootstrap(
    values: Sequence[float] | Sequence[tuple[int, int]] | np.ndarray, statistic: Callable[[np.ndarray], float] = mean
) -> Interval:
    """Compute a statistic and its 95 % confidence interval over lines drawn from the same source; equal arguments, equal limits.

    scipy.stats.bootstrap, method="percentile", gives the same numbers, but takes a second to import.

    Args:
        values: a number per line (L,), or a pair (errors, count) per line (L, 2), resampled together. Lines with nan are ignored.
        statistic: maps such an array to a number: `mean`, `pooled_rate`.

    With fewer than two lines the limits are nan.
    """
    lines = np.asarray(values, dtype=np.float64)
    lines = lines[~np.isnan(lines.reshape(len(lines), -1)).any(axis=1)] if len(lines) else lines
    if len(lines) < 2:
        return Interval(statistic(lines) if len(lines) else math.nan, math.nan, math.nan)
    draws = np.random.default_rng(0).integers(len(lines), size=(RESAMPLES, len(lines)))
    low, high = np.percentile([statistic(lines[draw]) for draw in draws], LIMITS)
    return Interval(statistic(lines), float(low), float(high))


def summary(system: System) -> dict[str, Interval]:
    """Compute each measure of a system over its lines, with its 95 % bootstrap interval; measures no line has are left out."""
    return {
        key: bootstrap(values, pooled_rate if measure.pooled else mean)
        for key, measure in MEASURES.items()
        if (values := _values_of(system, key, measure))
    }


def capped_error_rate(system: System) -> float:
    """Pool the wrong words of a system's lines, capping each line's at its number of words; nan if nothing is counted.

    The usual rate counts all insertions, so a single line on which the decoder never stops would outweigh all others.
    """
    pairs = [line.counts["wer"].cap() for line in system.lines if "wer" in line.counts]
    return pooled_rate(np.array(pairs, dtype=float).reshape(-1, 2))


def _values_of(system: System, key: str, measure: Measure) -> list[Any]:
    of_lines: list[Mapping[str, Any]] = [line.counts if measure.pooled else line.values for line in system.lines]
    return [of_line[key] for of_line in of_lines if key in of_line]


def table(systems: Sequence[System], width: int) -> str:
    """Format the systems as text tables below each other of at most `width` characters, if one measure fits.

    A system is a row, a measure with its 95 % interval a column.
    """
    keys = columns_of(systems)
    header = ["system", *(MEASURES[key].title for key in keys), "x real time"]
    names, *columns = zip(header, *(format_row(system, keys) for system in systems))
    blocks = [[names]]
    for column in columns:
        used = sum(max(map(len, each)) + GAP for each in [*blocks[-1], column]) - GAP
        if used > width and len(blocks[-1]) > 1:
            blocks.append([names])
        blocks[-1].append(column)
    tables = [list(zip(*block)) for block in blocks]
    return "\n\n".join(text_table("<" + ">" * len(rows[0][1:]), rows[0], rows[1:]) for rows in tables)


def headline(systems: Sequence[System], main_system: System) -> str:
    """Say in a sentence how well the main system speaks, beside the recordings if there are any."""

    def measured(system: System) -> str:
        found = summary(system)
        keys = [key for key in ("wer", "mos") if key in found]
        return ", ".join(f"{MEASURES[key].title} {format_interval(found[key], MEASURES[key])}" for key in keys)

    others = [system for system in systems if system.name == RECORDINGS and system is not main_system]
    parts = [f"{system.name}: {words}" for system in (main_system, *others) if (words := measured(system))]
    return "; ".join([*parts, f"{counted(len(main_system.lines), 'line')}, measured on {date.today().isoformat()}"])


def columns_of(systems: Sequence[System]) -> list[str]:
    """List the keys of the measures that any system has, in the order of MEASURES."""
    return [key for key, measure in MEASURES.items() if any(_values_of(system, key, measure) for system in systems)]


def format_row(system: System, keys: Sequence[str]) -> list[str]:
    """Format a system's name, the measures with these keys, and its real-time factor."""
    measured = summary(system)
    speed = "-" if math.isnan(system.real_time_factor) else f"{system.real_time_factor:.2f}"
    return [system.name, *(format_interval(measured.get(key), MEASURES[key]) for key in keys), speed]


def format_interval(interval: Interval | None, measure: Measure) -> str:
    """Format an interval as `12.3 [9.8, 15.1]`, or `-` if there is none."""
    if interval is None or math.isnan(interval.value):
        return "-"
    value, low, high = (f"{measure.factor * number:.{measure.decimals}f}" for number in interval)
    return value if value == low == high or math.isnan(interval.low) else f"{value} [{low}, {high}]"


def legend() -> str:
    """Explain the columns, one per line."""
    width = max(len(measure.title) for measure in MEASURES.values())
    lines = [f"{measure.title:<{width}}  {measure.meaning}" for measure in MEASURES.values()]
    return "\n".join([*lines, "[low, high]: 95 % interval of a bootstrap over lines"])


def as_json(systems: Sequence[System], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything but sounds and pictures as plain numbers and strings; nan becomes None, since JSON has no nan."""
    return {
        "settings": dict(settings),
        "systems": [
            {
                "name": system.name,
                "real_time_factor": _plain(system.real_time_factor),
                "summary": {key: [_plain(number) for number in value] for key, value in summary(system).items()},
                "lines": [_line_as_json(line) for line in system.lines],
            }
            for system in systems
        ],
    }


def _line_as_json(line: ReportLine) -> dict[str, Any]:
    values = {key: _plain(value) for key, value in line.values.items()}
    counts = {key: {"errors": pair.errors, "count": pair.count} for key, pair in line.counts.items()}
    return {"text": line.text, "heard": line.transcript, "values": values, "counts": counts}


def _plain(number: float) -> float | None:
    return None if math.isnan(number) else float(np.round(number, 6))


def rank_lines(system: System) -> list[int]:
    """Order the indices of a system's lines by most wrong words, then by lowest opinion score."""

    def badness(number: int) -> tuple[float, float]:
        line = system.lines[number]
        wrong = line.counts["wer"].rate if "wer" in line.counts else 0.0
        return -wrong, line.values.get("mos", 0.0)

    return sorted(range(len(system.lines)), key=badness)


def page(title: str, systems: Sequence[System], main_system: System, rate: int) -> str:
    """Render the page: a table of all systems, then each line with all of them, the worst of `main_system` first.

    Args:
        title: the title of the page.
        systems: the systems, all with the same lines.
        main_system: the system that determines the order of lines.
        rate: sampling rate of the sounds in Hz.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    keys = columns_of(systems)
    return environment.get_template(TEMPLATE).render(
        title=title,
        headline=headline(systems, main_system),
        measures=[MEASURES[key] for key in keys],
        rows=[format_row(system, keys) for system in systems],
        legend=legend(),
        ranked_by=main_system.name,
        sections=[
            {"line": n + 1, "text": main_system.lines[n].text, "boxes": [_box(one, n, rate) for one in systems]}
            for n in rank_lines(main_system)
        ],
    )


def _box(system: System, number: int, rate: int) -> dict[str, Any]:
    """One system's line on the page, with its sound (Ogg) and pictures (PNG) in base64."""
    line = system.lines[number]
    numbers = [
        f"{measure.title} {measure.factor * value:.{measure.decimals}f}"
        for key, measure in MEASURES.items()
        if (value := line.counts[key].rate if key in line.counts else line.values.get(key)) is not None
    ]
    # pictures of a model that stops at once have no columns
    pictures = {title: _png(picture) for title, picture in line.pictures.items() if picture.size}
    sound, transcript = _ogg(line.sound, rate), line.transcript
    return {"name": system.name, "ogg": sound, "transcript": transcript, "pictures": pictures, "numbers": numbers}


def _ogg(sound: Array, rate: int) -> str:
    """Encode sound (N,) in [-1, 1] as Ogg Vorbis in base64, a fifth of a wav's size."""
    samples = np.clip(sound, -1, 1) if len(sound) else np.zeros(1)  # a file needs at least one sample
    return base64.b64encode(encode(samples, rate, "ogg", FORMATS["ogg"])).decode()


def _png(picture: Array) -> str:
    """Encode a picture (rows, columns), first row at the bottom, as PNG in base64; axes would take a hundred times longer."""
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, picture, origin="lower", cmap="magma", format="png")
    return base64.b64encode(file.getvalue()).decode()
