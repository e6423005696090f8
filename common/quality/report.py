"""The content of a quality report: lines spoken by several systems, their measures, a table and a JSON file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from common.quality.statistics import Interval, bootstrap, mean, pooled_rate
from common.quality.words import Errors
from common.tables import text_table

# M mels, T frames, S symbols, K decoder steps, N samples
Array = npt.NDArray[Any]


class Line(NamedTuple):
    """One text from one system: its sound (N,), the recogniser's transcript, and its measures.

    `values` and `counts` have keys of MEASURES, those that apply; pictures are mels (M, T) and alignments (S, K).
    """

    text: str
    sound: Array
    transcript: str
    values: dict[str, float]
    counts: dict[str, Errors]
    pictures: dict[str, Array]


class System(NamedTuple):
    """One source of sounds, on all lines; `real_time_factor` is seconds of sound per second of work, nan for recordings."""

    name: str
    lines: list[Line]
    real_time_factor: float


class Measure(NamedTuple):
    """A column: its title, its meaning in a sentence, and the factor and decimals of its numbers."""

    title: str
    meaning: str
    factor: float
    decimals: int
    pooled: bool = False  # errors of all lines over words of all lines, not the mean over lines


MEASURES: dict[str, Measure] = {
    "wer": Measure("WER %", "wrong words of the recogniser's transcript", 100, 1, True),
    "cer": Measure("CER %", "wrong characters of the transcript", 100, 1, True),
    "mos": Measure("MOS", "Distill-MOS, 1 to 5: how natural it sounds", 1, 2),
    "mcd": Measure("MCD dB", "mel-cepstral distortion up to 8 kHz against the recording, after time warping", 1, 2),
    "f0_rmse": Measure("F0 Hz", "root mean square difference of pitch", 1, 1),
    "voicing_error": Measure("voicing %", "frames voiced in one and not in the other", 100, 1),
    "duration_ratio": Measure("length", "seconds over the recording's", 1, 2),
    "ran_to_limit": Measure("no stop %", "reached the frame limit", 100, 1),
    "stopped_early": Measure("early %", "stopped before the end of the text", 100, 1),
    "skips": Measure("skips", "places where attention jumps ahead, a line", 1, 2),
    "repeats": Measure("repeats", "places where attention returns to earlier text, a line", 1, 2),
    "focus": Measure("focus", "mean largest attention weight of a step", 1, 2),
    "monotonicity": Measure("monotone", "share of steps that do not go back", 1, 2),
    "coverage": Measure("coverage", "share of symbols that got attention", 1, 2),
}


def summary(system: System) -> dict[str, Interval]:
    """Compute each measure of a system over its lines, with the 95 % bootstrap interval; measures of no line are left out."""
    return {
        key: bootstrap(values, pooled_rate if measure.pooled else mean)
        for key, measure in MEASURES.items()
        if (values := _values_of(system, key, measure))
    }


def capped_error_rate(system: System, key: str = "wer") -> float:
    """Pool the errors of a system's lines, each line's at most its number of words; nan where nothing is counted.

    The usual rate counts all insertions, so that one line on which the decoder does not stop outweighs all others.
    """
    pairs = [line.counts[key].cap() for line in system.lines if key in line.counts]
    return pooled_rate(np.array(pairs, dtype=float).reshape(-1, 2))


def _values_of(system: System, key: str, measure: Measure) -> list[Any]:
    of_lines: list[Mapping[str, Any]] = [line.counts if measure.pooled else line.values for line in system.lines]
    return [of_line[key] for of_line in of_lines if key in of_line]


def table(systems: Sequence[System]) -> str:
    """Write the systems as a text table, a row each: every measure with its 95 % interval."""
    keys = columns_of(systems)
    header = ["system", *(MEASURES[key].title for key in keys), "x real time"]
    return text_table("<" + ">" * (len(keys) + 1), header, [format_row(system, keys) for system in systems])


def columns_of(systems: Sequence[System]) -> list[str]:
    """List the keys of the measures that any of the systems has, in the order of MEASURES."""
    return [key for key, measure in MEASURES.items() if any(_values_of(system, key, measure) for system in systems)]


def format_row(system: System, keys: Sequence[str]) -> list[str]:
    """Format a system's name, its measures of these keys and its real-time factor."""
    measured = summary(system)
    speed = "-" if math.isnan(system.real_time_factor) else f"{system.real_time_factor:.2f}"
    return [system.name, *(format_interval(measured.get(key), MEASURES[key]) for key in keys), speed]


def format_interval(interval: Interval | None, measure: Measure) -> str:
    """Format an interval as `12.3 [9.8, 15.1]`; `-` where there is none."""
    if interval is None or math.isnan(interval.value):
        return "-"
    value, low, high = (f"{measure.factor * number:.{measure.decimals}f}" for number in interval)
    return value if value == low == high or math.isnan(interval.low) else f"{value} [{low}, {high}]"


def legend() -> str:
    """Explain the columns, a line each."""
    width = max(len(measure.title) for measure in MEASURES.values())
    lines = [f"{measure.title:<{width}}  {measure.meaning}" for measure in MEASURES.values()]
    return "\n".join([*lines, "[low, high]: 95 % interval of a bootstrap over lines"])


def as_json(systems: Sequence[System], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all but sounds and pictures as plain numbers and strings; nan becomes None, since JSON has no nan."""
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


def _line_as_json(line: Line) -> dict[str, Any]:
    values = {key: _plain(value) for key, value in line.values.items()}
    counts = {key: {"errors": pair.errors, "count": pair.count} for key, pair in line.counts.items()}
    return {"text": line.text, "heard": line.transcript, "values": values, "counts": counts}


def _plain(number: float) -> float | None:
    return None if math.isnan(number) else float(np.round(number, 6))


def rank_lines(system: System) -> list[int]:
    """Order the indices of a system's lines: most wrong words first, then the lowest opinion score."""

    def badness(number: int) -> tuple[float, float]:
        line = system.lines[number]
        wrong = line.counts["wer"].rate if "wer" in line.counts else 0.0
        return -wrong, line.values.get("mos", 0.0)

    return sorted(range(len(system.lines)), key=badness)
