"""Export a voice to another runtime, or speak with an export: python -m exports TARGET | run.

python -m exports onnx -o voice_onnx                          # the embedded voice
python -m exports torchscript --tacotron2 T --waveglow W -o DIR
python -m exports run DIR -i phrases/phrase.txt -o OUT
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from common.arguments import given_options
from common.data.filelist import BadRows, lines_of, read_phrases
from common.errors import UsageError, exit_on_user_error
from common.inference.arguments import add_voice_arguments, named_checkpoints, vocoder_flags
from common.inference.config import SynthesisConfig
from common.inference.outputs import OTHERS_WRITTEN, UNFIT, write_picture, write_sound
from common.options import add_fields, from_options, option
from common.parser import Parser
from exports.manifest import read_manifest
from exports.models import VOCODERS
from exports.targets import TARGETS, check_vocoder, export, load_source, vocoders_for
from exports.voice import load_voice
from synthesizer import SILENT, Speech
from tacotron2.spec import SPEC as ACOUSTIC

SPECS = (ACOUSTIC, *(vocoder.spec for vocoder in VOCODERS.values()))


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Flags of `run` that no Synthesizer has."""

    input: Path = option(None, "text file with one phrase a line", "-i", required=True)
    output: Path = option(Path("output"), "folder for sounds and pictures; created if missing", "-o")
    suffix: str = option("", "suffix of the file names")
    programs: bool = option(
        False, "run the programs of torch.export (.pt2) in a torchscript export, in place of TorchScript"
    )

    def __post_init__(self) -> None:
        if self.output.is_file():
            raise UsageError(f"-o {self.output}: is a file, expected a folder")


def main(argv: list[str] | None = None) -> None:
    """Export, or speak with an export."""
    parse_args(sys.argv[1:] if argv is None else argv)()


def write_export(args: argparse.Namespace, config: SynthesisConfig) -> None:
    """Load plain models and write a target's files."""
    source = load_source(vocoders_for(args.target), named_checkpoints(args, SPECS), config, args.voice)
    print(f"voice: {source.voice.description}", flush=True)
    export(args.target, source, args.output)


def run(directory: Path, options: RunOptions, settings: Mapping[str, Any]) -> None:
    """Speak the lines of a file with an export; `settings` are those of the Synthesizer that flags give.

    Raises DataError for lines without sound, after all others are written.
    """
    texts = read_phrases(options.input)
    config = SynthesisConfig(**{"sigma_infer": read_manifest(directory).sigma_infer} | dict(settings))
    voice = load_voice(directory, config, programs=options.programs)
    print(f"voice: {voice.description}", flush=True)
    with lines_of(options.input):
        speeches: dict[int, Speech | None] = {}
        for positions, batch in voice.speak_batches(voice.lines(texts)):
            speeches |= zip(positions, batch.speeches, strict=True)
        problems = {}
        for i, speech in sorted(speeches.items()):
            if speech is None:
                problems[i] = UNFIT
            elif not speech.pieces:
                print(f"{options.input}:{i + 1}: no words: no sound")
            elif not speech.mel.shape[1]:
                problems[i] = f"{SILENT}; {OTHERS_WRITTEN}"
            else:
                print(write_sound(options.output / f"audio_{i}{options.suffix}.wav", texts[i], speech))
                picture = options.output / f"alignment_{i}{options.suffix}.png"
                write_picture(picture, texts[i], speech, voice.symbols(texts[i]))
        if problems:
            raise BadRows(problems)


def parse_args(argv: list[str]) -> Callable[[], None]:
    """Parse all flags; the result does the work. Raises UsageError for values out of range."""
    if argv[:1] == ["run"]:
        args = _run_parser().parse_args(argv[1:])
        names = ("sigma_infer", "denoising_strength", "seed", "longest_piece", "normalize")
        settings = {name: value for name in names if (value := getattr(args, name)) is not None}
        SynthesisConfig(**settings)  # refuses values before the export is read
        return partial(run, args.directory, from_options(RunOptions, vars(args)), settings)
    parser = _export_parser()
    args = parser.parse_args(argv)
    strength = given_options(parser, argv).get("denoising_strength")
    if args.vocoder:
        check_vocoder(args.target, args.vocoder)
    values = {"vocoder": args.vocoder, "sigma_infer": args.sigma_infer, "denoising_strength": strength}
    config = SynthesisConfig(**values, plain=True)
    return partial(write_export, args, config)


def _make_parser(usage: str) -> argparse.ArgumentParser:
    return Parser(prog="python -m exports", usage=f"%(prog)s {usage}  (-h lists all flags)", description=__doc__)


def _export_parser() -> argparse.ArgumentParser:
    parser = _make_parser(f"{{{','.join(TARGETS)},run}} -o DIR [flags]")
    add = parser.add_argument
    add("target", choices=list(TARGETS), help="runtime to export for")
    vocoder = "vocoder to export (default: the voice's, or the first that the target can hold)"
    add_voice_arguments(parser, SPECS, "chosen as by inference.py", vocoder_flags(SPECS), vocoder)
    add("-o", "--output", type=Path, required=True, help="directory of the export; replaces an older export in it")
    return parser


def _run_parser() -> argparse.ArgumentParser:
    parser = _make_parser("run DIR -i PHRASES [flags]")
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="directory of an export")
    add_fields(parser, RunOptions)
    add_fields(parser, SynthesisConfig, "seed", "longest_piece", "normalize")
    add("-s", "--sigma-infer", type=float, help="standard deviation of the noise (default: the export's)")
    add("-d", "--denoising-strength", type=float, help="share of the hum to subtract (default: the export's)")
    return parser


if __name__ == "__main__":
    with exit_on_user_error():
        main()
