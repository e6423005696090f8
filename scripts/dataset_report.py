"""Report the contents and problems of audio filelists: tables on stdout and one picture.

    python -m scripts.dataset_report filelists/clock_audio_text_train_filelist.txt -d ./ -o output

Rows that training would refuse are listed at the end; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from common.arguments import add_audio_arguments, copy_arguments, positive
from common.audio.stft import AudioConfig
from common.data.clip_report import ListedClip, Survey, survey
from common.data.corpus_report import describe, plot_clips
from common.data.filelist import Utterance
from common.data.mels import unusable_rows
from common.data.pictures import save_figure
from common.errors import DataError, UsageError, exit_on_user_error
from common.options import from_options
from common.parser import Parser
from common.progress import counted
from common.spec import AcousticInference, ModelSpec, Options
from models import REGISTRY

PICTURE = "dataset_report.png"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m scripts.dataset_report",
        description=__doc__,
    )
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
    config = from_options(AudioConfig, vars(args))
    picture = picture_path(args.output)
    check = partial(unusable, options=vars(args))
    found = survey(args.filelists, args.dataset_path, config.sampling_rate, check, args.num_workers)
    inference = acoustic_spec().inference
    assert isinstance(inference, AcousticInference)
    drop = inference.dropped
    print(describe(found, args.text_cleaners, lambda text: drop(text, vars(args))), flush=True)
    if found.clips:
        draw(found, picture)
    if found.problems:
        raise DataError(problems_of(found, args.dataset_path))


def acoustic_spec() -> ModelSpec:
    """Return the spec of the model that reads texts."""
    return next(spec for spec in REGISTRY.values() if spec.role == "acoustic")


def unusable(rows: Sequence[ListedClip], samples: Sequence[int | None], options: Options) -> dict[int, str]:
    """Return the problems of the rows that training refuses, by index, given the samples of each readable clip."""
    return unusable_rows(acoustic_spec(), options, [Utterance(row.path, row.text) for row in rows], samples)


def picture_path(output: Path) -> Path:
    """Return the picture's file for --output, a .png or a folder; raise UsageError for a file of another kind."""
    if output.is_dir():
        return output / PICTURE
    if output.is_file() and output.suffix.lower() != ".png":
        raise UsageError(f"--output {output}: a file, expected a .png or a folder")
    if output.suffix.lower() in (".jpg", ".jpeg", ".pdf", ".svg"):
        raise UsageError(f"--output {output}: the picture is a PNG, expected a name in .png or a folder")
    return output if output.suffix.lower() == ".png" else output / PICTURE


def draw(found: Survey, picture: Path) -> None:
    """Write the picture and print its path."""
    hours = sum(clip.sound.duration for clip in found.clips) / 3600
    names = ", ".join(Path(name).name for name in found.filelists[:2])
    more = f" and {len(found.filelists) - 2} more" if len(found.filelists) > 2 else ""
    save_figure(
        picture, plot_clips(found.clips, f"{names}{more}: {counted(len(found.clips), 'clip')}, {hours:.3g} hours")
    )
    print(f"\npicture: {picture}", flush=True)


def problems_of(found: Survey, dataset_path: Path) -> str:
    """List every unusable row as FILELIST:LINE: problem, and count them in a last line."""
    lines = [f"{place}: {problem}" for place, problem in found.problems]
    rows = len(found.problems) + len(found.clips)
    advice = ""
    if any(problem.endswith("no such audio file") for _, problem in found.problems):
        advice = f" (paths are relative to --dataset-path, now {dataset_path})"
    return "\n".join(
        ["unusable rows", *lines, f"unusable: {len(lines)} of {counted(rows, 'row')}{advice}: fix or remove them"]
    )


if __name__ == "__main__":
    with exit_on_user_error():
        main()
