"""train.py's shared flags, and what every parser here does: no abbreviations, JSON config files, retired flags."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from common.errors import UsageError
from common.sound.stft import AudioConfig
from common.spec import ModelSpec, TrainingDefaults

# Flags the published recipe parsed and ignored, for this model or for any, or that PyTorch's launcher has made pointless.
RETIRED = (
    "--text-cleaners",
    "--use-saved-learning-rate",
    "--grad-clip",
    "--dynamic-loss-scaling",
    "--dist-url",
    "--dist-backend",
    "--group-name",
    "--rank",
    "--world-size",
    "--local_rank",
    "--local-rank",
)

# Names of inference.py in the published recipe.
ALIASES = {"--sampling-rate": ("-sr",), "--hop-length": ("--stft-hop-length",)}


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Defaults after each help text, except where there is none to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False or action.default in ([], ""):
            return action.help
        return super()._get_help_string(action)


class Retired(argparse.Action):
    """Accept a flag that does nothing any more, and say so once."""

    def __call__(self, parser, namespace, values, option_string=None):
        said = parser.__dict__.setdefault("retired_flags_said", set())
        if option_string not in said:
            print(f"note: {option_string} has no effect here; it can be left out")
            said.add(option_string)


def actions_of(add_arguments: Callable[[argparse.ArgumentParser], None]) -> list[argparse.Action]:
    """The flags that a function adds to a parser."""
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    return parser._actions


def add_retired_arguments(parser: argparse.ArgumentParser, flags: Iterable[str]) -> None:
    """Accept those flags that the parser does not know, to no effect."""
    known = {flag for action in parser._actions for flag in action.option_strings}
    for flag in flags:
        if flag not in known:
            parser.add_argument(flag, action=Retired, nargs="*", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_audio_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of AudioConfig."""
    helps = {
        "sampling_rate": "Hz; audio of another rate is refused",
        "filter_length": "samples of a Fourier transform",
        "hop_length": "samples from frame to frame",
        "win_length": "samples of a window",
        "n_mel_channels": "mel filters",
        "mel_fmin": "Hz, lower edge of the lowest filter",
        "mel_fmax": "Hz, upper edge of the highest filter",
        "max_wav_value": "of no effect: every bit depth is scaled by its own range",
    }
    group = parser.add_argument_group("audio")
    for field in fields(AudioConfig):
        kind, flag = type(field.default), "--" + field.name.replace("_", "-")
        group.add_argument(
            *ALIASES.get(flag, ()), flag, dest=field.name, type=kind, default=field.default, help=helps[field.name]
        )


def add_training_arguments(parser: argparse.ArgumentParser, defaults: TrainingDefaults) -> None:
    """Add the flags every model's training shares; what differs by model comes from its defaults."""
    _add_run(parser.add_argument_group("run"), defaults)
    _add_optimization(parser.add_argument_group("optimization"), defaults)
    _add_data(parser.add_argument_group("data"))
    add_audio_arguments(parser)


def _add_run(group: argparse._ArgumentGroup, defaults: TrainingDefaults) -> None:
    group.add_argument("-o", "--output", type=Path, default=Path("output"), help="folder of checkpoints and logs")
    group.add_argument("--log-file", default="nvlog.json", help="its name inside --output; resuming appends")
    group.add_argument("--config-file", type=Path, help="JSON, {group: {flag: value}}; flags given here override it")
    group.add_argument(
        "--epochs", type=positive, default=defaults.epochs, help="in all, those before a resume included"
    )
    group.add_argument("--epochs-per-checkpoint", type=positive, default=50, help="the last epoch is always saved")
    group.add_argument("--epochs-per-validation", type=positive, default=1, help="the last epoch is always validated")
    group.add_argument("--checkpoint-path", type=Path, help="checkpoint to go on from")
    group.add_argument(
        "--resume-from-last", action="store_true", help="go on from the newest in --output, if there is one"
    )
    group.add_argument("--seed", type=seed, help="of weights, dropout and data order; drawn and logged where not given")
    group.add_argument("--bench-class", default="", help="perf-train: measure the steady rate, write no checkpoints")
    group.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")


def _add_optimization(group: argparse._ArgumentGroup, defaults: TrainingDefaults) -> None:
    group.add_argument("-lr", "--learning-rate", type=float, default=defaults.learning_rate, help="of Adam")
    group.add_argument(
        "-bs",
        "--batch-size",
        type=positive,
        help=f"clips a process (default: {defaults.batch_size_amp} with --amp, else {defaults.batch_size})",
    )
    group.add_argument("--weight-decay", type=float, default=defaults.weight_decay, help="L2 penalty of Adam")
    group.add_argument(
        "--grad-clip-thresh",
        type=float,
        default=defaults.grad_clip_thresh,
        help="largest norm of the gradient" + ("" if defaults.grad_clip_thresh else " (default: off)"),
    )
    group.add_argument(
        "--anneal-steps",
        type=int,
        nargs="*",
        default=list(defaults.anneal_steps),
        metavar="EPOCH",
        help="epochs where the rate falls",
    )
    group.add_argument(
        "--anneal-factor",
        type=float,
        help="what it falls by: 0.1, or 0.3 for 1, 0.3, 0.1, 0.03 … (default: 0.3 with --amp, else 0.1)",
    )
    group.add_argument(
        "--amp", action="store_true", help="mixed precision: float16 on a GPU, bfloat16 on a CPU that has it"
    )
    group.add_argument("--cudnn-enabled", action="store_true", help="use cuDNN")
    group.add_argument(
        "--cudnn-benchmark", action="store_true", help="let cuDNN try algorithms; for inputs of equal size"
    )
    group.add_argument(
        "--disable-uniform-initialize-bn-weight",
        action="store_true",
        help="start BatchNorm weights at 1, not uniform in [0, 1)",
    )


