"""The picture of a data report: durations, pace, levels and silences of the clips.

matplotlib is used as in common.data.pictures: Agg only, imported late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from common.data.pictures import DPI
from common.data.report import OUTLIER_DEVIATIONS, Floats, MeasuredClip, outliers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IN_VIEW = 8.0  # median absolute deviations; values farther out share the outermost bars
LONG_SILENCE = 0.5  # s
BINS = 40
COLOURS = ("#4C78A8", "#F2A93B", "#E45756")


def plot_clips(clips: Sequence[MeasuredClip], title: str) -> Figure:
    """Draw at least one clip's measurements: histograms above, characters over duration and the ends' silence below."""
    from matplotlib.figure import Figure

    sounds = [clip.sound for clip in clips]
    durations = np.array([sound.duration for sound in sounds])
    characters = np.array([clip.characters for clip in clips], float)
    figure = Figure(figsize=(13, 7.6), dpi=DPI, layout="constrained")
    figure.suptitle(title, fontsize=13, parse_math=False)  # a filelist's name may contain $x$
    axes = figure.subplot_mosaic([["duration", "pace", "level"], ["scatter", "scatter", "silence"]])
    _draw_histogram(axes["duration"], "duration (s)", {"clips": durations})
    _draw_histogram(axes["pace"], "characters a second", {"clips": characters / durations})
    levels = {"RMS": np.array([sound.rms for sound in sounds]), "peak": np.array([sound.peak for sound in sounds])}
    _draw_histogram(axes["level"], "level (dBFS)", levels)
    ends = {
        "beginning": np.array([sound.leading_silence for sound in sounds]),
        "end": np.array([sound.trailing_silence for sound in sounds]),
    }
    _draw_histogram(axes["silence"], "silence at the ends (s)", ends, LONG_SILENCE)
    _draw_scatter(axes["scatter"], durations, characters)
    return figure


def _draw_histogram(axes: Axes, title: str, values: Mapping[str, Floats], least: float = 0.0) -> None:
    """Draw the finite values of each name, with its median; silence has no level. All values within `least` of it are in view."""
    finite = {name: found[np.isfinite(found)] for name, found in values.items()}
    if together := np.concatenate(list(finite.values())).tolist():
        median, deviation, *_ = outliers(np.array(together))
        reach = max(IN_VIEW * deviation, least) or np.inf
        shown = np.clip(together, median - reach, median + reach)
        moved = int((shown != together).sum())
        edges = np.histogram_bin_edges(shown, BINS).tolist()
        for colour, (name, found) in zip(COLOURS, finite.items(), strict=False):
            label = f"{name}, median {np.median(found):.2f}"
            inside = np.clip(found, edges[0], edges[-1])
            axes.hist(inside, edges, color=colour, alpha=0.6, label=label)
        axes.set_xlabel(f"outermost bars: {moved} from farther out" if moved else "")
        axes.legend()
    axes.set(title=title, ylabel="clips")


def _draw_scatter(axes: Axes, durations: Floats, characters: Floats) -> None:
    """Draw a dot for each clip, and a ring around outliers of duration and of pace."""
    size = float(np.clip(12000 / len(durations), 5, 26))  # pt²; small enough to keep thousands of clips apart
    axes.scatter(durations, characters, s=size, color=COLOURS[0], alpha=0.55, linewidths=0)
    kinds = {"duration": durations, "characters a second": characters / durations}
    for number, (name, values) in enumerate(kinds.items(), 1):
        far = outliers(values).indices
        label = f"outliers of {name}, beyond {OUTLIER_DEVIATIONS:g} MADs: {len(far)}"
        x, y = durations[far], characters[far]
        axes.scatter(x, y, s=40 * number, facecolors="none", edgecolors=COLOURS[number], label=label)
    axes.set(xlim=(0, None), ylim=(0, None), title="duration against characters")
    axes.set(xlabel="duration (s)", ylabel="characters of the text")
    axes.legend(loc="upper left")
