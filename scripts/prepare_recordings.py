"""Prepare recordings for training: check every clip, convert clips where needed, write the filelists.

    bash scripts/prepare_dataset.sh --dataset voice/                       # voice/metadata.csv, voice/wavs/ID.wav
    bash scripts/prepare_dataset.sh --dataset voice/list.txt --resample    # rows path|text
    bash scripts/prepare_dataset.sh --dataset asterisk                     # 539 telephone prompts, CC-BY-SA 3.0; needs av

metadata.csv has rows id|text or id|raw text|normalised text, or columns with a heading; audio is wav, flac, ogg, opus or mp3,
with --resample of any other format, too.
If all clips can be used as they are, none is copied; otherwise 16-bit copies of all go to DATASET_PATH/NAME/wavs. Safe to
interrupt and run again. An existing filelist with other content is kept and reported.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import math
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from common.arguments import copy_arguments, option_argv, positive, seconds, share_or_number
from common.audio.stft import AudioConfig
from common.data.filelist import Utterance, choose_held_out, list_path, path_in_filelist, write_list
from common.data.mels import mel_path_of, unusable_rows
from common.errors import DataError, UsageError, exit_on_user_error, join_problems
from common.files import locate_problems
from common.options import add_fields, argument, from_options, option, section
from common.parser import Parser
from common.precision import gpu_count
from common.progress import counted
from common.spec import Options
from models import acoustic_spec
from scripts import recordings

ASTERISK, PROMPTS = "asterisk", Path(__file__).parent / "asterisk.sh"
TAKEN = ("ljs", "clock", "sentences", ASTERISK)  # names of other corpora's filelists
FILELISTS = Path("filelists")
ACOUSTIC = acoustic_spec()  # the model of the printed commands


@dataclass(frozen=True, kw_only=True)
class RecordingsOptions:
    """The command's flags."""

    dataset: str = option(
        None, f"a folder with metadata.csv and wavs/, a list of rows path|text, or {ASTERISK}", required=True
    )
    name: str | None = option(
        None, "name of the filelists and of the folder of copies (default: that of the folder or list)"
    )
    treatment: recordings.Treatment = section(recordings.Treatment)
    min_duration: float | None = option(
        None, "leave out clips shorter than S seconds after trimming", type=seconds, metavar="S"
    )
    max_duration: float | None = option(
        None, "leave out clips longer than S seconds after trimming", type=seconds, metavar="S"
    )
    validation: float = option(
        0.05, "validation clips: a number, or a share below 1", type=share_or_number, metavar="N"
    )
    num_workers: int = option(os.cpu_count() or 1, "processes (default: one per core)", type=positive)
    filelists: Path | None = option(None, "folder for the filelists (default: the project's)")
    relative_to: Path = option(Path(), "folder that the paths given here start from")
    dataset_path: Path | None = argument("folder for copies (default: the project's folder)", None, nargs="?")
    training: Options = field(default_factory=dict)  # flags of training that decide which rows it accepts
    given: Options = field(default_factory=dict)  # those of them that are no defaults

    def __post_init__(self) -> None:
        if self.min_duration and self.max_duration and self.min_duration > self.max_duration:
            raise UsageError(f"--min-duration {self.min_duration:g}: more than --max-duration {self.max_duration:g}")

    @property
    def audio(self) -> dict[str, float]:
        """The options of audio that are no defaults: the rate, and half of it as the highest frequency of mels if that is lower."""
        rate = self.treatment.sampling_rate
        given = {"sampling_rate": rate, "mel_fmax": min(AudioConfig.mel_fmax, rate / 2)}
        return {name: value for name, value in given.items() if value != getattr(AudioConfig, name)}


def parse_args(argv: list[str] | None = None) -> RecordingsOptions:
    parser = Parser(prog="bash scripts/prepare_dataset.sh", description=__doc__)
    add_fields(parser, RecordingsOptions)
    copy_arguments(parser, ACOUSTIC.row_options, ACOUSTIC.add_arguments, ACOUSTIC.add_training_arguments)
    values = vars(parser.parse_args(argv))
    training = {name: values[name] for name in ACOUSTIC.row_options}
    given = {name: value for name, value in training.items() if value != parser.get_default(name)}
    return from_options(RecordingsOptions, values | {"training": training, "given": given})


def find_corpus(
    dataset: str, given_name: str | None, relative_to: Path, dataset_path: Path
) -> tuple[str, recordings.Rows]:
    """Return the name of --dataset, and its rows. Raises UsageError if it does not exist or its name cannot be used."""
    path, fetched = relative_to / dataset, dataset == ASTERISK
    if not (fetched or path.exists()):
        raise UsageError(
            f"--dataset: no folder or list {path}; expected a folder with metadata.csv and wavs/, a list of rows path|text, "
            f"or {ASTERISK}; leave --dataset out for LJSpeech"
        )
    own = path.resolve().name if path.is_dir() else path.stem
    name = given_name or (ASTERISK if fetched else own)
    if not re.fullmatch(r"\w[\w.-]*", name):
        expected = "expected letters, digits, '_', '-' and '.', as it becomes part of file names"
        raise UsageError(f"--name: {name!r}, {expected}")
    if name in TAKEN and not (fetched and name == ASTERISK):
        raise UsageError(f"--name: {name} is the name of another corpus; choose another one")
    if fetched:
        path = dataset_path / name / "prompts"
        if subprocess.run(["bash", str(PROMPTS), str(path.parent)]).returncode:
            raise DataError(f"{PROMPTS.name}: failed, see above")
    return name, recordings.read_rows(path, dataset_path)


