"""What a quality report holds: lines spoken by several systems, their measures, a table and a JSON file of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from common.quality.statistics import Interval, bootstrap, mean, pooled_rate
from common.quality.words import Errors

# M mels, T frames, S symbols, K decoder steps, N samples
Array = npt.NDArray[Any]


class Line(NamedTuple):
    """What a system made of one text: its sound (N,), what was heard in it, and what was measured.

    `values` and `counts` have keys of MEASURES, those that could be measured; pictures are mels (M, T) and alignments (S, K).
    """

    text: str
    sound: Array
    heard: str
    values: dict[str, float]
    counts: dict[str, Errors]
    pictures: dict[str, Array]


class System(NamedTuple):
    """One way to sound, on all lines; `real_time_factor` is seconds of sound per second of work, nan where nothing was made."""

    name: str
    lines: list[Line]
    real_time_factor: float


class Measure(NamedTuple):
    """A column: its title, what it is in a sentence, the factor and decimals it is shown with, and how lines make one number."""

    title: str
    meaning: str
    factor: float
    decimals: int
    pooled: bool = False  # errors of all lines over words of all lines


MEASURES: dict[str, Measure] = {
    "wer": Measure("WER %", "words that the recogniser heard wrong", 100, 1, True),
    "cer": Measure("CER %", "characters that it heard wrong", 100, 1, True),
    "mos": Measure("MOS", "Distill-MOS, 1 to 5: how natural it sounds", 1, 2),
    "mcd": Measure("MCD dB", "mel-cepstral distortion up to 8 kHz against the recording, after time warping", 1, 2),
    "f0_rmse": Measure("F0 Hz", "root mean square difference of pitch", 1, 1),
    "voicing_error": Measure("voicing %", "frames voiced in one and not in the other", 100, 1),
    "duration_ratio": Measure("length", "seconds over the recording's", 1, 2),
    "ran_to_limit": Measure("no stop %", "never stopped by itself", 100, 1),
    "stopped_early": Measure("early %", "stopped before the end of the text was read", 100, 1),
    "skips": Measure("skips", "places where attention jumps ahead, a line", 1, 2),
    "repeats": Measure("repeats", "places where it goes back to what was read, a line", 1, 2),
    "focus": Measure("focus", "mean largest attention weight of a step", 1, 2),
    "monotonicity": Measure("monotone", "share of steps that do not go back", 1, 2),
    "coverage": Measure("coverage", "share of symbols that were looked at", 1, 2),
}


def summary(system: System) -> dict[str, Interval]:
    """Each measure of a system over its lines, with the 95 % bootstrap interval; measures that no line has are left out."""
    found: dict[str, Interval] = {}
    for key, measure in MEASURES.items():
        statistic: Callable[..., float] = pooled_rate if measure.pooled else mean
        kept: list[Mapping[str, Any]] = [line.counts if measure.pooled else line.values for line in system.lines]
        values = [of_line[key] for of_line in kept if key in of_line]
        if values:
            found[key] = bootstrap(values, statistic)
    return found


def table(systems: Sequence[System]) -> str:
    """The systems side by side, a row each: every measure with its 95 % interval."""
    summaries = [summary(system) for system in systems]
    keys = [key for key in MEASURES if any(key in one for one in summaries)]
    rows = [["system", *(MEASURES[key].title for key in keys), "x real time"]]
    for system, one in zip(systems, summaries, strict=True):
        speed = "-" if math.isnan(system.real_time_factor) else f"{system.real_time_factor:.2f}"
        rows.append([system.name, *(shown(one.get(key), MEASURES[key]) for key in keys), speed])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Cells padded to their columns: the name to the left, numbers to the right."""
    return "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])


def shown(interval: Interval | None, measure: Measure) -> str:
    """An interval as it is written: `12.3 [9.8, 15.1]`, `-` where there is none."""
    if interval is None or math.isnan(interval.value):
        return "-"
    value, low, high = (f"{measure.factor * number:.{measure.decimals}f}" for number in interval[:3])
    return value if value == low == high or math.isnan(interval.low) else f"{value} [{low}, {high}]"


def legend() -> str:
    """What the columns are, a line each."""
    width = max(len(measure.title) for measure in MEASURES.values())
    lines = [f"{measure.title:<{width}}  {measure.meaning}" for measure in MEASURES.values()]
    return "\n".join([*lines, "[low, high]: 95 % interval of a bootstrap over lines"])


def as_json(systems: Sequence[System], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but sounds and pictures: plain numbers and strings; nan becomes None, which JSON can say."""
    return {
        "settings": dict(settings),
        "systems": [
            {
                "name": system.name,
                "real_time_factor": _plain(system.real_time_factor),
                "summary": {key: [_plain(number) for number in value[:3]] for key, value in summary(system).items()},
                "lines": [_line_as_json(line) for line in system.lines],
            }
            for system in systems
        ],
    }


def _line_as_json(line: Line) -> dict[str, Any]:
    values = {key: _plain(value) for key, value in line.values.items()}
    counts = {key: {"errors": pair.errors, "count": pair.count} for key, pair in line.counts.items()}
    return {"text": line.text, "heard": line.heard, "values": values, "counts": counts}


def _plain(number: float) -> float | None:
    return None if math.isnan(number) else float(np.round(number, 6))


def worst_first(system: System) -> list[int]:
    """Numbers of a system's lines: most wrong words first, then the lowest opinion score."""

    def badness(number: int) -> tuple[float, float]:
        line = system.lines[number]
        wrong = line.counts["wer"].rate if "wer" in line.counts else 0.0
        return -wrong, line.values.get("mos", 0.0)

    return sorted(range(len(system.lines)), key=badness)
