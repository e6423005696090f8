"""Export a voice for another runtime, and speak with an export: python -m exports TARGET | run.

python -m exports onnx -o voice_onnx                          # the embedded voice
python -m exports torchscript --tacotron2 T --waveglow W -o DIR
python -m exports run DIR -i phrases/phrase.txt -o OUT
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from common.arguments import HelpFormatter, seed
from common.audio.audio_processing import NORMALIZATIONS
from common.data.filelist import BadRows, lines_of, read_phrases
from common.errors import UsageError, exit_on_user_error
from common.inference.arguments import add_vocoding_arguments, add_voice_argument, named_checkpoints
from common.inference.config import SynthesisConfig
from common.inference.outputs import OTHERS_WRITTEN, SILENT, write_sound
from common.inference.pictures import write_picture
from common.parser import Parser
from exports.manifest import read_manifest
from exports.targets import TARGETS, Source, export
from exports.voice import load_voice
from synthesizer import Synthesizer, choose_checkpoints
from tacotron2.spec import SPEC as ACOUSTIC
from waveglow.spec import SPEC as VOCODER

SPECS = (ACOUSTIC, VOCODER)


def main(argv: list[str] | None = None) -> None:
    """Export, or speak with an export."""
    act, args, config = parse_args(sys.argv[1:] if argv is None else argv)
    act(args, config)


def write_export(args: argparse.Namespace, config: SynthesisConfig) -> None:
    """Load plain models and write a target's files."""
    choice = choose_checkpoints(named_checkpoints(args, SPECS), VOCODER.flag)
    voice = Synthesizer.from_choice(choice, config=config, device="cpu")
    assert voice.vocoding is not None
    print(f"voice: {voice.description}", flush=True)
    export(args.target, Source(voice, voice.acoustic.model, voice.vocoding.model), args.output)


def run(args: argparse.Namespace, config: SynthesisConfig) -> None:
    """Speak the lines of a file with an export. Raises DataError for lines without sound, after all others are written."""
    texts = read_phrases(args.input)
    if args.sigma_infer is None:
        config = replace(config, sigma_infer=read_manifest(args.directory).sigma_infer)
    voice = load_voice(args.directory, config, programs=args.programs)
    print(f"voice: {voice.description}", flush=True)
    with lines_of(args.input):
        speeches = voice.speak(texts)
        silent = {i: f"{SILENT}; {OTHERS_WRITTEN}" for i, speech in enumerate(speeches) if not len(speech.audio)}
        for i, (text, speech) in enumerate(zip(texts, speeches, strict=True)):
            if i not in silent:
                print(write_sound(args.output / f"audio_{i}{args.suffix}.wav", text, speech))
                write_picture(args.output / f"alignment_{i}{args.suffix}.png", text, speech, voice.symbols(text))
        if silent:
            raise BadRows(silent)


Command = Callable[[argparse.Namespace, SynthesisConfig], None]


def parse_args(argv: list[str]) -> tuple[Command, argparse.Namespace, SynthesisConfig]:
    """Parse all flags. Raises UsageError for values out of range."""
    parser, act = (_run_parser(), run) if argv[:1] == ["run"] else (_export_parser(), write_export)
    args = parser.parse_args(argv[1:] if act is run else argv)
    if act is write_export:
        sigma, strength = args.sigma_infer, args.denoising_strength
        return act, args, SynthesisConfig(sigma_infer=sigma, denoising_strength=strength, plain=True)
    if args.output.is_file():
        raise UsageError(f"-o {args.output}: is a file, expected a folder")
    names = ("sigma_infer", "denoising_strength", "seed", "longest_piece", "normalize")
    values = {name: value for name in names if (value := getattr(args, name)) is not None}
    return act, args, SynthesisConfig(**values)


def _make_parser(usage: str) -> argparse.ArgumentParser:
    return Parser(
        prog="python -m exports",
        usage=f"%(prog)s {usage}  (-h lists all flags)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )


def _export_parser() -> argparse.ArgumentParser:
    parser = _make_parser(f"{{{','.join(TARGETS)},run}} -o DIR [flags]")
    add = parser.add_argument
    add("target", choices=list(TARGETS), help="the runtime to export for")
    add_voice_argument(parser)
    for spec in SPECS:
        add(
            f"--{spec.flag}",
            type=Path,
            metavar="CHECKPOINT",
            help=f"{spec.role} model (default: as inference.py chooses)",
        )
    add("-o", "--output", type=Path, required=True, help="directory of the export; an older export in it is replaced")
    add_vocoding_arguments(parser)
    return parser


def _run_parser() -> argparse.ArgumentParser:
    parser = _make_parser("run DIR -i PHRASES [flags]")
    add, default = parser.add_argument, SynthesisConfig
    add("directory", type=Path, metavar="DIR", help="directory of an export")
    add("-i", "--input", type=Path, required=True, help="text file, one phrase a line")
    add("-o", "--output", type=Path, default=Path("output"), help="folder of sounds and pictures; made if missing")
    add("--suffix", default="", help="at the end of the files' names")
    add("--seed", type=seed, default=default.seed, help="of dropout and noise: same seed, same sound")
    add(
        "--longest-piece",
        type=int,
        default=default.longest_piece,
        help="characters above which a phrase is cut; 0: never",
    )
    add("--normalize", choices=NORMALIZATIONS, default=default.normalize, help="level of each sound")
    add("--programs", action="store_true", help="run the torch.export programs of a torchscript directory")
    add("-s", "--sigma-infer", type=float, help="standard deviation of the noise (default: the export's)")
    add("-d", "--denoising-strength", type=float, help="share of the hum to subtract (default: the export's)")
    return parser


if __name__ == "__main__":
    with exit_on_user_error():
        main()
