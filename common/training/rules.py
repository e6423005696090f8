"""Rules of the flags of training: ranges of numbers, and flags that need or exclude others."""

from __future__ import annotations

import argparse
import math

NEEDED = {"wer": "asr", "mos": "mos", "mcd": "likeness"}  # measure of --best-by: its evaluator


def wrong_numbers(args: argparse.Namespace) -> list[str]:
    """List the numbers out of range; NaN is in no range."""
    above_0, not_below_0 = (lambda x: 0 < x < math.inf, "more than 0"), (lambda x: 0 <= x < math.inf, "0 or more")
    ranges = {
        "learning_rate": above_0,
        "weight_decay": not_below_0,
        "grad_clip_thresh": (lambda x: x > 0, "more than 0; leave it out for no clipping"),
        "anneal_factor": (lambda x: 0 < x <= 1, "a factor in (0, 1]"),
        "warmup_steps": not_below_0,
        "max_skipped": not_below_0,
        "max_loss": (math.isfinite, "a finite number"),
        "ema_decay": (lambda x: 0 < x < 1, "a number in (0, 1), such as 0.999"),
        "bucket_batches": not_below_0,
        "num_workers": not_below_0,
        "bucket_cap_mb": above_0,
        "best_slack": not_below_0,
        "checkpoint_every_minutes": above_0,
        "max_minutes": above_0,
        "timeout_minutes": above_0,
    }
    values = {name: getattr(args, name) for name in ranges}
    return [
        f"--{name.replace('_', '-')}: {value}, expected {ranges[name][1]}"
        for name, value in values.items()
        if value is not None and not ranges[name][0](value)
    ]


def wrong_pairs(args: argparse.Namespace) -> list[str]:
    """List the flags that lack a flag they need, or exclude another one."""
    every, epochs, measure = args.evaluate_every, args.epochs_per_validation, args.best_by
    on_rank_0 = "a sharded model cannot run on rank 0 alone, leave --evaluate-every out"
    own_average = "has its own way to average gradients, leave --grad-compression and --bucket-cap-mb out"
    by_time = "--cudnn-benchmark chooses algorithms by their time; leave one of them out"
    multiple = f"happens at validations, expected a multiple of --epochs-per-validation {epochs}"
    no_float16 = "works with --amp-dtype bfloat16 or without --amp, not with float16"
    starts = "begins anew and --checkpoint-path goes on"
    compressed = args.grad_compression != "none" or args.bucket_cap_mb
    pairs = [
        (args.deterministic and args.cudnn_benchmark, f"--deterministic: {by_time}"),
        (args.amp_dtype and not args.amp, "--amp-dtype: of no use without --amp"),
        (args.cpu_offload and not args.shard, "--cpu-offload: of no use without --shard"),
        (args.shard and compressed, f"--shard: {own_average}"),
        (args.shard and args.amp_dtype == "float16", f"--shard: {no_float16}"),
        ((every or 0) % epochs, f"--evaluate-every {every}: {multiple}"),
        (args.shard and every, f"--shard: {on_rank_0}"),
        (measure != "loss" and not every, f"--best-by {measure}: needs --evaluate-every"),
        (NEEDED.get(measure) in args.evaluate_without, f"--best-by {measure}: --evaluate-without leaves it out"),
        (measure == "loss" and args.best_slack is not None, f"--best-slack: of no use with --best-by {measure}"),
        (args.measure and not args.dry_run, "--measure: of no use without --dry-run"),
        (args.find_lr and args.dry_run, "--find-lr ends with a plot, --dry-run with a plan: give one of them"),
        (args.ignore_layers and not args.warm_start, "--ignore-layers: of no use without --warm-start"),
        (args.warm_start and args.checkpoint_path, f"--warm-start {starts}: give one of them"),
    ]
    return [sentence for wrong, sentence in pairs if wrong]
