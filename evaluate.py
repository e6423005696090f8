"""Measure how well checkpoints speak: python evaluate.py, on held-out lines, beside the recordings and Griffin-Lim.

Speaks the lines of a filelist (audio|text), or of a text file, one phrase a line, free running; a speech recogniser and a predictor
of opinion scores judge the sounds. Prints a table, and writes report.html, with players, and report.json to --output.
`bash scripts/evaluation.sh` installs the judges.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from common import precision
from common.arguments import HelpFormatter, given_options, positive
from common.audio.stft import AudioConfig
from common.data.filelist import Utterance, check_files, lines_of, read_filelist, read_phrases
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import atomic_write
from common.inference.evaluation import MEASURED, HeldOut, Judges, Made, from_texts, from_true_mels, judged, recordings
from common.inference.stages import Loaded, Vocoder, griffin_lim_vocoder
from common.quality.page import page
from common.quality.report import System, as_json, legend, table
from common.spec import AcousticInference
from common.training.checkup import held_out, is_mel, spread
from inference import (
    GRIFFIN_LIM,
    add_speaking_arguments,
    check_arguments,
    common_audio,
    load_pair,
    make_vocoder,
    roles_of,
    settings,
    voice,
)
from models import REGISTRY

HELD_OUT = Path("filelists/sentences_audio_text_val_filelist.txt")


class Voice(NamedTuple):
    """Models that speak together, what they are named, and the ways from their mels to sound."""

    acoustic: Loaded
    audio: AudioConfig
    vocoders: dict[str, Vocoder]
    files: str
    settings: dict[str, Any]


def main(argv: list[str] | None = None) -> None:
    """Read lines, load models and judges, speak, judge, write."""
    args, given = parse_args(sys.argv[1:] if argv is None else argv)
    device = precision.pick_device(cpu=args.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    if args.int8 and (note := precision.int8_note(device)):
        print(note)
    ours = load_voice(args, given, device)
    voices = {"": ours}
    if (others := other_arguments(args)) is not None:
        voices["other "] = load_voice(others, given, device)
        if voices["other "].audio.sampling_rate != ours.audio.sampling_rate:
            raise DataError(
                f"{voices['other '].files}: another sampling rate than {ours.audio.sampling_rate} Hz of {ours.files}"
            )
    items = read_items(args, ours)
    make_folder(args.output)
    judges = Judges([name for name in MEASURED if name not in args.without])
    made = anchors(items, ours, device, args.seed)
    for prefix, voice_ in voices.items():
        print(f"{prefix}{voice_.files}", flush=True)
        for name, sounds in from_texts(
            items, voice_.acoustic, voice_.vocoders, voice_.audio, device, args.fp16, args.seed
        ).items():
            made[f"{prefix}{voice_.acoustic.spec.name}, {name}"] = sounds
    rate = ours.audio.sampling_rate
    systems = [judged(name, items, sounds, speed, judges, rate) for name, (sounds, speed) in made.items()]
    write(systems, voices, args)


def load_voice(args: argparse.Namespace, given: Mapping[str, Any], device: torch.device) -> Voice:
    """The models that the flags name, or that inference.py would take, and Griffin-Lim beside them."""
    acoustic, vocoding = load_pair(args, given, device)
    audio = common_audio(acoustic, vocoding)
    vocoders = {GRIFFIN_LIM: griffin_lim_vocoder(audio, device, args.seed)}
    if vocoding is not None:
        vocoders[vocoding.spec.name] = make_vocoder(vocoding, args, audio, device)
    return Voice(acoustic, audio, vocoders, voice(args), settings(args, acoustic, vocoding))


def other_arguments(args: argparse.Namespace) -> argparse.Namespace | None:
    """The options with those of --other-… in their places; None where there are none."""
    named = {spec.flag: path for spec in REGISTRY.values() if (path := getattr(args, f"other_{spec.flag}"))}
    if not named and not args.other_vocoder:
        return None
    vocoders = [flag for flag in vocoder_flags() if flag in named]
    if args.other_vocoder == GRIFFIN_LIM and vocoders:
        raise UsageError(f"--other-vocoder {GRIFFIN_LIM}: needs no --other-{vocoders[0]}, give one of them")
    own = GRIFFIN_LIM if "vocoder" not in roles_of(args) else args.vocoder
    chosen = args.other_vocoder or next(iter(vocoders), own)
    return argparse.Namespace(**vars(args) | named | {"vocoder": chosen})


def vocoder_flags() -> list[str]:
    """The names of the vocoders that have a checkpoint."""
    return [spec.flag for spec in REGISTRY.values() if spec.role == "vocoder"]


def read_items(args: argparse.Namespace, ours: Voice) -> list[HeldOut]:
    """The lines to speak, with their recordings where the file is a filelist. DataError names all lines that cannot be spoken."""
    try:
        with args.input.open("rb") as file:
            has_recordings = b"|" in file.readline()
    except OSError:
        has_recordings = True  # and read_filelist says what is wrong
    rows = read_filelist(args.input) if has_recordings else [Utterance("", text) for text in read_phrases(args.input)]
    if has_recordings:
        check_files(rows, args.input, args.dataset_path)
    if mels := [row.path for row in rows if is_mel(row)]:
        raise DataError(
            f"{args.input}: names cached mels, such as {mels[0]}, expected audio: recordings are listened to"
        )
    stages, options = ours.acoustic.spec.inference, ours.acoustic.options
    assert isinstance(stages, AcousticInference)
    with lines_of(args.input):
        stages.encode([row.text for row in rows], options)
    items = []
    for row in spread(rows, args.lines or len(rows)):
        item = held_out(row, args.dataset_path, ours.audio) if has_recordings else HeldOut(row.text, None)
        items.append(item._replace(aloud="".join(stages.spell(row.text, options))))
    return items


Sounds = dict[
    str, tuple[list[Made], float]
]  # by the system's name: what it made, and how many times faster than real time


def anchors(items: list[HeldOut], ours: Voice, device: torch.device, seed: int) -> Sounds:
    """What there is to compare with: the recordings, and their true mels through each vocoder."""
    if any(item.recording is None for item in items):
        return {}
    made: Sounds = {"recordings": (recordings(items), math.nan)}
    for name, vocoder in ours.vocoders.items():
        made[f"true mels, {name}"] = from_true_mels(items, vocoder, ours.audio, device, seed)
    return made


def make_folder(output: Path) -> None:
    """The folder of the report, before the work is done; DataError where it cannot be made."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{output}: cannot be a folder ({error.strerror}); choose another --output") from None


