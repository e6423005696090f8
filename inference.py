"""Speak: python inference.py -i phrases/phrase.txt, one phrase a line, with the checkpoints given, the newest in output/, or the
voice in voice/.

Writes audio_I.wav and alignment_I.png to --output, I being the phrase's line in the input file from 0.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from common import precision
from common.arguments import (
    HelpFormatter,
    actions_of,
    add_audio_arguments,
    add_plain_argument,
    add_preparation_arguments,
    add_retired_arguments,
    given_options,
    seed,
)
from common.audio.audio_processing import save_audio
from common.audio.stft import AudioConfig
from common.data.filelist import lines_of, read_phrases
from common.data.reports import plot_alignment, save_figure
from common.errors import DataError, UsageError, exit_on_user_error
from common.fast import Request
from common.inference.live import Live
from common.inference.stages import (
    DENOISING_STRENGTH,
    SIGMA_INFER,
    Loaded,
    Speech,
    Vocoder,
    griffin_lim_vocoder,
    make_ready,
    neural_vocoder,
    say,
    timed,
)
from common.spec import AcousticInference, ModelSpec, config_of, from_options
from common.training.checkpoint import find_last, load_checkpoint
from common.training.nvlog import NvLog
from models import REGISTRY, restore_model

GRIFFIN_LIM = "griffin-lim"
VOCODING = ("sigma_infer", "denoising_strength")
LONG_LIST = 8  # entries that a message still shows all of
LONG_TEXT = 150  # characters of a phrase that are shown of it
TRAINED = Path("output")  # where training leaves its checkpoints unless told otherwise
EMBEDDED = Path(__file__).resolve().parent / "voice"  # the voice that comes with the code
EMBEDDED_DEFAULTS = {"denoising_strength": 0.03}  # its WaveGlow is small and hums: measured in voice/README.md

Find = Callable[[ModelSpec], Path | None]  # a model's checkpoint in one place or another


def main(argv: list[str] | None = None) -> None:
    """Read phrases, load models, synthesise, write."""
    args, given = parse_args(sys.argv[1:] if argv is None else argv)
    texts = read_phrases(args.input)
    device = precision.pick_device(cpu=args.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    acoustic, vocoding = load_pair(args, given, device)
    parameters = settings(args, acoustic, vocoding)
    audio = common_audio(acoustic, vocoding)
    vocoder = make_vocoder(vocoding, args, audio, device)
    with NvLog(args.output / args.log_file) as log:
        log.parameters(parameters)
        for line in notes(args, audio, device):
            log.say(line)
        if args.include_warmup:
            synthesise(texts, acoustic, vocoder, args, device)
        precision.seed_everything(args.seed)
        with Live(args.stream) if args.stream else nullcontext() as live:
            started = time.perf_counter()
            (speeches, numbers), seconds = timed(
                lambda: synthesise(texts, acoustic, vocoder, args, device, live), device
            )
        log.log((), numbers | first_sound(live, started) | {"latency": seconds})
        if live and live.left:
            log.say(f"{args.stream}: whoever read it left before the end")
        for line in [*left_out(texts, acoustic, args), *write_sounds(texts, speeches, acoustic, args)]:
            log.say(line)
        write_alignments(texts, speeches, acoustic, args)


def notes(args: argparse.Namespace, audio: AudioConfig, device: torch.device) -> Iterator[str]:
    """What to say before speaking: who speaks, to whom, and what of the flags the machine does not do."""
    yield voice(args)
    if args.stream:
        rate = audio.sampling_rate
        yield f"sound goes to {args.stream} as it is made: {rate} Hz, 16 bits, mono (aplay -f S16_LE -r {rate})"
    if args.fp16 and (note := precision.half_note(device, precision.half_dtype(device, True))):
        yield f"--fp16: {note}; large weights of a single row's products are read in float16"
    if args.int8 and (note := precision.int8_note(device)):
        yield note


def synthesise(
    texts: list[str],
    acoustic: Loaded,
    vocoder: Vocoder,
    args: argparse.Namespace,
    device: torch.device,
    live: Live | None = None,
) -> tuple[list[Speech], dict[str, float]]:
    """Texts -> mels -> audio, which the listener hears as it is made, and the stages' speeds."""
    with lines_of(args.input):
        return say(texts, acoustic, vocoder, device, args.fp16, args.longest_piece, live)