def choose_clips(rows: recordings.Rows, args: RecordingsOptions) -> recordings.Clips:
    """Check all clips, leave out those outside the limits of length, and check the rows of the others as training does.

    Raises DataError that lists all unusable rows, or if no clip is left.
    """
    clips, bad = recordings.check_clips(rows, args.treatment, args.num_workers), rows.problems
    within = recordings.within_limits(clips, args.min_duration or 0.0, args.max_duration or math.inf)
    good = {recording: clip for recording, clip in within.items() if recording.row not in bad}
    utterances = [Utterance(str(recording.path), recording.text) for recording in good]
    samples = [math.ceil(clip.seconds * args.treatment.sampling_rate) for clip in good.values()]
    options = {**args.training, **args.audio, "dataset_path": ""}
    for index, problem in unusable_rows(ACOUSTIC, options, utterances, samples).items():
        recordings.add_problem(bad, [*good][index].row, problem)
    if bad:
        lines = join_problems(locate_problems(rows.place, bad))
        hint = "" if args.treatment.resample else "; --resample converts other rates and formats, and stereo to mono"
        raise DataError(
            f"{lines}\n{counted(len(bad), 'row')} cannot be used; fix or remove {'it' if len(bad) == 1 else 'them'}{hint}"
        )
    if not within:
        raise DataError("no clip is within --min-duration and --max-duration")
    return within


def write_lists(
    name: str, files: Mapping[recordings.Recording, Path], held_out: set[str], dataset_path: Path, folder: Path
) -> None:
    """Write the four filelists of a corpus; paths inside the data set's folder are relative to it."""
    agree = True
    for part in ("train", "val"):
        chosen = {
            recording: path for recording, path in files.items() if (recording.name in held_out) == (part == "val")
        }
        for kind in ("audio", "mel"):
            paths = [path if kind == "audio" else mel_path_of(path) for path in chosen.values()]
            rows = [(path_in_filelist(path, dataset_path), r.text) for path, r in zip(paths, chosen, strict=True)]
            agree &= write_list(list_path(folder, name, kind, part), rows, wanted="the output of these flags")
    if not agree:
        print("note: training will read the existing filelists, not the result of these flags")


def training_flags(clips: int, minutes: float) -> tuple[list[str], str]:
    """train.py's flags for this much data on this machine, as studio.plan chooses them for random weights; and the reason."""
    advice = ACOUSTIC.advise(minutes, 0, gpu_count() > 0)
    batch = min(advice.options["batch_size"], clips)
    return option_argv({**advice.options, "batch_size": batch, "lr_schedule": "cosine"}), advice.reason


def next_commands(name: str, dataset_path: Path, folder: Path, args: RecordingsOptions, chosen: Sequence[str]) -> str:
    """The commands that compute mels, train into a separate output folder, and speak with the result."""
    output, start = f"output/{name}", os.path.relpath(dataset_path)
    start = str(dataset_path.resolve()) if start.startswith("..") else start
    audio = option_argv(args.audio)
    lists = {kind: [str(list_path(folder, name, kind, part)) for part in ("train", "val")] for kind in ("audio", "mel")}
    if folder == FILELISTS:
        mels = ["bash", "scripts/prepare_mels.sh", name, start, *audio]
    else:  # that script has no flag for other folders
        mels = ["python", "-m", "common.data.mels", "--dataset-path", start, *audio]
        mels += ["--audio-filelist", *lists["audio"], "--mel-filelist", *lists["mel"]]
    train = ["python", "train.py", "-m", "Tacotron2", "-o", output, "--amp", "--dataset-path", start, *audio]
    train += ["--load-mel-from-disk", "--training-files", lists["mel"][0]]
    train += ["--validation-files", lists["mel"][1], *option_argv(args.given), *chosen]
    speak = ["python", "inference.py", "-i", "phrases/phrase.txt", "-o", f"{output}/spoken"]
    speak += ["--tacotron2", f"{output}/checkpoint_Tacotron2_best.pt", "--vocoder", "griffin-lim"]
    commands = "".join(f"\n    {shlex.join(command)}" for command in (mels, train, speak))
    end = "fine-tuning a trained model: docs/training.md"
    return f"ready; next, compute mels, train, and speak with the result:{commands}\n{end}"


def main(argv: list[str] | None = None) -> None:
    """Check and convert the clips, and write the filelists."""
    args = parse_args(argv)
    dataset_path = args.relative_to / args.dataset_path if args.dataset_path else Path()
    name, rows = find_corpus(args.dataset, args.name, args.relative_to, dataset_path)
    if args.dataset == ASTERISK:  # at 16 kHz, and one of its prompts is longer than training takes
        longest = args.max_duration or args.training["longest_clip"]
        args = replace(args, treatment=replace(args.treatment, resample=True), max_duration=longest)
    clips = choose_clips(rows, args)
    held_out = choose_held_out({recording.name: [recording.name] for recording in clips}, args.validation)
    for recording in clips:  # before anything is written
        path_in_filelist(recording.path, dataset_path)
    filelists = args.relative_to / args.filelists if args.filelists else FILELISTS
    files = recordings.place_clips(clips, dataset_path / name / "wavs", args.treatment, args.num_workers)
    write_lists(name, files, held_out, dataset_path, filelists)
    lengths = [clip.seconds for clip in clips.values()]
    print(
        f"{name}: {counted(len(lengths), 'clip')}, {sum(lengths) / 60:.1f} minutes, "
        f"{min(lengths):.2f} to {max(lengths):.2f} s; {len(held_out)} of them for validation"
    )
    chosen, reason = training_flags(len(lengths) - len(held_out), sum(lengths) / 60)
    if rows.source:
        print(f"{rows.place}: {rows.source}")
    print(f"settings of training: {reason}")
    print(next_commands(name, dataset_path, filelists, args, chosen))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
