"""The picture of a data report: durations, pace, levels and silences of the clips.

matplotlib is used as in common.data.pictures: Agg only, imported late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.audio import silence
from common.data.pictures import DPI
from common.data.report import OUTLIER_DEVIATIONS, Floats, MeasuredClip, Outliers, outliers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HISTOGRAM_DEVIATIONS = 8.0  # median absolute deviations; values farther out share the outermost bars
BINS = 40
BARS_END = 0.84  # share of a histogram's height; the legend is above
PLAIN, DARK, FIRST, SECOND = "#4C78A8", "0.25", "#E45756", "#F2A93B"  # bars and dots, lines, the two kinds of outliers
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 9, "columnspacing": 1.3, "handlelength": 1.5}


def plot_clips(clips: Sequence[MeasuredClip], title: str) -> Figure:
    """Draw at least one clip's measurements: histograms above, characters over duration and the ends' silence below."""
    from matplotlib.figure import Figure

    durations = np.array([clip.sound.duration for clip in clips])
    characters = np.array([clip.characters for clip in clips], float)
    paces = characters / durations
    figure = Figure(figsize=(13, 7.6), dpi=DPI, layout="constrained")
    figure.suptitle(title, fontsize=13, parse_math=False)  # a filelist's name may contain $x$
    axes = figure.subplot_mosaic(
        [["duration", "pace", "level"], ["scatter", "scatter", "silence"]], height_ratios=(1, 1.35)
    )
    for panel in axes.values():
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.set_axisbelow(True)
    far_duration, far_pace = outliers(durations), outliers(paces)
    _draw_histogram(axes["duration"], durations, far_duration, "duration (s)")
    _draw_histogram(axes["pace"], paces, far_pace, "characters a second")
    _draw_levels(axes["level"], clips)
    _draw_scatter(axes["scatter"], durations, characters, far_duration, far_pace)
    _draw_silences(axes["silence"], clips)
    return figure


def _draw_histogram(axes: Axes, values: Floats, far: Outliers, label: str) -> None:
    values_in_view, moved = move_into_view(values)
    _bars(axes, values_in_view, _edges(values_in_view))
    axes.axvline(far.median, color=DARK, linewidth=1.2, ymax=BARS_END, label=f"median {far.median:.2f}")
    limits = far.median + OUTLIER_DEVIATIONS * far.deviation * np.array([-1, 1])
    inside = [limit for limit in limits if far.indices and values_in_view.min() <= limit <= values_in_view.max()]
    for number, limit in enumerate(inside):
        name = "" if number else f"±{OUTLIER_DEVIATIONS:g} MADs"
        axes.axvline(limit, color=FIRST, linewidth=1.2, ymax=BARS_END, linestyle="--", label=name)
    if moved:
        axes.set_xlabel(f"outermost bars: {moved} from farther out")
    _finish(axes, label)


def _draw_levels(axes: Axes, clips: Sequence[MeasuredClip]) -> None:
    sounds = [clip.sound for clip in clips if np.isfinite(clip.sound.rms)]  # pure silence has no level
    if sounds:
        rms, peak = np.array([sound.rms for sound in sounds]), np.array([sound.peak for sound in sounds])
        edges = _edges(np.concatenate([rms, peak]))
        _bars(axes, rms, edges, f"RMS, median {np.median(rms):.1f}")
        _outline(axes, peak, edges, f"peak, median {np.median(peak):.1f}")
    _finish(axes, "level (dBFS)")


def _draw_scatter(axes: Axes, durations: Floats, characters: Floats, by_duration: Outliers, by_pace: Outliers) -> None:
    size = float(np.clip(12000 / len(durations), 5, 26))  # pt²; small enough to keep thousands of clips apart
    ends = np.array([0, durations.max() * 1.04])
    reach = OUTLIER_DEVIATIONS * by_pace.deviation
    low, high = max(0, by_pace.median - reach), by_pace.median + reach
    near = f"within {OUTLIER_DEVIATIONS:g} MADs of it"
    axes.plot(ends, ends * by_pace.median, color=DARK, linewidth=1, label=f"{by_pace.median:.1f} characters a second")
    axes.fill_between(ends, ends * low, ends * high, color=PLAIN, alpha=0.1, linewidth=0, label=near)
    axes.scatter(durations, characters, s=size, color=PLAIN, alpha=0.55, linewidths=0)
    for far, colour, ring, name in ((by_duration, FIRST, 40, "duration"), (by_pace, SECOND, 90, "characters a second")):
        x, y, label = durations[far.indices], characters[far.indices], f"outliers of {name}: {len(far.indices)}"
        axes.scatter(x, y, s=ring, facecolors="none", edgecolors=colour, linewidths=1.6, label=label)
    axes.set_title("duration against characters", pad=24)
    axes.set(xlabel="duration (s)", ylabel="characters of the text")
    axes.set(xlim=(0, ends[1]), ylim=(0, characters.max() * 1.08))
    # above the axes, because any corner inside may have clips
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, borderaxespad=0.2, **LEGEND)


def _draw_silences(axes: Axes, clips: Sequence[MeasuredClip]) -> None:
    leading = np.array([clip.sound.leading_silence for clip in clips])
    trailing = np.array([clip.sound.trailing_silence for clip in clips])
    values_in_view, moved = move_into_view(np.concatenate([leading, trailing]))
    # each bin holds whole measurement frames, centred in it
    width = silence.FRAME * max(1, np.ceil(values_in_view.max() / BINS / silence.FRAME))
    edges = np.arange(-0.5, np.ceil(values_in_view.max() / width) + 1) * width
    _bars(axes, values_in_view[: len(leading)], edges, f"beginning, median {np.median(leading):.2f}")
    _outline(axes, values_in_view[len(leading) :], edges, f"end, median {np.median(trailing):.2f}")
    axes.set_xlabel(
        f"more than {silence.DEPTH:g} dB below the clip's loudest" + (f"\nlast bar: {moved} longer" if moved else "")
    )
    _finish(axes, "silence at the ends (s)")


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


def _edges(values: Floats) -> Floats:
    """Return the borders of BINS bins, with little room around a single value, where numpy would add a whole unit."""
    low, high = float(values.min()), float(values.max())
    room = 0.0 if high > low else max(abs(low) * 0.05, 0.05)
    return np.linspace(low - room, high + room, BINS + 1)


def _bars(axes: Axes, values: Floats, edges: Floats, label: str = "") -> None:
    axes.hist(values, bins=edges.tolist(), color=PLAIN, label=label or None)


def _outline(axes: Axes, values: Floats, edges: Floats, label: str) -> None:
    """Draw a histogram that leaves the bars behind it visible."""
    axes.hist(
        values, bins=edges.tolist(), histtype="stepfilled", facecolor=SECOND + "40", edgecolor=SECOND, label=label
    )


def _finish(axes: Axes, title: str) -> None:
    axes.set(title=title, ylabel="clips")
    axes.margins(x=0.02)
    axes.locator_params(axis="y", integer=True)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high / BARS_END)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", ncols=2, **LEGEND)