def first_sound(live: Live | None, started: float) -> dict[str, float]:
    """How long a listener, if there is one, has waited for sound."""
    return {"first_sound_latency": live.first - started} if live and live.first else {}


def left_out(texts: list[str], acoustic: Loaded, args: argparse.Namespace) -> Iterator[str]:
    """A line about every phrase with characters that the model has no symbol for."""
    stages = acoustic.spec.inference
    assert isinstance(stages, AcousticInference)
    for number, text in enumerate(texts, 1):
        if lost := stages.unspoken(text, acoustic.options):
            more = f" and {len(lost) - LONG_LIST} more" if len(lost) > LONG_LIST else ""
            shown = ", ".join(map(repr, lost[:LONG_LIST]))
            yield f"{args.input}:{number}: the alphabet has no {shown}{more}: left out"


def write_sounds(texts: list[str], speeches: list[Speech], acoustic: Loaded, args: argparse.Namespace) -> Iterator[str]:
    """Save every item's sound; yields a line about each."""
    rate = acoustic.options["sampling_rate"]
    for i, (text, speech) in enumerate(zip(texts, speeches, strict=True)):
        path = args.output / f"audio_{i}{args.suffix}.wav"
        save_audio(path, speech.sound, rate)
        warning = "" if speech.finished else "  (never stopped by itself: cut at the decoder's limit)"
        pieces = f"  ({speech.pieces} pieces)" if speech.pieces > 1 else ""
        yield f"{path}  {len(speech.sound) / rate:.2f} s  {shortened(text)}{pieces}{warning}"


def write_alignments(texts: list[str], speeches: list[Speech], acoustic: Loaded, args: argparse.Namespace) -> None:
    """Save a picture of every item's alignment: after all sounds, as drawing takes longer than speaking."""
    stages = acoustic.spec.inference
    assert isinstance(stages, AcousticInference)
    for i, (text, speech) in enumerate(zip(texts, speeches, strict=True)):
        symbols = stages.spell(text, acoustic.options) if speech.pieces == 1 else None  # each piece has its own
        figure = plot_alignment(speech.alignment, symbols, title=shortened(text))
        save_figure(args.output / f"alignment_{i}{args.suffix}.png", figure)


def shortened(text: str) -> str:
    """A phrase as it is shown: all of it, unless it is very long."""
    return text if len(text) <= LONG_TEXT else f"{text[: LONG_TEXT - 1]}…"


def wanted_roles(args: argparse.Namespace) -> list[str]:
    """The roles that take a checkpoint as far as flags say: no vocoder where Griffin-Lim is asked for."""
    return ["acoustic"] if args.vocoder == GRIFFIN_LIM else ["acoustic", "vocoder"]


def roles_of(args: argparse.Namespace) -> list[str]:
    """The roles that take a checkpoint: the wanted ones, but no vocoder where the embedded voice speaks and none was asked for.

    More of its words are understood through Griffin-Lim than through its WaveGlow (voice/README.md).
    """
    wanted = wanted_roles(args)
    if is_named(args) or args.vocoder or has_all(trained, args, wanted):
        return wanted
    begun = any(has_all(trained, args, [role]) for role in wanted)
    if begun and not has_all(embedded, args, wanted):
        return wanted  # then what is missing is to be said
    return ["acoustic"] if has_all(embedded, args, ["acoustic"]) else wanted


def is_named(args: argparse.Namespace) -> bool:
    """Whether a flag names a checkpoint."""
    return any(getattr(args, spec.flag) for spec in REGISTRY.values())


