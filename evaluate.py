"""Measure how well checkpoints speak: python evaluate.py, on held-out lines, beside the recordings and Griffin-Lim.

Speaks the lines of a filelist (audio|text), or of a text file, one phrase a line, free running; a speech recogniser and a predictor
of opinion scores judge the sounds. Prints a table, and writes report.html, with players, and report.json to --output.
`bash scripts/evaluation.sh` installs the judges.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from common.arguments import HelpFormatter, given_options, positive
from common.data.filelist import check_files, lines_of, read_filelist, read_phrases
from common.engine import precision
from common.engine.checkup import held_out, spread
from common.engine.evaluation import MEASURED, HeldOut, Judges, Made, from_texts, from_true_mels, judged, recordings
from common.engine.synthesis import Loaded, Vocoder, griffin_lim_vocoder
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import atomic_write
from common.quality.page import page
from common.quality.report import System, as_json, legend, table
from common.sound.stft import AudioConfig
from inference import GRIFFIN_LIM, add_speaking_arguments, check_arguments, common_audio, load_pair, make_vocoder
from models import REGISTRY

HELD_OUT = Path("filelists/sentences_audio_text_val_filelist.txt")


def main(argv: list[str] | None = None) -> None:
    """Read lines, load models and judges, speak, judge, write."""
    args, given = parse_args(sys.argv[1:] if argv is None else argv)
    device = precision.pick_device(cpu=args.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    acoustic, vocoding = load_pair(args, given, device)
    audio = common_audio(acoustic, vocoding)
    items = read_items(args, audio)
    judges = Judges([name for name in MEASURED if name not in args.without])
    made = anchors(items, vocoding, args, audio, device)
    made |= spoken(items, acoustic, vocoding, args, audio, device)
    if others := {name: getattr(args, name) for name in other_flags() if getattr(args, name)}:
        made |= spoken_by_others(items, others, args, given, audio, device)
    rate = audio.sampling_rate
    systems = [judged(name, items, sounds, speed, judges, rate) for name, (sounds, speed) in made.items()]
    write(systems, acoustic, args, rate)


def read_items(args: argparse.Namespace, audio: AudioConfig) -> list[HeldOut]:
    """The lines to speak, with their recordings where the file is a filelist. DataError as both kinds of file have it."""
    try:
        with args.input.open("rb") as file:
            has_recordings = b"|" in file.readline()
    except OSError:
        has_recordings = True  # and read_filelist says what is wrong
    if not has_recordings:
        phrases = read_phrases(args.input)
        count = min(args.lines or len(phrases), len(phrases))
        return [HeldOut(phrases[number * len(phrases) // count], None) for number in range(count)]
    rows = read_filelist(args.input)
    check_files(rows, args.input, args.dataset_path)
    if mels := [row.path for row in rows if row.path.endswith(".pt")]:
        raise DataError(
            f"{args.input}: names cached mels, such as {mels[0]}, expected audio: recordings are listened to"
        )
    return [held_out(row, args.dataset_path, audio) for row in spread(rows, args.lines or len(rows))]


Sounds = dict[
    str, tuple[list[Made], float]
]  # by the system's name: what it made, and how many times faster than real time


def anchors(
    items: list[HeldOut], vocoding: Loaded | None, args: argparse.Namespace, audio: AudioConfig, device: torch.device
) -> Sounds:
    """What there is to compare with: the recordings, and their true mels through each vocoder."""
    if any(item.recording is None for item in items):
        return {}
    made: Sounds = {"recordings": (recordings(items), math.nan)}
    for name, vocoder in vocoders(vocoding, args, audio, device).items():
        made[f"true mels, {name}"] = from_true_mels(items, vocoder, audio, device)
    return made


def vocoders(
    vocoding: Loaded | None, args: argparse.Namespace, audio: AudioConfig, device: torch.device
) -> dict[str, Vocoder]:
    """Griffin-Lim, and the trained vocoder where there is one, by name."""
    found = {GRIFFIN_LIM: griffin_lim_vocoder(audio, device, args.seed)}
    if vocoding is not None:
        found[vocoding.spec.name] = make_vocoder(vocoding, args, audio, device)
    return found


def spoken(
    items: list[HeldOut],
    acoustic: Loaded,
    vocoding: Loaded | None,
    args: argparse.Namespace,
    audio: AudioConfig,
    device: torch.device,
) -> Sounds:
    """The texts as the models speak them, through each vocoder."""
    precision.seed_everything(args.seed)
    with lines_of(args.input):
        made = from_texts(items, acoustic, vocoders(vocoding, args, audio, device), audio, device, args.fp16)
    return {f"{acoustic.spec.name}, {name}": sounds for name, sounds in made.items()}


def spoken_by_others(
    items: list[HeldOut],
    others: Mapping[str, Any],
    args: argparse.Namespace,
    given: Mapping[str, Any],
    audio: AudioConfig,
    device: torch.device,
) -> Sounds:
    """The same with other checkpoints in place of those they are named beside."""
    args = copy.copy(args)
    for name, path in others.items():
        setattr(args, name.removeprefix("other_"), path)
    acoustic, vocoding = load_pair(args, given, device)
    if common_audio(acoustic, vocoding).sampling_rate != audio.sampling_rate:
        raise DataError(f"{', '.join(map(str, others.values()))}: another sampling rate than {audio.sampling_rate} Hz")
    made = spoken(items, acoustic, vocoding, args, common_audio(acoustic, vocoding), device)
    return {f"other {name}": sounds for name, sounds in made.items()}


def write(systems: list[System], acoustic: Loaded, args: argparse.Namespace, rate: int) -> None:
    """Print the table; write the page, worst lines of the main system first, and all numbers."""
    judged_name = next(
        s for s in reversed(systems) if not s.name.startswith("other ") and s.name.startswith(acoustic.spec.name)
    )
    settings = {name: str(value) for name, value in vars(args).items() if value is not None}
    report, numbers = args.output / "report.html", args.output / "report.json"
    try:
        with atomic_write(report) as file:
            file.write(page(f"How well it speaks: {args.input.name}", systems, judged_name, rate).encode())
        with atomic_write(numbers) as file:
            file.write(json.dumps(as_json(systems, settings), indent=1, ensure_ascii=False).encode())
    except OSError as error:
        raise DataError(f"{args.output}: cannot write the report ({error.strerror}); choose another --output") from None
    print(f"{table(systems)}\n\n{legend()}\n\n{report}\n{numbers}")


def other_flags() -> list[str]:
    """The options that say what to compare with, and that take the place of those without `other_`."""
    return ["other_vocoder", *(f"other_{spec.flag}" for spec in REGISTRY.values())]


def parse_args(argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """All options, and those that the command line names."""
    parser = argparse.ArgumentParser(
        prog="evaluate.py",
        usage="%(prog)s [-i FILELIST] [flags]  (-h lists them)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add("-i", "--input", type=Path, default=HELD_OUT, help="filelist audio|text, or text file, one phrase a line")
    add("--dataset-path", default="./", help="folder that the filelist's paths start at")
    add("-o", "--output", type=Path, default=Path("output/evaluation"), help="folder of the report")
    add("--lines", type=positive, help="so many, evenly spaced over the file (default: all)")
    add(
        "--without",
        nargs="+",
        choices=MEASURED,
        default=[],
        help="measures to leave out: words, opinion, likeness to the recording",
    )
    for spec in REGISTRY.values():
        add(f"--other-{spec.flag}", type=Path, metavar="CHECKPOINT", help=f"{spec.role} model to compare with")
    vocoders = [spec.flag for spec in REGISTRY.values() if spec.role == "vocoder"]
    add("--other-vocoder", choices=[*vocoders, GRIFFIN_LIM], help="what it speaks through (default: --vocoder)")
    add_speaking_arguments(parser)
    args = parser.parse_args(argv)
    if wrong := check_arguments(args):
        raise UsageError("\n".join(wrong))
    return args, given_options(parser, argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
