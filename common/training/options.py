"""The options of train.py that every model shares, written once: flag, default, help and check of each, and the rules of pairs."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from common.arguments import DETERMINISTIC_HELP, PLAIN_HELP, positive, seed
from common.audio.stft import AudioConfig
from common.options import ABOVE_ZERO, NOT_NEGATIVE, Check, from_options, option, section, values_of
from common.precision import COMPILE_MODES
from common.quality import MEASURED
from common.quality.recogniser import RecogniserConfig
from common.run.distributed import COMPRESSIONS, TIMEOUT
from common.spec import Options
from common.training.optimization import OptimizationConfig, pattern

# Measures that select checkpoints, with the sign that makes lower better.
BEST_BY = {
    "loss": 1.0,
    "wer": 1.0,  # by the capped rate; see checkup.selecting_measures
    "mcd": 1.0,
    "mos": -1.0,
    "coverage": -1.0,  # the share of symbols that attention reads, of an acoustic model; needs no packages
    "mel_distance": 1.0,  # from recordings, of a vocoder; needs no packages
}
NEEDED = {"wer": "asr", "mos": "mos", "mcd": "likeness"}  # measure of --best-by: its evaluator


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Where a run writes, how long it takes and what it does."""

    output: Path = option(Path("output"), "folder for checkpoints and logs", "-o")
    log_file: str = option(
        "nvlog.json",
        "log file: a name inside --output, with or without that folder, or an absolute path; a fresh run moves an older log aside",
    )
    config_file: Path | None = option(
        None,
        "JSON file of flags, {group: {flag: value}}, such as the studio's plan.json; flags on the command line override it, and a "
        "group with the name of a model is for that model alone",
    )
    epochs: int = option(1, "total epochs, including any before a resume", type=positive)
    epochs_per_validation: int = option(
        1, "epochs from one validation to the next; the last epoch is always validated", type=positive
    )
    seed: int | None = option(
        None, "random seed of weights, dropout and data order (default: drawn and logged)", type=seed
    )
    bench_class: str = option("", "measure the steady rate and write no checkpoints", choices=["", "perf-train"])
    dry_run: bool = option(False, "print the plan of the run and the memory it needs, then exit")
    measure: Path | None = option(None, "with --dry-run: JSON file for all figures, including the time of ten steps")
    find_lr: bool = option(
        False,
        "learning-rate range test (Smith 2015): raise the rate step by step until the loss explodes, write the plot to --output, "
        "suggest a rate, then exit",
    )
    cpu: bool = option(False, "train on the CPU even if there is a GPU")
    early_stop_patience: int | None = option(
        None, "end after N validations in a row without a lower loss (or a better --best-by)", type=positive
    )
    max_minutes: float | None = option(
        None,
        "time limit, for all runs together: train as many of --epochs as the first ones show to fit, with milestones, cosine and "
        "intervals squeezed into them (default: no limit)",
        metavar="M",
        check=ABOVE_ZERO,
    )

    @property
    def is_benchmark(self) -> bool:
        """True for a run that only measures speed."""
        return self.bench_class.startswith("perf")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation during training, and the choice of the best checkpoint."""

    evaluate_every: int | None = option(
        None,
        "at the validations of every Nth epoch, synthesise some validation lines, and recognise and score them as evaluate.py does "
        "(`bash scripts/evaluation.sh` installs what that needs)",
        type=positive,
    )
    evaluate_lines: int = option(6, "number of lines to synthesise, evenly spaced over the list", type=positive)
    evaluate_without: list[str] = option(
        [],
        "measures to leave out, each of which needs packages: words, opinion, likeness to the recording",
        nargs="+",
        choices=MEASURED,
    )
    hearing: RecogniserConfig = section(RecogniserConfig)
    best_by: str = option(
        "loss",
        "measure that selects checkpoint_{model}_best.pt: validation loss, or a measure of --evaluate-every; wer "
        "counts at most as many errors in a line as it has words; coverage (of the text by attention) and mel_distance (of a "
        "vocoder) need no packages",
        choices=list(BEST_BY),
    )
    best_slack: float | None = option(
        None,
        "with --best-by wer, mos or another measure: only checkpoints whose validation loss is at most LOSS above the lowest one "
        "count (after a warm start, the first ones have good measures, but still the old voice)",
        metavar="LOSS",
        check=NOT_NEGATIVE,
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written and deleted, and the one to resume from."""

    epochs_per_checkpoint: int = option(
        50, "epochs from one checkpoint to the next; the last epoch is always saved", type=positive
    )
    checkpoint_every_minutes: float | None = option(
        None, "also save after this many minutes, in mid-epoch", metavar="MINUTES", check=ABOVE_ZERO
    )
    keep_checkpoints: int | None = option(
        None, "number of newest checkpoints to keep, besides the best (default: all)", type=positive
    )
    checkpoint_path: Path | None = option(None, "checkpoint to resume from")
    resume_from_last: bool = option(False, "resume from the newest intact checkpoint in --output, if any")


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """The initial weights, and which of them are trained."""

    warm_start: Path | None = option(
        None,
        "checkpoint to fine-tune: its weights, and its settings of text, audio and model unless a flag names them; training starts "
        "at epoch 0 with a new optimizer",
        metavar="CHECKPOINT",
    )
    ignore_layers: list[str] = option(
        [],
        "weights that keep their initial values instead of the checkpoint's",
        type=pattern,
        nargs="+",
        metavar="REGEX",
    )
    freeze: list[str] = option([], "weights to exclude from training", type=pattern, nargs="+", metavar="REGEX")
    disable_uniform_initialize_bn_weight: bool = option(
        False, "initialise BatchNorm weights to 1 instead of uniformly in [0, 1)", group="optimization"
    )


