"""Flags of `studio.prepare`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from common.arguments import LineHelpFormatter, given_options, positive, sampling_rate, seconds, share_or_number
from common.audio.audio_processing import NORMALIZATIONS
from common.errors import UsageError
from common.parser import Parser
from studio.prepare.config import KEY_VARIABLE, CuttingConfig, FaultLimits, TextConfig
from studio.prepare.silence import BELOW_SPEECH
from studio.project import PROJECTS, Project

VALIDATION = 0.05  # of the clips
WITH_APPLY = {"folder", "name", "projects", "apply", "validation"}  # FOLDER has a message of its own
DESCRIPTION = """Make training data from a folder of recordings.

    python -m studio.prepare recordings --name mine    # cut, transcribe, check; writes output/studio/mine
    python -m studio.prepare --name mine --apply       # after an edit of output/studio/mine/clips.tsv
    python -m studio.plan mine                         # the next step

Recordings of any length, rate and format become clips of 1 to 11 seconds, cut at pauses. Their texts come from files
beside the audio: NAME.srt or NAME.vtt (subtitles), NAME.txt (the words of the whole recording), or a table metadata.csv
with rows id|text. Recordings without such a file are transcribed. Every transcript is compared with recognised words.

clips.tsv lists all clips with their faults, the worst first: correct the text there, or write no into the column use.
Edits survive a further run. Nothing in FOLDER changes. A run that was stopped goes on when it is started again."""


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """All options of a run."""

    project: Project
    folder: Path | None
    apply: bool
    cutting: CuttingConfig
    texts: TextConfig
    limits: FaultLimits
    validation: float | None  # None: that of the run before
    several_speakers: bool
    workers: int


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the flags of the command."""
    return _parser().parse_args(argv)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m studio.prepare", description=DESCRIPTION, formatter_class=LineHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, nargs="?", help="the recordings, with the folders below it")
    add("--name", required=True, help="of the project: Latin letters, digits, - and _")
    add("--projects", type=Path, default=PROJECTS, help="folder of all projects")
    edits = "read the edits of clips.tsv and write the filelists again; needs no FOLDER"
    add("--apply", action="store_true", help=edits)
    add("--num-workers", type=positive, default=os.cpu_count() or 1, help="processes")
    _add_cutting(parser.add_argument_group("clips"))
    _add_texts(parser.add_argument_group("texts"))
    _add_faults(parser.add_argument_group("faults: from these limits on a clip has one"))
    return parser


def _add_cutting(group: argparse._ArgumentGroup) -> None:
    add, default = group.add_argument, CuttingConfig
    add("-sr", "--sampling-rate", type=sampling_rate, default=default.sampling_rate, help="Hz, of the clips")
    add("--min-duration", type=seconds, default=default.min_duration, metavar="S", help="shortest clip, in seconds")
    add("--max-duration", type=seconds, default=default.max_duration, metavar="S", help="longest clip, in seconds")
    pause, margin = "shortest pause at which to cut, in seconds", "silence that stays at either end, in seconds"
    add("--min-pause", type=seconds, default=default.min_pause, metavar="S", help=pause)
    add("--margin", type=seconds, default=default.margin, metavar="S", help=margin)
    levels = "level of the clips: as recorded, of one peak, or of one loudness"
    add("--normalize", choices=NORMALIZATIONS, default=default.normalize, help=levels)
    fill = f"fill digital silence, as noise gates leave it, with noise {BELOW_SPEECH:g} dB below the speech"
    add("--fill-silence", action=argparse.BooleanOptionalAction, default=default.fill_silence, help=fill)
    validation = (
        "clips for validation, a number or a share below 1; whole recordings where there are ten or more"
        f" (default: {VALIDATION:g}; with --apply, as in the run before)"
    )
    add("--validation", type=share_or_number, metavar="N", help=validation)


