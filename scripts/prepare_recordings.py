"""Prepare recordings for training: check every clip, convert clips where needed, write the filelists.

    bash scripts/prepare_dataset.sh --dataset voice/                       # voice/metadata.csv, voice/wavs/ID.wav
    bash scripts/prepare_dataset.sh --dataset voice/list.txt --resample    # rows path|text
    bash scripts/prepare_dataset.sh --dataset asterisk                     # 540 telephone prompts, CC-BY-SA 3.0; needs ffmpeg

metadata.csv has rows id|text or id|raw text|normalised text; audio is wav, flac or ogg. If all clips are usable as
they are, none is copied; otherwise 16-bit copies of all go to DATASET_PATH/NAME/wavs. Safe to stop and to run again at any moment.
An existing filelist with other content stays, with a message.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.studio import asterisk
from common.arguments import positive, sampling_rate, seconds, share_or_number
from common.audio.stft import AudioConfig
from common.data.mels import mel_path_of
from common.data.recordings import (
    Clip,
    Recording,
    Rows,
    Treatment,
    changes,
    check_clips,
    choose_held_out,
    convert_clips,
    needs_copies,
    read_layout,
    read_list,
)
from common.errors import DataError, UsageError, exit_on_user_error, join_problems
from common.files import locate_problems
from common.parser import Parser
from scripts.prepare_dataset import has_lines, shorten_list, write_filelist

ASTERISK = "asterisk"
TAKEN = ("ljs", "clock", "sentences", ASTERISK)  # names of other corpora's filelists
FILELISTS = Path("filelists")
VALIDATION = 0.05  # of the clips


class Source(NamedTuple):
    """Rows with their file or folder, and the name of the corpus."""

    place: str
    name: str
    rows: Rows


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="bash scripts/prepare_dataset.sh",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("dataset_path", type=Path, nargs="?", help="where copies go (default: the project's folder)")
    add(
        "--dataset",
        required=True,
        help=f"a folder with metadata.csv and wavs/, a list of rows path|text, or {ASTERISK}",
    )
    add("--name", help="of the filelists and the folder of copies (default: the folder's or the list's)")
    add("--resample", action="store_true", help="convert clips of other rates and mix stereo down")
    add("--trim-silence", action="store_true", help="cut silent ends, but for 50 ms")
    add("--min-duration", type=seconds, metavar="S", help="leave out clips of fewer seconds, after trimming")
    add("--max-duration", type=seconds, metavar="S", help="leave out clips of more seconds, after trimming")
    add(
        "--validation",
        type=share_or_number,
        default=VALIDATION,
        metavar="N",
        help=f"clips for validation: a number, or a share below 1 (default: {VALIDATION})",
    )
    rate = AudioConfig.sampling_rate
    add("-sr", "--sampling-rate", type=sampling_rate, default=rate, help=f"Hz, of all clips (default: {rate})")
    add("--num-workers", type=positive, default=os.cpu_count() or 1, help="processes (default: one a core)")
    add("--filelists", type=Path, help="where the lists go (default: the project's filelists)")
    add("--relative-to", type=Path, default=Path(), help="where paths given here start (default: the current folder)")
    args = parser.parse_args(argv)
    if args.min_duration and args.max_duration and args.min_duration > args.max_duration:
        raise UsageError(f"--min-duration {args.min_duration:g}: more than --max-duration {args.max_duration:g}")
    return args


def find_source(args: argparse.Namespace, dataset_path: Path) -> Source:
    """Read the rows of --dataset. Raises UsageError where it does not exist, or its name cannot be used."""
    path = args.relative_to / args.dataset
    fetched = args.dataset == ASTERISK
    if not (fetched or path.exists()):
        raise UsageError(
            f"--dataset: no folder or list {path}; expected a folder with metadata.csv and wavs/, a list of rows path|text, "
            f"or {ASTERISK}; leave --dataset out for LJSpeech"
        )
    name = args.name or (ASTERISK if fetched else path.resolve().name if path.is_dir() else path.stem)
    if not re.fullmatch(r"\w[\w.-]*", name):
        expected = "expected letters, digits, '_', '-' and '.', as it becomes part of file names"
        raise UsageError(f"--name: {name!r}, {expected}")
    if name in TAKEN and not (fetched and name == ASTERISK):
        raise UsageError(f"--name: {name} is the name of another corpus here, choose another one")
    if fetched:
        print(f"{name}: {asterisk.NOTICE}", flush=True)
        rows = asterisk.prepare(dataset_path / name, os.environ)
        return Source(str(dataset_path / name / "decoded"), name, rows)
    if path.is_dir():
        return Source(str(path / "metadata.csv"), name, read_layout(path))
    return Source(str(path), name, read_list(path, dataset_path))


def check(source: Source, treatment: Treatment, workers: int) -> dict[str, Clip]:
    """Check all clips and return them by name. Raises DataError with all unusable rows."""
    clips = check_clips(source.rows, treatment, workers)
    bad = source.rows.problems
    if bad:
        lines = join_problems(locate_problems(source.place, bad))
        hint = "" if treatment.resample else "; --resample converts other rates and mixes stereo down"
        raise DataError(f"{lines}\n{len(bad)} rows cannot be used, mend or remove them{hint}")
    return {recording.name: clips[recording.row] for recording in source.rows.recordings}


def within_limits(clips: dict[str, Clip], shortest: float | None, longest: float | None) -> dict[str, Clip]:
    """Select the clips with lengths within the limits in seconds, and print the others. Raises DataError if none remains."""
    short = [name for name, clip in clips.items() if shortest and clip.seconds < shortest]
    long = [name for name, clip in clips.items() if longest and clip.seconds > longest]
    for names, what in ((short, f"shorter than {shortest} s"), (long, f"longer than {longest} s")):
        if names:
            named = shorten_list([f"{name} ({clips[name].seconds:.2f} s)" for name in names])
            print(f"left out, {what}: {len(names)} clips: {', '.join(named)}")
    within = {name: clip for name, clip in clips.items() if name not in {*short, *long}}
    if not within:
        raise DataError("no clip is within --min-duration and --max-duration")
    return within


def place_clips(
    recordings: Sequence[Recording], clips: dict[str, Clip], folder: Path, treatment: Treatment, workers: int
) -> dict[str, Path]:
    """Return the file to train on by name of the clip: the recording or, if any clip has to be converted, its copy in `folder`."""
    if not needs_copies(clips.values(), treatment):
        print("every clip can be trained on as it is: no copies")
        return {recording.name: recording.path for recording in recordings}
    inside = [r.path for r in recordings if r.path.resolve().is_relative_to(folder.resolve())]
    if inside:  # of the recordings there may be no other copy
        raise UsageError(f"--name: the copies would go to {folder}, where the recordings are; choose another name")
    targets = {recording.name: folder / f"{recording.name}.wav" for recording in recordings}
    n_new = convert_clips([(r.path, clips[r.name], targets[r.name]) for r in recordings], treatment, folder, workers)
    summary = ", ".join(changes(clips, treatment))
    print(f"copies in {folder}: {summary}; {n_new} made, {len(targets) - n_new} there already")
    return targets


def write_lists(source: Source, files: dict[str, Path], validation: set[str], dataset_path: Path, folder: Path) -> None:
    """Write the four filelists; paths inside the data set's folder are relative to it."""
    differs = False
    for part in ("train", "val"):
        chosen = [r for r in source.rows.recordings if r.name in files and (r.name in validation) == (part == "val")]
        for kind in ("audio", "mel"):
            rows = []
            for recording in chosen:
                path = files[recording.name] if kind == "audio" else mel_path_of(files[recording.name])
                rows.append(f"{path_in_filelist(path, dataset_path)}|{recording.text}\n")
            target = filelist(folder, source.name, kind, part)
            content = "".join(rows)
            outcome = write_filelist(target, content, wanted="the output of these flags")
            print(f"filelists: {target}: {len(rows)} clips, {outcome}")
            differs = differs or not has_lines(target, content)
    if differs:
        print("note: training reads the filelists as they are now, without the settings of this command")


