"""A corpus report: tables and one picture of the measurements in common.data.clip_report.

matplotlib is used as in common.data.pictures: Agg only, imported late.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from common.audio import silence
from common.data.clip_report import (
    CLIPPED_RUN,
    OUTLIER_DEVIATIONS,
    Clip,
    Floats,
    Outliers,
    Survey,
    group_by,
    group_same_audio,
    lists_of,
    move_into_view,
    outliers,
)
from common.data.pictures import DPI
from common.errors import shorten
from common.tables import text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORST = 10  # most rows of a table of clips
LONG_TEXT = 200  # characters
LONG_CLIP, SHORT_CLIP = 11.0, 0.3  # s
SHOWN_TEXT = 60  # characters


def describe(found: Survey, cleaners: Sequence[str], dropped: Callable[[str], list[str]]) -> str:
    """Write the report of a survey, with the number of unusable rows but not their problems.

    Args:
        found: the survey.
        cleaners: the names of the cleaners, for a title.
        dropped: maps a text to the characters that these cleaners drop, each once.
    """
    sections = [_overview(found), *_files(found)]
    if found.clips:
        findings = [_clipping(found.clips), _repetitions(found.clips), *_outliers(found.clips), *_limits(found.clips)]
        findings.append(_characters(found.clips, cleaners, dropped))
        in_order = [finding for finding in findings if "\n" in finding]
        nothing_found = [finding for finding in findings if "\n" not in finding]
        sections += [_quantities(found.clips), *in_order]
        sections += ["\n".join(nothing_found)] if nothing_found else []
    return "\n\n".join(sections)


def table(columns: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Indent a text table by two spaces, to stand below its section's title."""
    return indent(text_table(columns, header, rows), "  ")


def _overview(found: Survey) -> str:
    unusable = Counter(place.filelist for place, _ in found.problems)
    rows = []
    for name in dict.fromkeys(found.filelists):
        clips = [clip for clip in found.clips if clip.row.place.filelist == name]
        rows.append((name, *_sums(clips, unusable[name])))
    if len(rows) > 1:
        rows.append(("together", *_sums(found.clips, len(found.problems))))
    return table("<>>>>>", ("filelist", "clips", "unusable rows", "hours", "words", "characters"), rows)


def _sums(clips: Sequence[Clip], unusable: int) -> tuple[int, int, str, int, int]:
    hours = sum(clip.sound.duration for clip in clips) / 3600
    return len(clips), unusable, f"{hours:.3f}", sum(c.words for c in clips), sum(c.characters for c in clips)


def _files(found: Survey) -> Iterator[str]:
    """Yield tables of rates, channels and formats of all headers, including those of unusable files."""
    for name, field in (("sampling rate (Hz)", "rate"), ("channels", "channels"), ("encoding", "encoding")):
        counts = Counter(str(getattr(header, field)) for header in found.headers)
        if counts:
            yield table("<>", (name, "files"), counts.most_common())


def _quantities(clips: Sequence[Clip]) -> str:
    quantities: tuple[tuple[str, int, list[float]], ...] = (
        ("duration (s)", 2, [clip.sound.duration for clip in clips]),
        ("words", 0, [clip.words for clip in clips]),
        ("characters", 0, [clip.characters for clip in clips]),
        ("characters a second", 1, [clip.pace for clip in clips]),
        ("level, RMS (dBFS)", 1, [clip.sound.rms for clip in clips]),
        ("peak (dBFS)", 1, [clip.sound.peak for clip in clips]),
        ("silence at the beginning (s)", 2, [clip.sound.leading_silence for clip in clips]),
        ("silence at the end (s)", 2, [clip.sound.trailing_silence for clip in clips]),
    )
    # + 0.0, so that a peak that rounds to zero is not printed as -0.0
    rows = [
        (name, *(f"{round(v, digits) + 0.0:.{digits}f}" for v in _spread(values)))
        for name, digits, values in quantities
    ]
    note = (
        "  0 dBFS: every sample at full scale. "
        f"Silence: frames of {silence.FRAME * 1000:g} ms more than {silence.DEPTH:g} dB below the clip's loudest."
    )
    return table("<>>>>>>", ("", "least", "5 %", "median", "mean", "95 %", "most"), rows) + "\n" + note


