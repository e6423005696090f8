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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from common.arguments import add_audio_arguments, copy_arguments, positive
from common.audio.stft import AudioConfig
from common.data.pictures import DPI, save_figure
from common.data.report import Floats, MeasuredClip, describe, outliers, quantities, survey
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
BINS, COLOUR = 40, "#4C78A8"


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
    """Draw a histogram of each quantity of the report, of at least one clip."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.4), dpi=DPI, layout="constrained")
    figure.suptitle(title, fontsize=13, parse_math=False)  # a filelist's name may contain $x$
    for axes, (name, (_, values)) in zip(figure.subplots(2, 4).flat, quantities(clips).items(), strict=True):
        _draw_histogram(axes, name, values)
    return figure


def _draw_histogram(axes: Axes, name: str, values: Floats) -> None:
    """Draw the finite values and their median; silence has no level."""
    if len(finite := values[np.isfinite(values)]):
        median, deviation, *_ = outliers(finite)
        reach = IN_VIEW * deviation or np.inf
        shown = np.clip(finite, median - reach, median + reach)
        moved = int((shown != finite).sum())
        axes.hist(shown, BINS, color=COLOUR)
        axes.axvline(median, color="0.2", linewidth=1)
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlabel(f"outermost bars: {moved} from farther out" if moved else "")
    axes.set(title=name, ylabel="clips")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
