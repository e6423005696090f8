"""Report the contents and problems of audio filelists: tables on stdout and one picture.

    python -m scripts.dataset_report filelists/clock_audio_text_train_filelist.txt -d ./ -o output

Rows that training would refuse are listed at the end; the exit code is then 1.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from common.arguments import add_audio_arguments, copy_arguments, positive
from common.audio.stft import AudioConfig
from common.data.pictures import DPI, save_figure
from common.data.report import OUTLIER_DEVIATIONS, Floats, MeasuredClip, describe, outliers, survey
from common.errors import DataError, UsageError, exit_on_user_error, listed
from common.options import from_options
from common.parser import Parser
from common.progress import counted
from models import acoustic_spec

if TYPE_CHECKING:  # Matplotlib is used as in common.data.pictures: Agg only, imported late
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE = "dataset_report.png"
IN_VIEW = 8.0  # median absolute deviations; values farther out share the outermost bars
LONG_SILENCE = 0.5  # s
BINS = 40
COLOURS = ("#4C78A8", "#F2A93B", "#E45756")


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m scripts.dataset_report", description=__doc__)
    parser.add_argument(
        "filelists", metavar="FILELIST", type=Path, nargs="+", help="filelists with rows audio|text, all in one report"
    )
    parser.add_argument(
        "-d", "--dataset-path", type=Path, default=Path("./"), help="folder that the rows' paths start from"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("output"), help=f"a .png file, or a folder for {PICTURE}"
    )
    spec = acoustic_spec()
    copy_arguments(parser, spec.row_options, spec.add_arguments, spec.add_training_arguments)
    parser.add_argument(
        "--num-workers", type=positive, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    add_audio_arguments(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Report on the usable rows; raise DataError that names the others."""
    args = parse_args(argv)
    from_options(AudioConfig, vars(args))  # refuses settings that contradict each other
    picture = picture_path(args.output)
    found = survey(args.filelists, acoustic_spec(), vars(args), args.num_workers)
    print(describe(found, acoustic_spec(), vars(args)), flush=True)
    if found.clips:
        draw(found.clips, args.filelists, picture)
    if problems := found.describe_problems(args.dataset_path):
        raise DataError(problems)


def picture_path(output: Path) -> Path:
    """Return the picture's file for --output, a .png or a folder; raise UsageError for a file of another kind."""
    if output.is_dir():
        return output / PICTURE
    if output.is_file() and output.suffix.lower() != ".png":
        raise UsageError(f"--output {output}: a file, expected a .png or a folder")
    if output.suffix.lower() in (".jpg", ".jpeg", ".pdf", ".svg"):
        raise UsageError(f"--output {output}: the picture is a PNG, expected a name in .png or a folder")
    return output if output.suffix.lower() == ".png" else output / PICTURE


def draw(clips: Sequence[MeasuredClip], filelists: Sequence[Path], picture: Path) -> None:
    hours = sum(clip.sound.duration for clip in clips) / 3600
    names = listed([path.name for path in filelists], 2)
    save_figure(picture, plot_clips(clips, f"{names}: {counted(len(clips), 'clip')}, {hours:.3g} hours"))
    print(f"\npicture: {picture}", flush=True)


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


if __name__ == "__main__":
    with exit_on_user_error():
        main()