def _spread(values: Sequence[float]) -> tuple[float, ...]:
    # not interpolated, since one value may be -inf dB
    low, high = np.quantile(values, (0.05, 0.95), method="inverted_cdf")
    return min(values), low, float(np.median(values)), float(np.mean(values)), high, max(values)


def _name_clips(title: str, found: Sequence[tuple[Clip, Sequence[Any]]], extra: Sequence[str]) -> str:
    """Write a table of a finding's first WORST clips with their measurements; a single line if there are none."""
    if not found:
        return f"{title}: none"
    clips = "clip" if len(found) == 1 else "clips"
    more = f", the first {WORST}" if len(found) > WORST else ""
    rows = [(*cells, clip.row.place, clip.row.path) for clip, cells in found[:WORST]]
    columns = ">" * len(extra) + "<<"
    return f"{title}: {len(found):,} {clips}{more}\n" + table(columns, (*extra, "row", "file"), rows)


def _clipping(clips: Sequence[Clip]) -> str:
    clipped = [clip for clip in clips if clip.sound.clipped_runs]
    clipped.sort(key=lambda clip: (clip.sound.clipped_runs, clip.sound.longest_run), reverse=True)
    found = [(clip, (clip.sound.clipped_runs, clip.sound.longest_run)) for clip in clipped]
    title = f"Clipping, runs of at least {CLIPPED_RUN} samples at full scale"
    return _name_clips(title, found, ("runs", "longest (samples)"))


def _repetitions(clips: Sequence[Clip]) -> str:
    kinds = {
        "path": group_by(clips, lambda clip: clip.row.file),
        "text": group_by(clips, lambda clip: clip.row.text),
        "audio, other path": group_same_audio(clips),
    }
    if not any(kinds.values()):
        return "Repetitions of a path, a text or the samples of a clip: none"
    rows = []
    for kind, groups in kinds.items():
        across = sum(len(lists_of(group)) > 1 for group in groups)
        rows.append((kind, len(groups), sum(map(len, groups)), across))
    parts = ["Repetitions\n" + table("<>>>", ("same", "groups", "clips", "groups across filelists"), rows)]
    for kind, groups in kinds.items():
        if groups:
            parts.append(_groups(kind, groups))
    return "\n".join(parts)


def _groups(kind: str, groups: Sequence[Sequence[Clip]]) -> str:
    rows = []
    for group in groups[:WORST]:
        places = [str(clip.row.place) for clip in group[:3]] + (["…"] if len(group) > 3 else [])
        shared = repr(shorten(group[0].row.text, SHOWN_TEXT)) if kind == "text" else group[0].row.path
        rows.append((len(group), shared, ", ".join(places)))
    return table("><<", ("clips", f"same {kind}", "rows"), rows)


def _outliers(clips: Sequence[Clip]) -> Iterator[str]:
    for name, unit, values in (
        ("Duration", "s", [clip.sound.duration for clip in clips]),
        ("Characters a second", "", [clip.pace for clip in clips]),
    ):
        far = outliers(np.array(values))
        found = [(clips[i], (f"{values[i]:.2f}", f"{far.deviations[i]:.2f}")) for i in far.indices]
        around = f"{far.median:.2f} {unit}".rstrip()
        title = f"{name} beyond {OUTLIER_DEVIATIONS:g} MADs of {far.deviation:.2f} from the median of {around}"
        yield _name_clips(title, found, (name.lower(), "MADs off"))


def _limits(clips: Sequence[Clip]) -> Iterator[str]:
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