def candidates(role: str, args: argparse.Namespace) -> list[ModelSpec]:
    """The models of a role; --vocoder decides between several."""
    specs = [spec for spec in REGISTRY.values() if spec.role == role]
    return [spec for spec in specs if spec.flag == args.vocoder] or specs


def trained(spec: ModelSpec) -> Path | None:
    """A model's newest checkpoint in output/."""
    return find_last(TRAINED, spec.name)


def embedded(spec: ModelSpec) -> Path | None:
    """A model's part of the voice that comes with the code."""
    path = EMBEDDED / f"{spec.flag}.safetensors"
    return path if path.is_file() else None


def has_all(find: Find, args: argparse.Namespace, roles: Sequence[str]) -> bool:
    """Whether a place has a checkpoint for each of these roles."""
    return all(any(map(find, candidates(role, args))) for role in roles)


def places(args: argparse.Namespace) -> list[Find]:
    """Where checkpoints are looked for, the first place first.

    Flags win, and what they leave open is looked for in output/. Without any flag all come from output/ or, where that lacks one,
    all from the embedded voice: the models of one place do not know the mels of the other.
    """

    def given(spec: ModelSpec) -> Path | None:
        return getattr(args, spec.flag)

    if (
        not is_named(args)
        and not has_all(trained, args, wanted_roles(args))
        and has_all(embedded, args, roles_of(args))
    ):
        return [embedded]
    return [given, trained]


def choose(role: str, args: argparse.Namespace) -> tuple[ModelSpec, Path]:
    """The model of a role and its checkpoint, from the first of `places` that has one."""
    specs = candidates(role, args)
    for find in places(args):
        for spec in specs:
            if path := find(spec):
                return spec, path
    names = " or ".join(f"{TRAINED}/checkpoint_{spec.name}_last.pt" for spec in specs)
    flags = " or ".join(f"--{spec.flag} CHECKPOINT" for spec in specs)
    instead = f", or speak without one: --vocoder {GRIFFIN_LIM}" if role == "vocoder" else ""
    comes_along = "speaks where no checkpoint is named" if has_all(embedded, args, roles_of(args)) else "is not here"
    raise DataError(
        f"no {role} model: there is no {names}; name one with {flags}, train one with "
        f"`bash scripts/quickstart.sh` (minutes) or `bash scripts/train_{specs[0].flag}.sh`{instead}; "
        f"the embedded voice, {EMBEDDED.name}/, {comes_along}"
    )


def voice(args: argparse.Namespace) -> str:
    """Which checkpoints speak, and which in output/ do not, since they lack the other half."""
    chosen = [choose(role, args)[1] for role in roles_of(args)]
    shown = [path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path for path in chosen]
    files = " and ".join(map(str, shown)) + ("" if len(chosen) > 1 else f" through {GRIFFIN_LIM}")
    if EMBEDDED not in {path.parent for path in chosen}:
        return f"voice: {files}"
    alone = [str(path) for role in wanted_roles(args) for spec in candidates(role, args) if (path := trained(spec))]
    return f"voice: the embedded one, {files}" + (f"; not {alone[0]}, which is alone in {TRAINED}/" if alone else "")


def load_pair(args: argparse.Namespace, given: Mapping[str, Any], device: torch.device) -> tuple[Loaded, Loaded | None]:
    """The acoustic model and the vocoder, where that needs one."""
    acoustic = load("acoustic", args, given, device)
    return acoustic, load("vocoder", args, given, device) if "vocoder" in roles_of(args) else None