def _add_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-d", "--dataset-path", default="./", help="folder that the filelists' paths start at")
    for part, name in (("training", "train"), ("validation", "val")):
        standard = Path(f"filelists/ljs_audio_text_{name}_filelist.txt")
        group.add_argument(f"--{part}-files", type=Path, default=standard, help=f"{part} clips, rows path|text")
    group.add_argument("--num-workers", type=int, help="loader processes (default: up to 4 with a GPU, else none)")
    group.add_argument(
        "--bucket-batches",
        type=int,
        default=0,
        help="batches' worth of clips that are sorted by length before they are cut, which spares padding; 0: off",
    )


def positive(text: str) -> int:
    """An argparse type: an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}, expected at least 1")
    return value


def seed(text: str) -> int:
    """An argparse type: a seed that every generator here takes, even multiplied and added to."""
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{value}, expected 0 to 2^32 - 1")
    return value


def config_file_words(path: Path, parser: argparse.ArgumentParser) -> list[str]:
    """The command-line words that a JSON file of {group: {flag: value}} stands for.

    true stands for the bare flag, false and null for nothing, a list for several values. UsageError names the file and each
    place in it that the parser would refuse.
    """
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config-file: {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UsageError(f"--config-file: {path}: not JSON ({error})") from None
    if not isinstance(groups, dict) or not all(isinstance(flags, dict) for flags in groups.values()):
        raise UsageError(f"--config-file: {path}: expected {{group: {{flag: value}}}}")
    words: list[str] = []
    problems = []
    for group, flags in groups.items():
        for name, value in flags.items():
            flag = "--" + name.lstrip("-").replace("_", "-")
            if problem := _refusal(parser, flag, value):
                problems.append(f"--config-file: {path}: {group}.{name}: {problem}")
            words += _words(flag, value)
    if problems:
        raise UsageError("\n".join(problems))
    return words


def _words(flag: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    return [flag, *map(str, value)] if isinstance(value, list) else [flag, str(value)]


def _refusal(parser: argparse.ArgumentParser, flag: str, value: Any) -> str | None:
    """Why the parser would refuse a flag and its value; None where it takes them."""
    if not any(flag in action.option_strings for action in parser._actions):
        return f"no such flag, {flag}"
    parser.exit_on_error = False
    try:
        _, rest = parser.parse_known_args(_words(flag, value))
    except argparse.ArgumentError as error:
        return error.message
    finally:
        parser.exit_on_error = True
    return f"{flag} takes no value, but true or false: {' '.join(rest)}" if rest else None


def parse_training_arguments(
    argv: list[str], registry: dict[str, ModelSpec], description: str
) -> tuple[argparse.Namespace, ModelSpec]:
    """Parse train.py's command line: -m first, as it decides which other flags there are and their defaults."""
    first = argparse.ArgumentParser(prog="train.py", description=description, allow_abbrev=False, add_help=False)
    first.add_argument("-m", "--model-name", choices=list(registry), help="the model to train; with -h, its flags")
    name = first.parse_known_args(argv)[0].model_name
    if name is None:
        if {"-h", "--help"} & set(argv):
            first.print_help()
            first.exit()
        first.error(f"the following arguments are required: -m/--model-name, one of {', '.join(registry)}")
    spec = registry[name]
    parser = argparse.ArgumentParser(
        prog="train.py",
        usage=f"%(prog)s -m {name} [flags]  (-h lists them)",  # all of them at each mistake would bury it
        description=description,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
        parents=[first],
    )
    add_training_arguments(parser, spec.training)
    spec.add_training_arguments(parser)
    spec.add_arguments(parser)
    add_retired_arguments(parser, RETIRED)
    args = parser.parse_args(argv)
    if args.config_file:
        args = parser.parse_args(config_file_words(args.config_file, parser) + argv)
    _resolve(args, spec.training)
    return args, spec


def given_options(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    """Only the options that the command line names, without the others' defaults."""
    unset = object()
    blank = argparse.Namespace(**{action.dest: unset for action in parser._actions})
    return {name: value for name, value in vars(parser.parse_args(argv, blank)).items() if value is not unset}


def _resolve(args: argparse.Namespace, defaults: TrainingDefaults) -> None:
    """Fill in the defaults that depend on other flags, and refuse numbers that cannot work, all at once."""
    if args.batch_size is None:
        args.batch_size = defaults.batch_size_amp if args.amp else defaults.batch_size
    if args.anneal_factor is None:
        args.anneal_factor = 0.3 if args.amp else 0.1
    wrong = []
    if not 0 < args.learning_rate < math.inf:  # NaN fails this as well
        wrong.append(f"--learning-rate: {args.learning_rate}, expected more than 0")
    if not 0 <= args.weight_decay < math.inf:
        wrong.append(f"--weight-decay: {args.weight_decay}, expected 0 or more")
    if args.grad_clip_thresh is not None and not args.grad_clip_thresh > 0:
        wrong.append(f"--grad-clip-thresh: {args.grad_clip_thresh}, expected more than 0; leave it out for no clipping")
    if not 0 < args.anneal_factor <= 1:
        wrong.append(f"--anneal-factor: {args.anneal_factor}, expected a factor in (0, 1]")
    if args.bucket_batches < 0:
        wrong.append(f"--bucket-batches: {args.bucket_batches}, expected 0 or more")
    if args.num_workers is not None and args.num_workers < 0:
        wrong.append(f"--num-workers: {args.num_workers}, expected 0 or more")
    if wrong:
        raise UsageError("\n".join(wrong))
