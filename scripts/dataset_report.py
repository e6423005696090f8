"""Report the contents and problems of audio filelists: tables on stdout and one picture.

    python -m scripts.dataset_report filelists/clock_audio_text_train_filelist.txt -d ./ -o output

Rows that training would refuse are listed at the end; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from common.arguments import add_audio_arguments, copy_arguments, positive
from common.audio.stft import AudioConfig
from common.data.pictures import save_figure
from common.data.report import MeasuredClip, describe, survey
from common.data.report_picture import plot_clips
from common.errors import DataError, UsageError, exit_on_user_error, listed
from common.options import from_options
from common.parser import Parser
from common.progress import counted
from models import acoustic_spec

PICTURE = "dataset_report.png"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
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
    parser.add_argument("--num-workers", type=positive, default=os.cpu_count() or 1, help="processes")
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
    """Write the picture and print its path."""
    hours = sum(clip.sound.duration for clip in clips) / 3600
    names = listed([path.name for path in filelists], 2)
    save_figure(picture, plot_clips(clips, f"{names}: {counted(len(clips), 'clip')}, {hours:.3g} hours"))
    print(f"\npicture: {picture}", flush=True)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