def load(role: str, args: argparse.Namespace, given: Mapping[str, Any], device: torch.device) -> Loaded:
    """A role's model as its checkpoint's stored config describes it, and the data options it was trained with."""
    spec, path = choose(role, args)
    checkpoint = load_checkpoint(path)
    own = EMBEDDED_DEFAULTS if path.resolve().parent == EMBEDDED else {}
    unnamed = {name: value for name, value in own.items() if name not in given}
    options = vars(args) | unnamed | checkpoint.get("data", {})
    wanted = spec.config_from_options(given)
    if "config" not in checkpoint:  # as in the oldest files
        checkpoint["config"] = spec.config_from_options(vars(args))
    stored = checkpoint["config"]
    clashes = contradictions(wanted, stored, spec.free_at_inference)
    clashes += contradictions({name: given[name] for name in checkpoint.get("data", {}) if name in given}, options)
    if clashes:
        raise UsageError(f"{path}: {'; '.join(clashes)}: leave these flags out, the checkpoint knows its settings")
    free = {name: value for name, value in wanted.items() if name in spec.free_at_inference}
    if free:
        with torch.device("meta"):
            spec.build(**free)  # so that what is wrong with them is said of the flags, not of the file
    model = restore_model(spec, checkpoint | {"config": stored | free}, path).to(device).eval()
    return make_ready(Loaded(spec, model, options), Request(args.fp16, args.int8), args.plain)


def contradictions(
    wanted: Mapping[str, Any], stored: Mapping[str, Any], free: frozenset[str] = frozenset()
) -> list[str]:
    """Which wanted settings are not the stored ones, nested settings included."""
    problems = []
    for name, value in wanted.items():
        if isinstance(value, Mapping):
            problems += contradictions(value, stored.get(name, {}), free)
        elif name not in free and stored.get(name, value) != value:
            problems.append(f"{name} {_differ(stored[name], value)}")
    return problems


def _differ(stored: Any, given: Any) -> str:
    """How two values differ; of long lists only the first place."""
    if isinstance(stored, list) and isinstance(given, list) and max(len(stored), len(given)) > LONG_LIST:
        pairs = zip_longest(stored, given, fillvalue="nothing")
        place, (ours, theirs) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        lengths = f"has {len(stored)} entries in it, {len(given)} on the command line"
        return f"{lengths}, and differs first at {place}: {ours!r}, {theirs!r}"
    return f"is {stored} in it, {given} on the command line"


def settings(args: argparse.Namespace, *models: Loaded | None) -> dict[str, Any]:
    """What a run is made with: inference's own flags, and of models and audio what the checkpoints say."""
    adders = [add_audio_arguments, *(spec.add_arguments for spec in REGISTRY.values())]
    theirs = {action.dest for add in adders for action in actions_of(add)}
    shown = {name: value for name, value in vars(args).items() if name not in theirs}
    for model in filter(None, models):
        audio = [field.name for field in fields(AudioConfig)]
        stored = [*audio, *VOCODING, *model.spec.stored_options, *model.spec.run_options]
        shown |= {name: model.options[name] for name in stored}
        shown[f"{model.spec.flag}_config"] = config_of(model.model)
    return shown


def common_audio(acoustic: Loaded, vocoding: Loaded | None) -> AudioConfig:
    """The audio settings of both models; DataError if one's mels are not the other's."""
    audio = from_options(AudioConfig, acoustic.options)
    theirs = from_options(AudioConfig, vocoding.options) if vocoding else audio
    differences = [
        f"{field.name} is {ours} and {other}"
        for field in fields(AudioConfig)
        if (ours := getattr(audio, field.name)) != (other := getattr(theirs, field.name))
    ]
    if differences:
        raise DataError(f"the two checkpoints were trained with different audio settings: {', '.join(differences)}")
    return audio


def make_vocoder(
    vocoding: Loaded | None, args: argparse.Namespace, audio: AudioConfig, device: torch.device
) -> Vocoder:
    """The vocoder with a model, or the one that needs none."""
    if vocoding is None:
        return griffin_lim_vocoder(audio, device, args.seed)
    return neural_vocoder(vocoding, audio, device, args.fp16, *(vocoding.options[name] for name in VOCODING))


