"""A corpus report as text: tables and histograms of the measurements in common.data.clip_report."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any

import numpy as np

from common.audio import silence
from common.data.clip_report import (
    CLIPPED_RUN,
    OUTLIER_DEVIATIONS,
    Clip,
    Floats,
    Survey,
    group_by,
    group_same_audio,
    lists_of,
    move_into_view,
    outliers,
)
from common.errors import shorten
from common.tables import text_table

WORST = 10  # most rows of a table of clips
LONG_TEXT = 200  # characters
LONG_CLIP, SHORT_CLIP = 11.0, 0.3  # s
BAR = 40  # characters of a histogram's longest bar
MOST_BINS = 14
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
        sections += [_quantities(found.clips), *_histograms(found.clips), *in_order]
        sections += ["\n".join(nothing_found)] if nothing_found else []
    return "\n\n".join(sections)


def table(columns: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Indent a text table by two spaces, to stand below its section's title."""
    return indent(text_table(columns, header, rows), "  ")


def histogram(values: Floats) -> str:
    """Draw a histogram of values (C,) with bins of a round width; far values go into the first and last bins."""
    values_in_view, moved = move_into_view(values)
    width = _round_width((values_in_view.max() - values_in_view.min()) / MOST_BINS)
    first = np.floor(values_in_view.min() / width)
    counts = np.bincount((np.floor(values_in_view / width) - first).astype(int))
    digits = max(0, -int(np.floor(np.log10(width))))
    rows = []
    for number, count in enumerate(counts):
        low = (first + number) * width
        bar = "█" * round(BAR * count / counts.max()) or ("▏" if count else "")
        rows.append([f"{low:.{digits}f}", f"{low + width:.{digits}f}", int(count), bar])
    if values.min() < values_in_view.min():
        rows[0][0] = f"{values.min():.{digits}f}"
    if values.max() > values_in_view.max():
        rows[-1][1] = f"{values.max():.{digits}f}"
    return table(">>><", ("from", "to", "clips", f"{moved} far out in the outermost" if moved else ""), rows)


def _round_width(width: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if width < 1e-9:  # a single value, up to rounding
        return 1.0
    power = 10.0 ** np.floor(np.log10(width))
    return float(next((step * power for step in (1, 2, 5) if step * power >= width), 10 * power))


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


def _histograms(clips: Sequence[Clip]) -> Iterator[str]:
    yield "Duration (s)\n" + histogram(np.array([clip.sound.duration for clip in clips]))
    yield "Characters a second\n" + histogram(np.array([clip.pace for clip in clips]))


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