def filelist(folder: Path, name: str, kind: str, part: str) -> Path:
    """Return the path of a corpus's list: kind audio or mel, part train or val."""
    return folder / f"{name}_{kind}_text_{part}_filelist.txt"


def path_in_filelist(path: Path, dataset_path: Path) -> str:
    """Format a path for a filelist. Raises DataError if it contains the separator of filelists."""
    full, start = Path(os.path.abspath(path)), Path(os.path.abspath(dataset_path))
    text = full.relative_to(start).as_posix() if full.is_relative_to(start) else full.as_posix()
    if "|" in text:
        raise DataError(f"{text}: '|' in a path, which ends it in a filelist: rename the folder")
    return text


def small_set_flags(clips: int, minutes: float) -> list[str]:
    """List train.py's flags for a small corpus, as in docs/training.md; none from ten hours on, where the defaults fit."""
    if minutes >= 600:
        return []
    epochs = 500 if minutes < 60 else 250
    words = f"-bs {min(16, clips)} --epochs {epochs} --lr-schedule cosine --guided-attention-weight 100"
    return words.split() + (["--n-frames-per-step", "2"] if minutes < 60 else [])


def next_commands(source: Source, dataset_path: Path, folder: Path, sampling_rate: int, small: Sequence[str]) -> str:
    """Name the commands that compute mels, train into an output folder of its own, and speak with the result."""
    name, output = source.name, f"output/{source.name}"
    start = os.path.relpath(dataset_path)
    start = str(dataset_path.resolve()) if start.startswith("..") else start
    audio = [] if sampling_rate == AudioConfig.sampling_rate else ["--sampling-rate", str(sampling_rate)]
    audio += ["--mel-fmax", str(sampling_rate / 2)] if sampling_rate / 2 < AudioConfig.mel_fmax else []
    lists = {kind: [str(filelist(folder, name, kind, part)) for part in ("train", "val")] for kind in ("audio", "mel")}
    if folder == FILELISTS:
        mels = ["bash", "scripts/prepare_mels.sh", name, start, *audio]
    else:  # that script has no flag for other folders
        mels = ["python", "-m", "common.data.mels", "--dataset-path", start, *audio]
        mels += ["--audio-filelist", *lists["audio"], "--mel-filelist", *lists["mel"]]
    train = ["python", "train.py", "-m", "Tacotron2", "-o", output, "--amp", "--dataset-path", start, *audio]
    train += ["--load-mel-from-disk", "--training-files", lists["mel"][0]]
    train += ["--validation-files", lists["mel"][1], *small]
    speak = ["python", "inference.py", "-i", "phrases/phrase.txt", "-o", f"{output}/spoken"]
    speak += ["--tacotron2", f"{output}/checkpoint_Tacotron2_best.pt", "--vocoder", "griffin-lim"]
    commands = "".join(f"\n    {shlex.join(command)}" for command in (mels, train, speak))
    end = "to fine-tune a trained model: docs/training.md"
    return f"ready; compute mels, train, speak with the result:{commands}\n{end}"