def _characters(clips: Sequence[Clip], cleaners: Sequence[str], dropped: Callable[[str], list[str]]) -> str:
    texts: Counter[str] = Counter()
    first: dict[str, Clip] = {}
    for clip in clips:
        for character in dropped(clip.row.text):
            texts[character] += 1
            first.setdefault(character, clip)
    title = f"Characters that {', '.join(cleaners)} drop"
    if not texts:
        return f"{title}: none"
    rows = [
        (count, f"U+{ord(character):04X}", _name(character), first[character].row.place, _printable(character))
        for character, count in texts.most_common()
    ]  # the character comes last, because a wide or combining one would shift the columns after it
    header = ("texts", "code point", "name", "first row", "character")
    return f"{title}: {len(texts):,} kinds\n" + table("><<<<", header, rows)


def _name(character: str) -> str:
    return unicodedata.name(character, "no name").lower()


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)


# --- the picture: durations, pace, levels and silences of the clips ---

BINS = 40
BARS_END = 0.84  # share of a histogram's height; the legend is above
PLAIN, DARK, FIRST, SECOND = "#4C78A8", "0.25", "#E45756", "#F2A93B"  # bars and dots, lines, the two kinds of outliers


def plot_clips(clips: Sequence[Clip], title: str) -> Figure:
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


def _draw_levels(axes: Axes, clips: Sequence[Clip]) -> None:
    rms, peak = _finite([clip.sound.rms for clip in clips]), _finite([clip.sound.peak for clip in clips])
    if len(rms):  # pure silence has no level
        edges = _edges(np.concatenate([rms, peak]))
        _bars(axes, rms, edges, f"RMS, median {np.median(rms):.1f}")
        _outline(axes, peak, edges, f"peak, median {np.median(peak):.1f}")
    _finish(axes, "level (dBFS)")


def _draw_scatter(axes: Axes, durations: Floats, characters: Floats, by_duration: Outliers, by_pace: Outliers) -> None:
    size = float(np.clip(12000 / len(durations), 5, 26))  # pt²; small enough to keep thousands of clips apart
    ends = np.array([0, durations.max() * 1.04])
    reach = OUTLIER_DEVIATIONS * by_pace.deviation
    axes.plot(ends, ends * by_pace.median, color=DARK, linewidth=1, label=f"{by_pace.median:.1f} characters a second")
    axes.fill_between(
        ends,
        ends * max(0, by_pace.median - reach),
        ends * (by_pace.median + reach),
        color=PLAIN,
        alpha=0.1,
        linewidth=0,
        label=f"within {OUTLIER_DEVIATIONS:g} MADs of it",
    )
    axes.scatter(durations, characters, s=size, color=PLAIN, alpha=0.55, linewidths=0)
    for far, colour, ring, name in ((by_duration, FIRST, 40, "duration"), (by_pace, SECOND, 90, "characters a second")):
        axes.scatter(
            durations[far.indices],
            characters[far.indices],
            s=ring,
            facecolors="none",
            edgecolors=colour,
            linewidths=1.6,
            label=f"outliers of {name}: {len(far.indices)}",
        )
    axes.set_title("duration against characters", pad=24)
    axes.set(xlabel="duration (s)", ylabel="characters of the text")
    axes.set(xlim=(0, ends[1]), ylim=(0, characters.max() * 1.08))
    # above the axes, because any corner inside may have clips
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=4,
        frameon=False,
        fontsize=9,
        columnspacing=1.4,
        handlelength=1.6,
        borderaxespad=0.2,
    )


def _draw_silences(axes: Axes, clips: Sequence[Clip]) -> None:
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


def _finite(values: Sequence[float]) -> Floats:
    array = np.array(values)
    return array[np.isfinite(array)]


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
        axes.legend(loc="upper right", frameon=False, fontsize=9, ncols=2, columnspacing=1.2, handlelength=1.4)
