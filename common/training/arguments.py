"""train.py's flags: those of every model, then the model's own."""

from __future__ import annotations

import argparse
from pathlib import Path

from common.arguments import (
    HelpFormatter,
    actions_of,
    add_audio_arguments,
    add_deterministic_argument,
    add_plain_argument,
    add_retired_arguments,
    config_file_words,
    given_options,
    positive,
    seed,
)
from common.errors import UsageError
from common.inference.evaluation import MEASURED
from common.parser import Parser
from common.precision import COMPILE_MODES
from common.run.distributed import COMPRESSIONS
from common.spec import ModelSpec, TrainingDefaults
from common.training.checkup import BEST_BY
from common.training.fine_tuning import adopt_settings
from common.training.optimization import LR_SCALINGS, OPTIMIZERS, SCHEDULES, pattern, rate_factor
from common.training.optimization import OptimizationConfig as Optimization
from common.training.rules import wrong_numbers, wrong_pairs
from common.training.state import ScaleConfig as Scale
from common.training.state import SkipConfig as Skip

# Flags that the published recipe parses and ignores, or that PyTorch's launcher replaces.
RETIRED = (
    *("--text-cleaners", "--use-saved-learning-rate", "--grad-clip", "--dynamic-loss-scaling", "--dist-url"),
    *("--dist-backend", "--group-name", "--rank", "--world-size", "--local_rank", "--local-rank"),
)


def add_training_arguments(parser: argparse.ArgumentParser, defaults: TrainingDefaults) -> None:
    """Add the flags that all models share; the defaults come from the model's spec."""
    _add_run(parser.add_argument_group("run"), defaults)
    _add_evaluation(parser.add_argument_group("evaluation"))
    _add_checkpoints(parser.add_argument_group("checkpoints"))
    _add_start(parser.add_argument_group("fine-tuning"))
    _add_optimization(optimization := parser.add_argument_group("optimization"), defaults)
    _add_skipping(optimization)
    _add_schedule(parser.add_argument_group("learning rate"), defaults)
    _add_precision(parser.add_argument_group("precision"))
    _add_scale(parser.add_argument_group("scale"))
    _add_data(parser.add_argument_group("data"))
    add_audio_arguments(parser)


def _add_run(group: argparse._ArgumentGroup, defaults: TrainingDefaults) -> None:
    group.add_argument("-o", "--output", type=Path, default=Path("output"), help="folder of checkpoints and logs")
    group.add_argument(
        "--log-file",
        default="nvlog.json",
        help="a name inside --output, with or without that folder, or an absolute path; a fresh run moves an older log aside",
    )
    group.add_argument("--config-file", type=Path, help="JSON, {group: {flag: value}}; flags given here override it")
    group.add_argument(
        "--epochs", type=positive, default=defaults.epochs, help="in all, those before a resume included"
    )
    group.add_argument("--epochs-per-validation", type=positive, default=1, help="the last epoch is always validated")
    group.add_argument("--seed", type=seed, help="of weights, dropout and data order; drawn and logged where not given")
    group.add_argument("--bench-class", default="", help="perf-train: measure the steady rate, write no checkpoints")
    group.add_argument("--dry-run", action="store_true", help="print the plan of the run and its memory, and exit")
    group.add_argument(
        "--measure",
        type=Path,
        metavar="PATH",
        help="with --dry-run: measure ten steps too, and write all figures as JSON",
    )
    group.add_argument(
        "--find-lr",
        action="store_true",
        help="raise the learning rate from step to step until the loss explodes (Smith 2015), write the plot to --output, print "
        "a rate to train with, and exit",
    )
    group.add_argument("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    group.add_argument(
        "--early-stop-patience",
        type=positive,
        metavar="N",
        help="end after N validations in a row without a lower loss (or a better --best-by)",
    )
    group.add_argument(
        "--max-minutes",
        type=float,
        metavar="M",
        help="end before the epoch that might not fit into M minutes, as after the last epoch (default: no limit)",
    )


