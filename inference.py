"""Turn text into speech: python inference.py -i phrases/phrase.txt, one phrase a line.

The voice: the checkpoints that flags name, the newest in output/, or the embedded voice in voice/. Writes audio_I.wav and
alignment_I.png to --output, I being the phrase's line in the input file from 0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch

from common import precision
from common.arguments import HelpFormatter, actions_of, add_retired_arguments, given_options, log_path
from common.audio.audio_processing import save_audio
from common.audio.loudness import NORMALIZATIONS, TARGET_RMS
from common.audio.stft import AudioConfig
from common.data.filelist import lines_of, read_phrases
from common.data.reports import plot_alignment, save_figure
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import move_aside
from common.inference.arguments import add_speaking_arguments, named_checkpoints, own_flags, synthesis_config
from common.inference.live import Live
from common.inference.vocoders import time_call
from common.training.nvlog import PARAMETER, NvLog, parse_line
from exports.torchscript import script_voice
from models import REGISTRY
from synthesizer import Speech, SynthesisConfig, Synthesizer, choose_checkpoints

SPECS = REGISTRY.values()
LONG_LIST = 8  # entries that a message shows all of
LONG_TEXT = 150  # characters of a phrase that a message shows


def main(argv: list[str] | None = None) -> None:
    """Read phrases, load a voice, synthesise, write."""
    args, config = parse_args(sys.argv[1:] if argv is None else argv)
    texts = read_phrases(args.input)
    device = precision.pick_device(cpu=args.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    choice = choose_checkpoints(named_checkpoints(args, SPECS), config.vocoder)
    voice = Synthesizer.from_choice(choice, config=config, device=device)
    voice = script_voice(voice) if args.torchscript else voice
    path = log_path(args.output, args.log_file)
    moved = move_training_log_aside(path)
    with NvLog(path) as log:
        log.parameters(own_flags(args, SPECS) | voice.settings())
        for line in [*moved, *notes(args, voice.description, voice.audio, device)]:
            log.say(line)
        if args.include_warmup:
            synthesise(voice, texts, args.input)
        with Live(args.stream) if args.stream else nullcontext() as live:
            started = time.perf_counter()
            (speeches, numbers), seconds = time_call(lambda: synthesise(voice, texts, args.input, live), device)
        log.log((), numbers | first_sound(live, started) | {"latency": seconds})
        if live and live.left:
            log.say(f"{args.stream}: its reader closed it before the end")
        for line in [*unspoken_characters(voice, texts, args.input), *write_sounds(texts, speeches, args)]:
            log.say(line)
        write_alignments(voice, texts, speeches, args)


def move_training_log_aside(path: Path) -> list[str]:
    """Rename the log of a training run, which inference must not append to. Returns a line about it, if there is one.

    Raises DataError where the system refuses.
    """
    try:
        moved = move_aside(path) if path.is_file() and is_training_log(path) else None
    except OSError as error:
        raise DataError(
            f"{path}: cannot move the older log aside ({error.strerror}); choose another --output"
        ) from None
    return [f"{path} was the log of a training run: it is now {moved}"] if moved else []


def is_training_log(path: Path) -> bool:
    """Return True if any parameter in a log names a model to train."""
    with path.open(encoding="utf-8", errors="replace") as file:
        records = filter(None, map(parse_line, file))
        data = (record.get("data") for record in records if record.get("step") == PARAMETER)
        return any(isinstance(flags, dict) and "model_name" in flags for flags in data)


def notes(args: argparse.Namespace, description: str, audio: AudioConfig, device: torch.device) -> Iterator[str]:
    """Lines about the run before it begins: its voice, its stream, and the flags without effect on this machine."""
    yield f"voice: {description}"
    if args.stream:
        rate = audio.sampling_rate
        yield f"sound goes to {args.stream} as it is made: {rate} Hz, 16 bits, mono (aplay -f S16_LE -r {rate})"
    if args.fp16 and (note := precision.half_note(device, precision.half_dtype(device, True))):
        yield f"--fp16: {note}; large weights of a single row's products are read in float16"
    if args.int8 and (note := precision.int8_note(device)):
        yield note


def synthesise(
    voice: Synthesizer, texts: list[str], path: Path, live: Live | None = None
) -> tuple[list[Speech], dict[str, float]]:
    """Turn the lines of a file into speech, and measure the stages; `live` receives audio as soon as it is ready."""
    with lines_of(path):
        return voice.measure(texts, live)


def first_sound(live: Live | None, started: float) -> dict[str, float]:
    """Seconds until the first audio was written to the stream, if there is one."""
    return {"first_sound_latency": live.first - started} if live and live.first else {}


def unspoken_characters(voice: Synthesizer, texts: list[str], path: Path) -> Iterator[str]:
    """Yield a line about every phrase with characters that the model has no symbol for."""
    for number, text in enumerate(texts, 1):
        if dropped := voice.unspoken(text):
            more = f" and {len(dropped) - LONG_LIST} more" if len(dropped) > LONG_LIST else ""
            characters = ", ".join(map(repr, dropped[:LONG_LIST]))
            yield f"{path}:{number}: the alphabet has no {characters}{more}: left out"


def write_sounds(texts: list[str], speeches: list[Speech], args: argparse.Namespace) -> Iterator[str]:
    """Save every item's audio; yield a line about each."""
    for i, (text, speech) in enumerate(zip(texts, speeches, strict=True)):
        path, rate = args.output / f"audio_{i}{args.suffix}.wav", speech.sampling_rate
        save_audio(path, speech.audio, rate)
        warning = "" if speech.finished else "  (never stopped by itself: cut at the decoder's limit)"
        pieces = f"  ({speech.pieces} pieces)" if speech.pieces > 1 else ""
        yield f"{path}  {len(speech.audio) / rate:.2f} s  {shorten(text)}{pieces}{warning}"


