"""Export a voice to another runtime: python -m exports TARGET -o DIR; inference.py --export DIR then speaks with it.

python -m exports onnx -o voice_onnx                          # the embedded voice
python -m exports torchscript --tacotron2 T --waveglow W -o DIR
python inference.py --export DIR -i phrases/phrase.txt -o OUT
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import sys
from pathlib import Path

from common.errors import exit_on_user_error
from common.inference.arguments import add_voice_arguments, named_checkpoints, vocoder_flags
from common.inference.config import SynthesisConfig
from common.options import from_options
from common.parser import Parser
from exports.models import VOCODERS
from exports.targets import TARGETS, check_vocoder, export, load_source, vocoders_for
from tacotron2.spec import SPEC as ACOUSTIC

SPECS = (ACOUSTIC, *(vocoder.spec for vocoder in VOCODERS.values()))


def main(argv: list[str] | None = None) -> None:
    """Load plain models and write a target's files."""
    args = parse_args(sys.argv[1:] if argv is None else argv)
    config = from_options(SynthesisConfig, vars(args) | {"plain": True})
    if args.vocoder:
        check_vocoder(args.target, args.vocoder)
    source = load_source(vocoders_for(args.target), named_checkpoints(args, SPECS), config, args.voice)
    print(f"voice: {source.voice.description}", flush=True)
    export(args.target, source, args.output)


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Parse all flags."""
    parser = Parser(
        prog="python -m exports",
        usage=f"%(prog)s {{{','.join(TARGETS)}}} -o DIR [flags]  (-h lists all flags)",
        description=__doc__,
    )
    parser.add_argument("target", choices=list(TARGETS), help="runtime to export for")
    vocoder = "vocoder to export (default: the voice's, or the first that the target can hold)"
    add_voice_arguments(parser, SPECS, "chosen as by inference.py", vocoder_flags(SPECS), vocoder)
    output = "directory of the export; replaces an older export in it"
    parser.add_argument("-o", "--output", type=Path, required=True, help=output)
    return parser.parse_args(argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