def _add_evaluation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--evaluate-every",
        type=positive,
        metavar="N",
        help="let the model speak some validation lines at the validations of every Nth epoch, and have them recognised and "
        "scored as evaluate.py does (`bash scripts/evaluation.sh` installs what that needs)",
    )
    group.add_argument("--evaluate-lines", type=positive, default=6, help="how many, evenly spaced over the list")
    group.add_argument(
        "--evaluate-without",
        nargs="+",
        choices=MEASURED,
        default=[],
        help="measures to leave out, which need packages: words, opinion, likeness to the recording",
    )
    group.add_argument(
        "--best-by",
        choices=list(BEST_BY),
        default="loss",
        help="the measure that selects checkpoint_{model}_best.pt: validation loss, or a measure of --evaluate-every; wer "
        "counts at most as many errors of a line as it has words; coverage (of the text by attention) and mel_distance (of a "
        "vocoder) need no packages",
    )
    group.add_argument(
        "--best-slack",
        type=float,
        metavar="LOSS",
        help="with another --best-by than loss: leave out checkpoints whose validation loss exceeds the lowest by more. The first "
        "ones of a warm start read well, but have the old voice",
    )


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--epochs-per-checkpoint", type=positive, default=50, help="the last epoch is always saved")
    group.add_argument(
        "--checkpoint-every-minutes", type=float, metavar="MINUTES", help="save by the clock as well, in mid-epoch"
    )
    group.add_argument(
        "--keep-checkpoints", type=positive, metavar="N", help="keep the newest N (default: all); the best is apart"
    )
    group.add_argument("--checkpoint-path", type=Path, help="checkpoint to go on from")
    group.add_argument(
        "--resume-from-last", action="store_true", help="go on from the newest whole one in --output, if there is one"
    )


def _add_start(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--warm-start",
        type=Path,
        metavar="CHECKPOINT",
        help="take its weights, and its settings of text, audio and model where no flag names them; begin at epoch 0 with a "
        "new optimizer",
    )
    group.add_argument(
        "--ignore-layers",
        type=pattern,
        nargs="+",
        default=[],
        metavar="REGEX",
        help="weights of the model that keep their initial values",
    )
    group.add_argument(
        "--freeze",
        type=pattern,
        nargs="+",
        default=[],
        metavar="REGEX",
        help="weights to exclude from training",
    )
    group.add_argument(
        "--lr-scale",
        type=rate_factor,
        nargs="+",
        default=[],
        metavar="REGEX=FACTOR",
        help="factor on the learning rate of the weights whose names match; the first match counts",
    )


def _add_optimization(group: argparse._ArgumentGroup, defaults: TrainingDefaults) -> None:
    group.add_argument(
        "-bs",
        "--batch-size",
        type=positive,
        help=f"clips a process (default: {defaults.batch_size_amp} with --amp, else {defaults.batch_size})",
    )
    group.add_argument(
        "--grad-accumulation-steps",
        type=positive,
        default=1,
        metavar="N",
        help="batches whose gradients make one step, as a batch N times as large would",
    )
    group.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        default=Optimization.optimizer,
        help="Adam: in one kernel, plain, or NVIDIA Apex's",
    )
    group.add_argument("--weight-decay", type=float, default=defaults.weight_decay, help="L2 penalty of Adam")
    group.add_argument(
        "--grad-clip-thresh",
        type=float,
        default=defaults.grad_clip_thresh,
        help="largest norm of the gradient" + ("" if defaults.grad_clip_thresh else " (default: off)"),
    )
    group.add_argument(
        "--ema-decay",
        type=float,
        metavar="DECAY",
        help="keep a moving average of the weights, 0.999 say, for validation and inference",
    )
    group.add_argument(
        "--disable-uniform-initialize-bn-weight",
        action="store_true",
        help="initialise BatchNorm weights to 1, not uniformly in [0, 1)",
    )


def _add_skipping(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-skipped",
        type=int,
        default=Skip.max_skipped,
        metavar="N",
        help="steps of an epoch to skip where the loss or the gradient is NaN or infinite, or above --max-loss; the log names "
        "their clips; one more ends the run (0: the first one does)",
    )
    group.add_argument(
        "--max-loss",
        type=float,
        default=Skip.max_loss,
        metavar="LOSS",
        help="a step with a higher loss counts as one whose loss is infinite (default: any finite loss is good)",
    )


def _add_schedule(group: argparse._ArgumentGroup, defaults: TrainingDefaults) -> None:
    group.add_argument("-lr", "--learning-rate", type=float, default=defaults.learning_rate, help="of Adam")
    group.add_argument(
        "--lr-scaling",
        choices=list(LR_SCALINGS),
        default=Optimization.lr_scaling,
        help="scale it with the ratio of clips in a step to the default --batch-size: by the square root, or linearly",
    )
    group.add_argument(
        "--lr-schedule",
        choices=SCHEDULES,
        default=Optimization.lr_schedule,
        help="fall at --anneal-steps, by a cosine to 0, or not at all",
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
        help="factor of each step down: 0.1, or 0.3 for 1, 0.3, 0.1, 0.03 … (default: 0.3 with --amp, else 0.1)",
    )
    group.add_argument(
        "--warmup-steps",
        type=int,
        default=Optimization.warmup_steps,
        metavar="N",
        help="steps in which it rises to its value",
    )


