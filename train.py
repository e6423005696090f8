"""Train a model: python train.py -m MODEL … on one GPU or the CPU, python -m multiproc train.py -m MODEL … on every GPU.

Writes checkpoints, nvlog.json and TensorBoard files to --output. `python train.py -m MODEL -h` lists a model's flags.
"""

from __future__ import annotations

import argparse
import sys

from common.arguments import parse_training_arguments
from common.engine import distributed, precision, snapshot
from common.engine.checkpoint import load_checkpoint
from common.engine.distributed import Dist
from common.engine.interrupt import StopRequest
from common.engine.nvlog import Log, NullLog, NvLog
from common.engine.training import (
    EpochTotals,
    RunTotals,
    TrainState,
    annealed_rate,
    build_state,
    log_epoch,
    stop_everywhere,
    train_epoch,
    validate,
)
from common.errors import exit_on_user_error
from common.sound.stft import AudioConfig, TacotronSTFT
from common.spec import ModelSpec, from_options
from data_functions import Loaders, get_loaders
from loss_functions import get_loss_function
from models import REGISTRY, get_model


def main(argv: list[str] | None = None) -> int:
    """Parse flags, build or restore the state, train to --epochs; returns the exit code."""
    args, spec = parse_training_arguments(sys.argv[1:] if argv is None else argv, REGISTRY, __doc__ or "")
    with distributed.session(args.cpu) as dist, StopRequest() as stop:
        precision.configure(args.cudnn_enabled, args.cudnn_benchmark)
        path = snapshot.find(args, spec.name, dist)
        checkpoint = load_checkpoint(path) if path else {}
        args.seed = snapshot.choose_seed(args.seed, checkpoint, dist)
        precision.seed_everything(args.seed + dist.rank)
        loaders = get_loaders(spec.name, vars(args), dist)
        state = make_state(spec, args, dist)
        restored = snapshot.restore(state, checkpoint, path) if path else "starting at epoch 0"
        with open_log(args, dist, state.iteration + 1 if path else None) as log:
            log.parameters(vars(args))
            log.say(describe(state, loaders, restored))
            if note := precision.half_note(dist.device, args.amp):
                log.say(f"--amp: {note}")
            finished = fit(state, loaders, args, log, stop)
    return 0 if finished else stop.exit_code


def make_state(spec: ModelSpec, args: argparse.Namespace, dist: Dist) -> TrainState:
    """A fresh model with its criterion and optimizer."""
    config = spec.config_from_options(vars(args))
    model = get_model(spec.name, config, not args.disable_uniform_initialize_bn_weight)
    return build_state(spec, model, get_loss_function(spec.name, options=vars(args)), args, dist)


def open_log(args: argparse.Namespace, dist: Dist, purge_step: int | None) -> Log:
    """The run's log on the main process, a silent one elsewhere."""
    if not dist.is_main:
        return NullLog()
    return NvLog(args.output / args.log_file, args.output / "tensorboard", purge_step=purge_step)


def describe(state: TrainState, loaders: Loaders, restored: str) -> str:
    """What is about to be trained, on what, and from where."""
    parameters = sum(p.numel() for p in state.model.parameters())
    clips, held_out = len(loaders.training.dataset), len(loaders.validation.dataset)  # type: ignore[arg-type]
    return (
        f"{state.spec.name}: {parameters:,} parameters on {state.dist.world_size} x {state.dist.device.type}; "
        f"{clips} clips for training, {held_out} for validation; {restored}"
    )


def fit(state: TrainState, loaders: Loaders, args: argparse.Namespace, log: Log, stop: StopRequest) -> bool:
    """Train from the state's epoch to --epochs; returns False if a signal ended it early, after saving."""
    if state.epoch >= args.epochs:
        log.say(f"nothing left to train: {state.epoch} epochs are done; raise --epochs, now {args.epochs}, to go on")
    stft = TacotronSTFT.from_config(from_options(AudioConfig, vars(args))) if state.dist.is_main else None
    totals = RunTotals()
    for epoch in range(state.epoch, args.epochs):
        state.epoch = epoch
        set_learning_rate(state, args)
        if not train_epoch(state, loaders.training, log, stop):
            log.say(f"stopped in mid-epoch: {save(state, args, epoch_complete=False)}")
            return False
        totals.add(log_epoch(state, log))
        last, stopping = state.epoch + 1 == args.epochs, stop_everywhere(stop, state.dist)
        if last or state.epoch % args.epochs_per_validation == 0:
            totals.validation = validate(state, loaders.validation, stft, log)
        state.totals = EpochTotals()
        saved = save(state, args) if last or stopping or state.epoch % args.epochs_per_checkpoint == 0 else ""
        if stopping and not last:
            log.say(f"stopped: {saved}")
            return False
    totals.log(log, state.rates)
    return True


def save(state: TrainState, args: argparse.Namespace, epoch_complete: bool = True) -> str:
    """Write a checkpoint, unless this run only measures speed; returns a sentence on how to go on from it."""
    if args.bench_class.startswith("perf"):
        return f"--bench-class {args.bench_class} saves nothing"
    data = snapshot.stored_data_options(args, state.spec.stored_options)
    path = snapshot.save(state, data, args, epoch_complete)
    return f"saved {path}; add --resume-from-last to the same command to go on"


def set_learning_rate(state: TrainState, args: argparse.Namespace) -> None:
    """The rate of the state's epoch."""
    for group in state.optimizer.param_groups:
        group["lr"] = annealed_rate(args.learning_rate, state.epoch, args.anneal_steps, args.anneal_factor)


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