def write(systems: list[System], voices: Mapping[str, Voice], args: argparse.Namespace) -> None:
    """Print the table; write all numbers, and the page with the worst lines of the main system first."""
    ours = voices[""]
    main_system = next(one for one in reversed(systems) if one.name.startswith(ours.acoustic.spec.name))
    said = {f"{prefix}{one.files}": {k: str(v) for k, v in one.settings.items()} for prefix, one in voices.items()}
    report, numbers = args.output / "report.html", args.output / "report.json"
    title = f"How well it speaks: {args.input.name}"
    try:
        with atomic_write(numbers) as file:
            file.write(json.dumps(as_json(systems, said), indent=1, ensure_ascii=False).encode())
        with atomic_write(report) as file:
            file.write(page(title, systems, main_system, ours.audio.sampling_rate).encode())
    except OSError as error:
        raise DataError(f"{args.output}: cannot write the report ({error.strerror}); choose another --output") from None
    print(f"{table(systems)}\n\n{legend()}\n\n{report}\n{numbers}")


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
    add(
        "-i",
        "--input",
        type=Path,
        default=HELD_OUT,
        help="filelist audio|text, or text file, one phrase a line; each line is spoken in one piece",
    )
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
    add("--other-vocoder", choices=[*vocoder_flags(), GRIFFIN_LIM], help="what it speaks through (default: --vocoder)")
    add_speaking_arguments(parser)
    args = parser.parse_args(argv)
    if wrong := check_arguments(args):
        raise UsageError("\n".join(wrong))
    return args, given_options(parser, argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