def _add_texts(group: argparse._ArgumentGroup) -> None:
    add, default = group.add_argument, TextConfig
    language = "of the recordings; the recogniser in the box has English alone"
    add("--language", default=default.language, metavar="CODE", help=language)
    verify = "compare transcripts with recognised words"
    add("--verify", action=argparse.BooleanOptionalAction, default=default.verify, help=verify)
    url = f"base URL of a transcription endpoint of OpenAI's kind, such as http://localhost:8000/v1; its key: {KEY_VARIABLE}"
    add("--transcriber", metavar="URL", help=f"{url} in the environment. Clips are sent there")
    add("--transcriber-model", default=default.transcriber_model, metavar="NAME", help="the endpoint's model")
    requests = "requests that the endpoint gets at a time"
    add("--transcriber-requests", type=positive, default=default.transcriber_requests, help=requests)


def _add_faults(group: argparse._ArgumentGroup) -> None:
    add, default = group.add_argument, FaultLimits
    add("--clipping-runs", type=positive, default=default.clipping_runs, help="runs of samples at full scale")
    ratio = "speech above noise, estimated from pauses"
    add("--min-snr", type=float, default=default.min_snr, metavar="DB", help=ratio)
    bandwidth = "highest frequency; speech by telephone ends at 4000"
    add("--min-bandwidth", type=float, default=default.min_bandwidth, metavar="HZ", help=bandwidth)
    distance = "distance from the median level of all clips"
    add("--loudness", type=float, default=default.loudness, metavar="DB", help=distance)
    wrong = "share of a transcript's words that were not recognised; such clips are not used"
    add("--max-words-wrong", type=float, default=default.max_words_wrong, metavar="SHARE", help=wrong)
    add("--pace", type=float, default=default.pace, metavar="X", help="letters a second, in medians of all clips")
    several = "go on where the recordings seem to have several speakers; the voice will be a mixture of them"
    add("--allow-several-speakers", action="store_true", help=several)


def options_of(argv: list[str] | None = None) -> PrepareOptions:
    """Parse and check the flags. Raises UsageError for those that contradict each other."""
    args = parse_args(argv)
    project = Project(name=args.name, projects=args.projects)
    if args.apply == (args.folder is not None):
        without = "no FOLDER with --apply, which reads clips.tsv alone"
        raise UsageError(f"expected {without if args.apply else 'FOLDER, the recordings, or --apply'}")
    if args.apply:
        _refuse_without_effect(sys.argv[1:] if argv is None else argv)
    if args.folder is not None:
        _check_folder(args.folder, project)
    if args.transcriber and not args.transcriber.startswith(("http://", "https://")):
        raise UsageError(f"--transcriber {args.transcriber}: expected a URL, http://… or https://…")
    return PrepareOptions(
        project=project,
        folder=args.folder,
        apply=args.apply,
        cutting=_config(CuttingConfig, args),
        texts=_config(TextConfig, args),
        limits=_config(FaultLimits, args),
        validation=args.validation or (None if args.apply else VALIDATION),
        several_speakers=args.allow_several_speakers,
        workers=args.num_workers,
    )


def _refuse_without_effect(argv: list[str]) -> None:
    """Raise UsageError for flags beside --apply that have no effect there."""
    parser = _parser()
    given, words = given_options(parser, argv), {word.partition("=")[0] for word in argv}
    actions = [action for action in parser._actions if action.dest in given.keys() - WITH_APPLY]
    if actions:
        spellings = [[s for s in action.option_strings if s in words] or action.option_strings for action in actions]
        raise UsageError(
            f"{', '.join(names[-1] for names in spellings)}: no effect with --apply, which reads clips.tsv alone;"
            " run python -m studio.prepare FOLDER without --apply"
        )


def _config(kind: Any, args: argparse.Namespace) -> Any:
    return kind(**{field.name: getattr(args, field.name) for field in fields(kind)})


def _check_folder(folder: Path, project: Project) -> None:
    if not folder.exists():
        raise UsageError(f"{folder}: no such folder; expected a folder of recordings")
    if not folder.is_dir():
        raise UsageError(f"{folder}: a file; expected the folder of the recordings, here {folder.parent}")
    if project.root.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"{folder}: contains the project {project.root}, whose clips would count as recordings;"
            " choose a folder of recordings alone, or other --projects"
        )
