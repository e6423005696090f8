"""The options of `studio.prepare`, each with its flag, its default and its help."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from common.arguments import positive, sampling_rate, seconds, share_or_number
from common.audio.audio_processing import NORMALIZATIONS
from common.audio.stft import AudioConfig
from common.errors import UsageError
from common.options import argument, flag_of, option, parse_options, section, values_of
from common.quality.recogniser import ENGLISH, RecogniserConfig
from studio.prepare.levels import BELOW_SPEECH
from studio.project import VALIDATION, Project

KEY_VARIABLE = "TRANSCRIBER_API_KEY"  # in the environment
FAULTS = "faults: limits beyond which a clip has one"  # a heading of the help
DESCRIPTION = """Make training data from a folder of recordings.

    python -m studio.prepare recordings --name mine    # cut, transcribe, check; writes output/studio/mine
    python -m studio.prepare --name mine --apply       # after editing output/studio/mine/clips.tsv
    python -m studio.plan mine                         # the next step

Recordings of any length, rate and format become clips of 1 to 11 seconds, cut at pauses. Their texts come from files
beside the audio: subtitles (NAME.srt, NAME.vtt), labels (of Audacity, Praat, HTK or Whisper), NAME.txt (the words of the
whole recording), or a table metadata.csv with rows id|text. A line for each says what it matched. Recordings without such a
file are transcribed. Every transcript is checked against recognised words: by Moonshine in English, by Whisper in other
languages (`bash scripts/whisper.sh` installs it).