def write_alignments(voice: Synthesizer, texts: list[str], speeches: list[Speech], args: argparse.Namespace) -> None:
    """Save a picture of every item's alignment: after all audio, as drawing takes longer than synthesis."""
    for i, (text, speech) in enumerate(zip(texts, speeches, strict=True)):
        symbols = voice.symbols(text) if speech.pieces == 1 else None  # each piece has its own
        figure = plot_alignment(speech.alignment, symbols, title=shorten(text))
        save_figure(args.output / f"alignment_{i}{args.suffix}.png", figure)


def shorten(text: str) -> str:
    """Shorten a very long phrase for a message."""
    return text if len(text) <= LONG_TEXT else f"{text[: LONG_TEXT - 1]}…"


def make_parser() -> argparse.ArgumentParser:
    """All flags: inference's own, a checkpoint for each model, and the models' flags, which a checkpoint's settings replace."""
    parser = argparse.ArgumentParser(
        prog="inference.py",
        usage="%(prog)s -i PHRASES [flags]  (-h lists them)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    add, default = parser.add_argument, SynthesisConfig
    lines = "text file, one phrase a line; the lines are one batch, unless one is cut"
    add("-i", "--input", type=Path, required=True, help=lines)
    add("-o", "--output", type=Path, default=Path("output"), help="folder of sounds, pictures and log; made if missing")
    add("--suffix", default="", help="at the end of the files' names")
    cut = "characters, as read, above which a phrase is cut: at sentence ends, else at ; : or dashes, else at commas; 0: never"
    add("--longest-piece", type=int, default=default.longest_piece, help=cut)
    level = f"peak: largest magnitude to full scale, as in the published recipe; loudness: RMS to {TARGET_RMS}, without clipping"
    add("--normalize", choices=NORMALIZATIONS, default=default.normalize, help=f"level of each sound; {level}")
    live = "pipe or file that gets the sound as it is made, one phrase after the other: 16-bit samples without a header"
    add("--stream", type=Path, metavar="PATH", help=f"{live}; e.g. --stream >(aplay -f S16_LE -r 22050)")
    scripts = "run the plain models as TorchScript, as --cpu did in the published recipe"
    add("--torchscript", action="store_true", help=scripts)
    add("--include-warmup", action="store_true", help="synthesise once before the run that is timed")
    log_file = "its name inside --output, unless it begins with --output; a training run's log there is moved aside"
    add("--log-file", default="nvlog.json", help=log_file)
    add_speaking_arguments(parser, SPECS)
    for spec in SPECS:
        flags = [flag for action in actions_of(spec.add_training_arguments) for flag in action.option_strings]
        add_retired_arguments(parser, flags)
    return parser


def parse_args(argv: list[str]) -> tuple[argparse.Namespace, SynthesisConfig]:
    """Parse all flags, and build the config of the voice. Raises UsageError for values out of range."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.torchscript and (args.fp16 or args.int8):
        raise UsageError("--torchscript: runs plain models in float32; leave --fp16 and --int8 out")
    args.plain |= args.torchscript
    config = synthesis_config(args, given_options(parser, argv), SPECS)
    if args.stream and config.normalize != "none":
        raise UsageError(f"--normalize {config.normalize}: needs the whole sound, so --stream cannot have it")
    return args, config


if __name__ == "__main__":
    with exit_on_user_error():
        main()