def _add_precision(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--amp",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="mixed precision: float16 on a GPU, bfloat16 on a CPU that has it",
    )
    group.add_argument(
        "--amp-dtype",
        choices=["float16", "bfloat16"],
        help="its dtype, in place of --amp's choice; needs --amp",
    )
    add_plain_argument(group)
    group.add_argument(
        "--compile",
        nargs="?",
        choices=list(COMPILE_MODES),
        const="default",
        metavar="MODE",
        help="plain steps compiled by PyTorch (torch.compile) in place of the fast ways; needs a C++ compiler, or Triton on a "
        "GPU, and a minute for each new shape of a batch; max-autotune searches for the fastest kernels and takes longer; "
        "their gain has not been measured on a GPU",
    )
    group.add_argument("--no-tf32", action="store_true", help="keep float32 products exact on GPUs that have TF32")
    group.add_argument(
        "--cudnn-enabled", action=argparse.BooleanOptionalAction, default=True, help="use cuDNN on a GPU"
    )
    group.add_argument(
        "--cudnn-benchmark",
        action="store_true",
        help="let cuDNN search for the fastest algorithms; for inputs of equal size",
    )
    add_deterministic_argument(group)


def _add_scale(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--bucket-cap-mb",
        type=float,
        metavar="MB",
        help="size of the buckets in which gradients are averaged (default: 25)",
    )
    group.add_argument(
        "--grad-compression",
        choices=COMPRESSIONS,
        default=Scale.grad_compression,
        help="compression of gradients between processes",
    )
    group.add_argument(
        "--shard",
        action="store_true",
        help="shard weights and averages over the processes (FSDP), for models too large for one",
    )
    group.add_argument("--cpu-offload", action="store_true", help="with --shard: keep the shards in the CPU's memory")
    group.add_argument(
        "--timeout-minutes",
        type=float,
        default=Scale.timeout_minutes,
        metavar="MINUTES",
        help="how long processes wait for one that does not answer; then the run saves and ends",
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
        help="sort clips by length within so many batches, which reduces padding; 0: off",
    )


def parse_training_arguments(
    argv: list[str], registry: dict[str, ModelSpec], description: str
) -> tuple[argparse.Namespace, ModelSpec]:
    """Parse train.py's command line. -m comes first, since the other flags and their defaults depend on the model."""
    first = Parser(prog="train.py", description=description, allow_abbrev=False, add_help=False)
    first.add_argument("-m", "--model-name", choices=list(registry), help="the model to train; with -h, its flags")
    name = first.parse_known_args(argv)[0].model_name
    if name is None:
        if {"-h", "--help"} & set(argv):
            first.print_help()
            first.exit()
        first.error(f"the following arguments are required: -m/--model-name, one of {', '.join(registry)}")
    spec = registry[name]
    parser = Parser(
        prog="train.py",
        usage=f"%(prog)s -m {name} [flags]  (-h lists them)",  # a list of all flags would hide the message
        description=description,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
        parents=[first],
    )
    add_training_arguments(parser, spec.training)
    spec.add_training_arguments(parser)
    spec.add_arguments(parser)
    add_retired_arguments(parser, RETIRED)
    args, words = parser.parse_args(argv), argv
    if args.config_file:
        words = config_file_words(args.config_file, parser) + argv
        args = parser.parse_args(words)
    _resolve(args, spec.training)
    if args.warm_start:
        adopt_settings(args, given_options(parser, words), spec, model_actions(spec))
    return args, spec


def model_actions(spec: ModelSpec) -> dict[str, argparse.Action]:
    """Return the flags of a model and of audio by the names of their options."""
    return {action.dest: action for add in (spec.add_arguments, add_audio_arguments) for action in actions_of(add)}


def _resolve(args: argparse.Namespace, defaults: TrainingDefaults) -> None:
    """Set the defaults that depend on other flags. Raises one UsageError for all values that cannot work."""
    if args.batch_size is None:
        args.batch_size = defaults.batch_size_amp if args.amp else defaults.batch_size
    if args.anneal_factor is None:
        args.anneal_factor = 0.3 if args.amp else 0.1
    if wrong := [*wrong_numbers(args), *wrong_pairs(args)]:
        raise UsageError("\n".join(wrong))