clips.tsv lists all clips and what is wrong with them, the worst first: correct the text there, or set the column use
to no. Later runs keep your edits. Nothing in FOLDER changes. An interrupted run continues when you start it again."""


@dataclass(frozen=True, kw_only=True)
class CuttingConfig:
    """How recordings are cut into clips. Raises UsageError for limits that contradict each other."""

    sampling_rate: int = option(
        AudioConfig.sampling_rate, "sampling rate of the clips, in Hz", "-sr", type=sampling_rate
    )
    min_duration: float = option(1.0, "shortest clip, in seconds", type=seconds, metavar="S")
    max_duration: float = option(11.0, "longest clip, in seconds", type=seconds, metavar="S")
    min_pause: float = option(0.2, "shortest pause to cut at, in seconds", type=seconds, metavar="S")
    margin: float = option(0.1, "silence kept at either end of a clip, in seconds", type=seconds, metavar="S")
    normalize: str = option(
        "loudness", "level of the clips: as recorded, to one peak, or to one loudness", choices=NORMALIZATIONS
    )
    fill_silence: bool = option(
        True, f"fill digital silence, as noise gates leave it, with noise {BELOW_SPEECH:g} dB below the speech"
    )

    def __post_init__(self) -> None:
        if self.min_duration + 2 * self.margin >= self.max_duration:
            raise UsageError(
                f"--max-duration {self.max_duration:g}: expected more than --min-duration {self.min_duration:g} and two margins"
            )


@dataclass(frozen=True, kw_only=True)
class TextConfig(RecogniserConfig):
    """The language of the texts, and the recogniser of their words. Raises UsageError for an endpoint that is no URL, too."""

    language: str | None = option(
        None,
        "language of the recordings by ISO 639-1, such as es (default: what Whisper finds in them, if it is installed, else en)",
        metavar="CODE",
    )
    verify: bool = option(True, "compare transcripts with recognised words")
    transcriber: str | None = option(
        None,
        "base URL of an OpenAI-style transcription endpoint, such as http://localhost:8000/v1, which clips are sent to;"
        f" its key is read from {KEY_VARIABLE} in the environment",
        metavar="URL",
    )
    transcriber_model: str = option("whisper-1", "model of the endpoint", metavar="NAME")
    transcriber_requests: int = option(4, "concurrent requests to the endpoint", type=positive)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transcriber and self.recogniser:
            raise UsageError(f"--transcriber, --recogniser {self.recogniser}: expected one of them")
        if self.transcriber and not self.transcriber.startswith(("http://", "https://")):
            raise UsageError(f"--transcriber {self.transcriber}: expected a URL, http://… or https://…")

    @property
    def source(self) -> str:
        """What recognises words, a key of stored ones; "" if nothing that is installed knows the language."""
        if self.transcriber:
            return f"{self.transcriber} {self.transcriber_model} {self.language or ENGLISH}"
        return "" if self.is_whisper and not self.recogniser and self.missing else self.key

    @property
    def has_times(self) -> bool:
        """True where recognised words have times, at which recordings without a text are cut."""
        return self.is_whisper and not self.transcriber and bool(self.source)


@dataclass(frozen=True, kw_only=True)
class FaultLimits:
    """Limits beyond which a clip has a fault."""

    clipping_runs: int = option(3, "runs of samples at full scale", type=positive)
    min_snr: float = option(20.0, "lowest ratio of speech to noise, estimated from pauses", metavar="DB")
    min_bandwidth: float = option(
        5000.0, "lowest upper end of the spectrum; telephone speech ends at 4000", metavar="HZ"
    )
    loudness: float = option(8.0, "largest distance from the median level of all clips", metavar="DB")
    max_words_wrong: float = option(
        0.4,
        "largest share of a transcript's words that were not recognised; clips beyond it are not used",
        metavar="SHARE",
    )
    pace: float = option(2.5, "highest pace, and inverse of the lowest, in medians of all clips", metavar="X")


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """All options of a run."""

    folder: Path | None = argument(
        "folder of recordings; searched recursively", None, metavar="FOLDER", type=Path, nargs="?"
    )
    project: Project = section(Project)
    apply: bool = option(False, "apply the edits in clips.tsv: write the filelists again; takes no FOLDER")
    num_workers: int = option(os.cpu_count() or 1, "worker processes (default: one per core)", type=positive)
    cutting: CuttingConfig = section(CuttingConfig, "clips")
    validation: float | None = option(
        None,
        "clips for validation, as a number or a share below 1; whole recordings if there are ten or more"
        f" (default: {VALIDATION:g}; with --apply, the value of the last run)",
        type=share_or_number,
        metavar="N",
        group="clips",
    )
    texts: TextConfig = section(TextConfig, "texts")
    limits: FaultLimits = section(FaultLimits, FAULTS)
    allow_several_speakers: bool = option(
        False,
        "continue even if the recordings seem to have several speakers; the voice will be a mixture of them",
        group=FAULTS,
    )


def parse_args(argv: list[str] | None = None) -> PrepareOptions:
    """Parse and check the command's flags. Raises UsageError for those that contradict each other."""
    options = parse_options(PrepareOptions, "python -m studio.prepare", DESCRIPTION, argv)
    if options.apply == (options.folder is not None):
        without = "no FOLDER with --apply, which only reads clips.tsv"
        raise UsageError(f"expected {without if options.apply else 'FOLDER, the recordings, or --apply'}")
    if options.folder is None:
        _refuse_without_effect(options)
    else:
        _check_folder(options.folder, options.project)
    return options


def _refuse_without_effect(options: PrepareOptions) -> None:
    """Raise UsageError for flags beside --apply that have no effect: all but --validation."""
    plain = values_of(PrepareOptions(project=options.project, apply=True, validation=options.validation))
    changed = {name: value for name, value in values_of(options).items() if value != plain[name]}
    if changed:
        flags = [flag_of(f"no_{name}" if value is False else name) for name, value in changed.items()]
        raise UsageError(
            f"{', '.join(flags)}: no effect with --apply, which only reads clips.tsv;"
            " run python -m studio.prepare FOLDER without --apply"
        )


def _check_folder(folder: Path, project: Project) -> None:
    if not folder.exists():
        raise UsageError(f"{folder}: no such folder; expected a folder of recordings")
    if not folder.is_dir():
        raise UsageError(f"{folder}: a file; expected the folder of the recordings, here {folder.parent}")
    if project.root.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"{folder}: contains the project {project.root}, whose clips would count as recordings;"
            " choose a folder with nothing but recordings, or other --projects"
        )