def main(argv: list[str] | None = None) -> None:
    """Check and convert the clips, and write the filelists."""
    args = parse_args(argv)
    dataset_path = args.relative_to / args.dataset_path if args.dataset_path else Path()
    source = find_source(args, dataset_path)
    treatment = Treatment(args.sampling_rate, args.resample or args.dataset == ASTERISK, args.trim_silence)
    clips = within_limits(check(source, treatment, args.num_workers), args.min_duration, args.max_duration)
    validation = choose_held_out(list(clips), args.validation)
    recordings = [recording for recording in source.rows.recordings if recording.name in clips]
    for recording in recordings:  # before anything is written
        path_in_filelist(recording.path, dataset_path)
    filelists = args.relative_to / args.filelists if args.filelists else FILELISTS
    files = place_clips(recordings, clips, dataset_path / source.name / "wavs", treatment, args.num_workers)
    write_lists(source, files, validation, dataset_path, filelists)
    lengths = [clip.seconds for clip in clips.values()]
    print(
        f"{source.name}: {len(lengths)} clips, {sum(lengths) / 60:.1f} minutes, "
        f"{min(lengths):.2f} to {max(lengths):.2f} s; {len(validation)} of them for validation"
    )
    small = small_set_flags(len(lengths) - len(validation), sum(lengths) / 60)
    print(next_commands(source, dataset_path, filelists, args.sampling_rate, small))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
