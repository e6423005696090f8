"""Train a model: python train.py -m MODEL … on one GPU or the CPU, python -m multiproc train.py -m MODEL … on every GPU.

Writes checkpoints, nvlog.json and TensorBoard files to --output. `python train.py -m MODEL -h` lists a model's flags.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.threads import limit_spinning

    limit_spinning()  # takes effect before PyTorch is imported

import argparse
import math
import sys
from collections.abc import Mapping

from torch.utils.data import DataLoader

from common import precision
from common.arguments import log_path
from common.audio.stft import AudioConfig, TacotronSTFT
from common.errors import exit_on_user_error
from common.spec import ModelSpec, from_options
from common.training import distributed, log_files, snapshot
from common.training.checkpoint import best_path
from common.training.checkup import BEST_BY, Checkup
from common.training.distributed import Dist
from common.training.interrupt import SaveTimer, StopRequest
from common.training.loop import (
    Best,
    Ending,
    EpochTotals,
    RunTotals,
    TrainState,
    build_state,
    log_epoch,
    stop_everywhere,
    train_epoch,
)
from common.training.memory import explain_out_of_memory
from common.training.nvlog import Log, NullLog, NvLog
from common.training.optimization import Pace, batch_factor, rate_at
from common.training.plan import describe_plan, memory_advice
from common.training.sampler import sampler_of
from common.training.selection import freeze
from common.training.validation import update_best, validate
from common.training.warm_start import warm_start
from common.training_arguments import parse_training_arguments
from data_functions import Loaders, get_loaders
from loss_functions import get_loss_function
from models import REGISTRY, get_model


def main(argv: list[str] | None = None) -> int:
    """Parse flags, join the other processes, train to --epochs; returns the exit code."""
    args, spec = parse_training_arguments(sys.argv[1:] if argv is None else argv, REGISTRY, __doc__ or "")
    with distributed.session(args.cpu, always=args.shard) as dist, StopRequest() as stop:
        finished = run(args, spec, dist, stop)
    return 0 if finished else stop.exit_code


def run(args: argparse.Namespace, spec: ModelSpec, dist: Dist, stop: StopRequest) -> bool:
    """Build or restore the state and train; returns False if a signal ended it early, after saving."""
    precision.configure(args.cudnn_enabled, args.cudnn_benchmark, not args.no_tf32)
    precision.keep_freed_memory(dist.device)
    threads = precision.balance_threads(dist.device)
    start = snapshot.find(args, spec.name, dist)
    args.seed = snapshot.choose_seed(args.seed, start.checkpoint, dist)
    precision.seed_everything(args.seed + dist.rank)
    loaders = get_loaders(spec.name, vars(args), dist)
    state, begun = make_state(spec, args, dist, pace_of(spec, args, loaders.training), warm=start.path is None)
    state.threads = threads
    resumes_here = start.path is not None and start.path.parent.resolve() == args.output.resolve()
    if start.path:
        snapshot.check_data_options(start.checkpoint, start.path, args)
        begun = snapshot.restore(state, start.checkpoint, start.path)
        if not resumes_here:
            state.saved = []  # its files lie in another folder
    del start  # a copy of all weights and averages
    with explain_out_of_memory(lambda: memory_advice(state, args)):
        if args.dry_run:
            plan = describe_plan(state, loaders.training, args)
            print("\n".join(plan) + "\n" if dist.is_main else "", end="")
            return True
        with open_log(args, dist, state.iteration if resumes_here else 0) as log:
            log.parameters(vars(args))
            for sentence in describe(state, loaders, begun, args):
                log.say(sentence)
            return fit(state, loaders, args, log, stop)


def make_state(
    spec: ModelSpec, args: argparse.Namespace, dist: Dist, pace: Pace, warm: bool = True
) -> tuple[TrainState, str]:
    """A model with its first weights, fresh or from --warm-start, its criterion and optimizer; and a phrase on the weights."""
    config = spec.config_from_options(vars(args))
    model = get_model(spec.name, config, not args.disable_uniform_initialize_bn_weight)
    begun = "starting at epoch 0"
    if warm and args.warm_start:
        begun = warm_start(model, spec, args.warm_start, vars(args), args.ignore_layers)
    freeze(model, args.freeze)
    spec.prepare_training(model, vars(args))
    criterion = get_loss_function(spec.name, options=vars(args))
    return build_state(spec, model, criterion, args, dist, pace), begun


def pace_of(spec: ModelSpec, args: argparse.Namespace, training: DataLoader) -> Pace:
    """How large a step is, how many make an epoch, and what the model's learning rate was chosen for."""
    usual = spec.training.batch_size_amp if args.amp else spec.training.batch_size
    return Pace(sampler_of(training).batches_per_epoch(), sampler_of(training).global_size, usual)