@dataclass(frozen=True, kw_only=True)
class SkipConfig:
    """Steps that are skipped because their loss or gradient is not finite."""

    max_skipped: int = option(
        0,
        "steps per epoch that may be skipped because the loss or the gradient is NaN or infinite, or the loss is above --max-loss; "
        "the log names their clips; one more ends the run (0: the first one does)",
        check=NOT_NEGATIVE,
    )
    max_loss: float | None = option(
        None,
        "loss above which a step counts as bad, as if it were infinite (default: any finite loss is good)",
        metavar="LOSS",
        check=Check(math.isfinite, "a finite number"),
    )


@dataclass(frozen=True, kw_only=True)
class PrecisionConfig:
    """Number formats, and how a step is computed."""

    amp: bool = option(
        False,
        "mixed precision: float16 on a GPU, bfloat16 on a CPU that supports it",
        action=argparse.BooleanOptionalAction,
    )
    amp_dtype: str | None = option(
        None, "dtype of mixed precision, in place of --amp's choice", choices=["float16", "bfloat16"]
    )
    plain: bool = option(False, PLAIN_HELP)
    compile: str | None = option(
        None,
        "plain steps compiled by PyTorch (torch.compile) in place of the fast ways; needs a C++ compiler, or Triton on a "
        "GPU, and a minute for each new shape of a batch; max-autotune searches for the fastest kernels and takes longer; "
        "the gain has not been measured on a GPU",
        nargs="?",
        choices=list(COMPILE_MODES),
        const="default",
        metavar="MODE",
    )
    no_tf32: bool = option(False, "exact float32 products on GPUs that have TF32")
    cudnn_enabled: bool = option(True, "use cuDNN on a GPU")
    cudnn_benchmark: bool = option(
        False, "let cuDNN search for the fastest algorithms; pays for inputs of constant size"
    )
    deterministic: bool = option(False, DETERMINISTIC_HELP, action=argparse.BooleanOptionalAction)