def make_parser() -> argparse.ArgumentParser:
    """All flags: inference's own, a checkpoint for each model, and the models' flags, which the checkpoints override."""
    parser = argparse.ArgumentParser(
        prog="inference.py",
        usage="%(prog)s -i PHRASES [flags]  (-h lists them)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    lines = "text file, one phrase a line; the lines are one batch, unless one is cut"
    add("-i", "--input", type=Path, required=True, help=lines)
    add("-o", "--output", type=Path, default=Path("output"), help="folder of sounds, pictures and log; made if missing")
    add("--suffix", default="", help="at the end of the files' names")
    cut = "characters, as read, above which a phrase is cut: at sentence ends, else at ; : or dashes, else at commas; 0: never"
    add("--longest-piece", type=int, default=150, help=cut)
    live = "pipe or file that gets the sound as it is made, one phrase after the other: 16-bit samples without a header"
    add("--stream", type=Path, metavar="PATH", help=f"{live}; e.g. --stream >(aplay -f S16_LE -r 22050)")
    add("--include-warmup", action="store_true", help="synthesise once before the run that is timed")
    add("--log-file", default="nvlog.json", help="its name inside --output")
    add_speaking_arguments(parser)
    for spec in REGISTRY.values():
        flags = [flag for action in actions_of(spec.add_training_arguments) for flag in action.option_strings]
        add_retired_arguments(parser, flags)
    return parser


def add_speaking_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose models and say how they speak, the models' own among them."""
    add = parser.add_argument
    for spec in REGISTRY.values():
        newest = f"{TRAINED}/checkpoint_{spec.name}_last.pt"
        default = f"(default: {newest}, or the embedded voice)"
        add(f"--{spec.flag}", type=Path, metavar="CHECKPOINT", help=f"{spec.role} model {default}")
    vocoders = [spec.flag for spec in REGISTRY.values() if spec.role == "vocoder"]
    without = f"{GRIFFIN_LIM} needs no model (default: one with a checkpoint)"
    add("--vocoder", choices=[*vocoders, GRIFFIN_LIM], help=without)
    add_vocoding_arguments(parser)
    add("--seed", type=seed, default=0, help="of the prenet's dropout and the vocoder's noise: same seed, same sound")
    number_format = parser.add_mutually_exclusive_group()
    half = "half precision: float16 on a GPU, bfloat16 on a CPU that has it"
    number_format.add_argument("--fp16", action="store_true", help=half)
    number_format.add_argument("--cpu", action="store_true", help="stay on the CPU even where there is a GPU")
    add_preparation_arguments(parser)
    add_plain_argument(parser)
    add_audio_arguments(parser)
    for spec in REGISTRY.values():
        spec.add_arguments(parser)


def add_vocoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of what a vocoder makes of mels, VOCODING."""
    add = parser.add_argument
    add(
        "-s",
        "--sigma-infer",
        type=float,
        default=SIGMA_INFER,
        help="standard deviation of the noise that becomes sound",
    )
    embedded_ = EMBEDDED_DEFAULTS["denoising_strength"]
    hum = (
        f"how much of the vocoder's hum to take out; 0: none (default: %(default)s; the embedded voice's: {embedded_})"
    )
    add("-d", "--denoising-strength", type=float, default=DENOISING_STRENGTH, help=hum)


def not_zero_or_more(args: argparse.Namespace, *names: str) -> list[str]:
    """What to say of each of these options that is not a number of at least 0."""
    found = {name: getattr(args, name) for name in names}
    wrong = {name: value for name, value in found.items() if not 0 <= value < math.inf}  # NaN fails this as well
    return [f"--{name.replace('_', '-')}: {value}, expected 0 or more" for name, value in wrong.items()]


def check_arguments(args: argparse.Namespace) -> list[str]:
    """What to say of the flags of add_speaking_arguments that cannot work."""
    return not_zero_or_more(args, *VOCODING)


def parse_args(argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """All options, and those that the command line names."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if wrong := check_arguments(args) + not_zero_or_more(args, "longest_piece"):
        raise UsageError("\n".join(wrong))
    return args, given_options(parser, argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