def open_log(args: argparse.Namespace, dist: Dist, steps_done: int) -> Log:
    """Open the run's log on the main process, a silent one elsewhere; steps_done is 0 unless the run resumes in --output."""
    if not dist.is_main:
        return NullLog()
    path, tensorboard = log_path(args.output, args.log_file), args.output / "tensorboard" / args.model_name
    renames = log_files.prepare(path, tensorboard, args.model_name, steps_done)
    log = NvLog(path, tensorboard, purge_step=steps_done + 1 if steps_done else None)
    if renames:
        log.say(renames)
    return log


def describe(state: TrainState, loaders: Loaders, begun: str, args: argparse.Namespace) -> list[str]:
    """Lines about the run: the model, its data and first weights, and unusual settings."""
    weights = list(state.model.parameters())
    total, trained = sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)
    frozen = f", {trained:,} of them trained," if trained < total else ""
    clips, held_out = len(loaders.training.dataset), len(loaders.validation.dataset)  # type: ignore[arg-type]
    lines = [
        f"{state.spec.name}: {total:,} parameters{frozen} on {state.dist.world_size} x {state.dist.device.type}; "
        f"{clips} clips for training, {held_out} for validation; {begun}"
    ]
    factor = batch_factor(state.optimization, state.pace)
    if factor != 1:
        rate = rate_at(state.optimization, state.pace, state.progress, state.iteration)
        lines.append(
            f"--lr-scaling {args.lr_scaling}: learning rates times {factor:.3g} for batches of {state.pace.global_batch} "
            f"in place of {state.pace.usual_batch}, {rate:.3g} now"
        )
    if args.amp and (note := precision.half_note(state.dist.device, state.half)):
        lines.append(f"--amp: {note}")
    return lines


def fit(state: TrainState, loaders: Loaders, args: argparse.Namespace, log: Log, stop: StopRequest) -> bool:
    """Train from the state's epoch to --epochs; returns False if a signal ended it early, after saving."""
    if state.epoch >= args.epochs:
        log.say(f"nothing left to train: {state.epoch} epochs are done; raise --epochs, now {args.epochs}, to go on")
    if state.totals.iterations == 0 and not patient(state, args, log):
        return True
    show = state.dist.is_main and not args.shard  # a sharded model cannot run on rank 0 alone
    stft = TacotronSTFT.from_config(from_options(AudioConfig, vars(args))) if show else None
    checkup = Checkup(args, state.dist.is_main)
    totals, timer = RunTotals(), SaveTimer(args.checkpoint_every_minutes or math.inf)
    for epoch in range(state.epoch, args.epochs):
        state.epoch = epoch
        while (ending := train_epoch(state, loaders.training, log, stop, timer)) is not Ending.EPOCH:
            log.say(f"{'stopped' if ending is Ending.STOP else 'still'} in mid-epoch: {save(state, args, False)}")
            timer.restart()
            if ending is Ending.STOP:
                return False
        totals.add(log_epoch(state, log))
        last, stopping = epoch + 1 == args.epochs, stop_everywhere(stop, state.dist)
        if last or epoch % args.epochs_per_validation == 0:
            totals.validation = validate(state, loaders.validation, stft, log)
            found = {"loss": totals.validation["val_loss"]}
            if checkup.due(epoch, last):
                found = checkup(state, args, log) | found
            last = not keep_best(state, found, args, log) or last
        state.totals = EpochTotals()
        saved = ""
        if last or stopping or epoch % args.epochs_per_checkpoint == 0:
            saved = save(state, args)
            timer.restart()
        if stopping and not last:
            log.say(f"stopped: {saved}")
            return False
        if last:
            break
    totals.log(log, state.rates)
    return True


def save(state: TrainState, args: argparse.Namespace, epoch_complete: bool = True) -> str:
    """Write a checkpoint, unless this run only measures speed; returns a sentence on how to go on from it."""
    if args.bench_class.startswith("perf"):
        return f"--bench-class {args.bench_class} saves nothing"
    path = snapshot.save(state, args, epoch_complete)
    return f"saved {path}; add --resume-from-last to the same command to go on"


def keep_best(state: TrainState, found: Mapping[str, float], args: argparse.Namespace, log: Log) -> bool:
    """Save the weights if they are the best so far, where --best-by was measured; returns whether there is patience to go on."""
    if args.best_by not in found:
        return True
    if state.best.by != args.best_by:  # numbers of another measure say nothing here
        state.best = Best(by=args.best_by)
    if update_best(state, BEST_BY[args.best_by] * found[args.best_by]) and not args.bench_class.startswith("perf"):
        snapshot.save_best(state, args)
    return patient(state, args, log)


def patient(state: TrainState, args: argparse.Namespace, log: Log) -> bool:
    """Whether there is a reason to go on; says so where there is none."""
    if args.early_stop_patience is None or state.best.since < args.early_stop_patience:
        return True
    log.say(
        f"--early-stop-patience {args.early_stop_patience}: no better validation {args.best_by} than "
        f"{BEST_BY[args.best_by] * state.best.loss:.4g} since epoch {state.best.epoch}, whose weights are in "
        f"{best_path(args.output, state.spec.name)}"
    )
    return False


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