@dataclass(frozen=True, kw_only=True)
class ScaleConfig:
    """Training on several processes."""

    bucket_cap_mb: float | None = option(
        None, "size of the buckets in which gradients are averaged (default: 25)", metavar="MB", check=ABOVE_ZERO
    )
    grad_compression: str = option("none", "compression of gradients between processes", choices=COMPRESSIONS)
    shard: bool = option(
        False, "shard weights and averages over the processes (FSDP), for models too large for one device"
    )
    cpu_offload: bool = option(False, "with --shard: keep the shards in the CPU's memory")
    timeout_minutes: float = option(
        TIMEOUT / timedelta(minutes=1),
        "time to wait for a process that does not respond; then the run saves and ends",
        metavar="MINUTES",
        check=ABOVE_ZERO,
    )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The clips, and the batches that they are read in."""

    batch_size: int = option(1, "clips per process", "-bs", type=positive, group="optimization")
    grad_accumulation_steps: int = option(
        1,
        "batches per step, whose gradients are averaged as if one batch were N times as large",
        type=positive,
        group="optimization",
    )
    dataset_path: str = option("./", "folder that paths in the filelists are relative to", "-d")
    training_files: Path = option(
        Path("filelists/ljs_audio_text_train_filelist.txt"), "filelist of training clips, path|text a line"
    )
    validation_files: Path = option(
        Path("filelists/ljs_audio_text_val_filelist.txt"), "filelist of validation clips, path|text a line"
    )
    num_workers: int | None = option(
        None, "loader processes (default: up to 4 with a GPU, else none)", check=NOT_NEGATIVE
    )
    bucket_batches: int = option(
        0, "sort clips by length within this many batches, which reduces padding; 0: off", check=NOT_NEGATIVE
    )


def small_step_note(global_batch: int, processes: int, data: DataConfig) -> str:
    """Return a phrase about a step that takes all clips because they fill no batch; "" if they fill one."""
    named = data.batch_size * processes * data.grad_accumulation_steps
    if global_batch == named:
        return ""
    return f"all {global_batch} clips, fewer than the {named} that the flags name; an epoch is 1 step"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Everything that train.py's command line says. `model` holds the flags of the model and of audio, by name."""

    model_name: str = ""
    run: RunConfig = section(RunConfig, "run")
    evaluation: EvaluationConfig = section(EvaluationConfig, "evaluation")
    checkpoints: CheckpointConfig = section(CheckpointConfig, "checkpoints")
    data: DataConfig = section(DataConfig, "data")
    start: StartConfig = section(StartConfig, "fine-tuning")
    optimization: OptimizationConfig = section(OptimizationConfig, "optimization")
    skipping: SkipConfig = section(SkipConfig, "optimization")
    precision: PrecisionConfig = section(PrecisionConfig, "precision")
    scale: ScaleConfig = section(ScaleConfig, "scale")
    model: Options = field(default_factory=dict)

    @cached_property
    def flat(self) -> dict[str, Any]:
        """Every option by its name, as a spec's functions and the log take them."""
        values = values_of(self)
        values.update(values.pop("model"))
        return values

    @cached_property
    def audio(self) -> AudioConfig:
        """The sound of the corpus. Raises UsageError for settings that cannot work."""
        return from_options(AudioConfig, self.model)


def wrong_pairs(options: TrainOptions) -> list[str]:
    """List the flags that lack a flag they need, or exclude another one."""
    run, start, numbers, scale = options.run, options.start, options.precision, options.scale
    every, measure, slack = options.evaluation.evaluate_every, options.evaluation.best_by, options.evaluation.best_slack
    left_out = NEEDED.get(measure) in options.evaluation.evaluate_without
    ways = {"--plain": numbers.plain, "--compile": numbers.compile, "--recompute": options.model.get("recompute")}
    chosen = [flag for flag, is_given in ways.items() if is_given]
    rules = {
        f"{' and '.join(chosen)}: each chooses another way to compute a step; leave all but one of them out": chosen[
            1:
        ],
        "--measure: needs --dry-run": run.measure and not run.dry_run,
        "--find-lr ends with a plot, --dry-run with a plan: give one of them": run.find_lr and run.dry_run,
        "--ignore-layers: needs --warm-start": start.ignore_layers and not start.warm_start,
        "--warm-start begins a new run and --checkpoint-path resumes one: give one of them": (
            start.warm_start and options.checkpoints.checkpoint_path
        ),
        "--deterministic: --cudnn-benchmark chooses algorithms by their time; leave one of them out": (
            numbers.deterministic and numbers.cudnn_benchmark
        ),
        "--amp-dtype: needs --amp": numbers.amp_dtype and not numbers.amp,
        "--cpu-offload: needs --shard": scale.cpu_offload and not scale.shard,
        "--shard: has its own way to average gradients, leave --grad-compression and --bucket-cap-mb out": (
            scale.shard and (scale.grad_compression != "none" or scale.bucket_cap_mb)
        ),
        "--shard: works with --amp-dtype bfloat16 or without --amp, not with float16": (
            scale.shard and numbers.amp_dtype == "float16"
        ),
        f"--evaluate-every {every}: happens at validations, expected a multiple of --epochs-per-validation "
        f"{run.epochs_per_validation}": (every or 0) % run.epochs_per_validation,
        "--shard: a sharded model cannot run on rank 0 alone, leave --evaluate-every out": scale.shard and every,
        f"--best-by {measure}: needs --evaluate-every": measure != "loss" and not every,
        f"--best-by {measure}: --evaluate-without leaves it out": left_out,
        "--best-slack: needs a --best-by other than loss": measure == "loss" and slack is not None,
    }
    return [sentence for sentence, is_wrong in rules.items() if is_wrong]
