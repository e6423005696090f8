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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

from torch.utils.data import DataLoader

from common import precision
from common.arguments import log_path
from common.audio.stft import AudioConfig, TacotronSTFT
from common.checkpoint.files import best_path
from common.errors import DataError, exit_on_user_error
from common.options import from_options
from common.run import distributed
from common.run.distributed import Dist
from common.run.interrupt import SaveTimer, StopRequest, TimeLimit
from common.run.memory import explain_out_of_memory
from common.run.nvlog import Log, NullLog, NvLog
from common.run.run_folder import occupy, prepare_log, refuse_checkpoints
from common.spec import ModelSpec
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.checkup import BEST_BY, Checkup
from common.training.fine_tuning import warm_start
from common.training.forecast import describe_plan, measure_run, memory_advice, small_step_note, write_figures
from common.training.loop import Ending, RunTotals, any_process, is_stop_requested, log_epoch, train_epoch
from common.training.optimization import Pace, batch_factor, freeze, rate_at
from common.training.rate_test import find_rate
from common.training.sampler import sampler_of
from common.training.state import Best, EpochTotals, TrainState, build_state
from common.training.validation import update_best, validate
from data_functions import Loaders, get_loaders
from loss_functions import get_loss_function
from models import REGISTRY, get_model


def main(argv: list[str] | None = None) -> int:
    """Parse the flags, join the process group and train to --epochs. Returns the exit code."""
    args, spec = parse_training_arguments(sys.argv[1:] if argv is None else argv, REGISTRY, __doc__ or "")
    timeout = timedelta(minutes=args.timeout_minutes)
    with (
        precision.deterministic(args.deterministic),
        distributed.session(args.cpu, args.shard, timeout) as dist,
        StopRequest() as stop,
        lock(args, dist),
    ):
        finished = run(args, spec, dist, stop)
    return 0 if finished else stop.exit_code


def lock(args: argparse.Namespace, dist: Dist) -> AbstractContextManager[None]:
    """Lock --output on the main process, for a run that writes there."""
    return occupy(args.output, args.model_name) if dist.is_main and not args.dry_run else nullcontext()


def run(args: argparse.Namespace, spec: ModelSpec, dist: Dist, stop: StopRequest) -> bool:
    """Build or restore the state and train. Returns False if a signal ended the run early, after a save."""
    precision.configure(args.cudnn_enabled, args.cudnn_benchmark, not args.no_tf32)
    precision.keep_freed_memory(dist.device)
    threads = precision.balance_threads(dist.device, args.deterministic)
    start = snapshot.find(args, spec.name, dist)
    resumes_here = start.path is not None and start.path.parent.resolve() == args.output.resolve()
    writes = not (args.dry_run or args.find_lr or args.bench_class.startswith("perf"))
    if dist.is_main and writes and not resumes_here:
        refuse_checkpoints(args.output, spec.name, args.resume_from_last)
    args.seed = snapshot.choose_seed(args.seed, start.checkpoint, dist)
    precision.seed_everything(args.seed + dist.rank)
    loaders = get_loaders(spec.name, vars(args), dist)
    state, start_note = make_state(spec, args, dist, pace_of(spec, args, loaders.training), warm=start.path is None)
    state.threads = threads
    if start.path:
        snapshot.check_data_options(start.checkpoint, start.path, args)
        start_note = snapshot.restore(state, start.checkpoint, start.path)
        if not resumes_here:
            state.saved = []  # the checkpoints of that run are in another folder
    del start  # frees a copy of all weights and averages
    with explain_out_of_memory(lambda: memory_advice(state, args)):
        if args.dry_run or args.find_lr:
            try_out(state, loaders, args)
            return True
        with open_log(args, dist, state.iteration if resumes_here else 0) as log, save_on_timeout(state, args):
            log.parameters(vars(args))
            for sentence in describe(state, loaders, start_note, args):
                log.say(sentence)
            return fit(state, loaders, args, log, stop)


def try_out(state: TrainState, loaders: Loaders, args: argparse.Namespace) -> None:
    """Measure a run in place of training: its plan, its speed, or the effect of learning rates."""
    loader = loaders.training
    if args.measure:
        figures = measure_run(state, loader, loaders.validation, args, Checkup(args, state.dist.is_main))
        if state.dist.is_main:
            write_figures(args.measure, figures)
        return
    lines = [find_rate(state, loader, args)] if args.find_lr else describe_plan(state, loader, args)
    print("\n".join(lines) + "\n" if state.dist.is_main else "", end="")


def make_state(
    spec: ModelSpec, args: argparse.Namespace, dist: Dist, pace: Pace, warm: bool = True
) -> tuple[TrainState, str]:
    """Build the model with initial weights, random or from --warm-start, its criterion and optimizer.

    Returns the state and a phrase that describes the weights.
    """
    config = spec.config_from_options(vars(args))
    model = get_model(spec.name, config, not args.disable_uniform_initialize_bn_weight)
    start_note = "starting at epoch 0"
    if warm and args.warm_start:
        start_note = warm_start(model, spec, args.warm_start, vars(args), args.ignore_layers)
    freeze(model, args.freeze)
    spec.prepare_training(model, vars(args))
    criterion = get_loss_function(spec.name, options=vars(args))
    return build_state(spec, model, criterion, args, dist, pace), start_note


def pace_of(spec: ModelSpec, args: argparse.Namespace, training: DataLoader) -> Pace:
    """Return the steps of an epoch, the size of a step, and the batch size behind the model's learning rate."""
    usual = spec.training.batch_size_amp if args.amp else spec.training.batch_size
    return Pace(sampler_of(training).batches_per_epoch(), sampler_of(training).global_size, usual)


def open_log(args: argparse.Namespace, dist: Dist, steps_done: int) -> Log:
    """Open the run's log on the main process and a NullLog elsewhere; steps_done is 0 unless the run resumes in --output."""
    if not dist.is_main:
        return NullLog()
    path, tensorboard = log_path(args.output, args.log_file), args.output / "tensorboard" / args.model_name
    renames = prepare_log(path, tensorboard, args.model_name, steps_done)
    log = NvLog(path, tensorboard, purge_step=steps_done + 1 if steps_done else None)
    if renames:
        log.say(renames)
    return log


def describe(state: TrainState, loaders: Loaders, start_note: str, args: argparse.Namespace) -> list[str]:
    """List lines that describe the run: the model, its data, its initial weights, and unusual settings."""
    weights = list(state.model.parameters())
    total, trained = sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)
    frozen = f", {trained:,} of them trained," if trained < total else ""
    clips, held_out = len(loaders.training.dataset), len(loaders.validation.dataset)  # type: ignore[arg-type]
    lines = [
        f"{state.spec.name}: {total:,} parameters{frozen} on {state.dist.world_size} x {state.dist.device.type}; "
        f"{clips} clips for training, {held_out} for validation; {start_note}"
    ]
    if note := small_step_note(state.pace.global_batch, state.dist.world_size, args):
        lines.append(f"a step takes {note}")
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
    """Train from the state's epoch to --epochs. Returns False if a signal ended the run early, after a save."""
    if state.epoch >= args.epochs:
        log.say(f"nothing left to train: {state.epoch} epochs are done; raise --epochs, now {args.epochs}, to go on")
    if state.totals.iterations == 0 and not may_continue(state, args, log):
        return True
    show = state.dist.is_main and not args.shard  # a sharded model cannot run on rank 0 alone
    stft = TacotronSTFT.from_config(from_options(AudioConfig, vars(args))) if show else None
    checkup = Checkup(args, state.dist.is_main)
    totals, timer = RunTotals(), SaveTimer(args.checkpoint_every_minutes or math.inf)
    limit = TimeLimit(args.max_minutes or math.inf)
    for epoch in range(state.epoch, args.epochs):
        state.epoch = epoch
        while (ending := train_epoch(state, loaders.training, log, stop, timer)) is not Ending.EPOCH:
            raise_fault(state, args, log, epoch_complete=False)
            log.say(f"{'stopped' if ending is Ending.STOP else 'still'} in mid-epoch: {save(state, args, False)}")
            timer.restart()
            if ending is Ending.STOP:
                return False
        totals.add(log_epoch(state, log))
        last, stopping = is_last(state, args, limit, log), is_stop_requested(stop, state.dist)
        if last or epoch % args.epochs_per_validation == 0:
            totals.validation = validate(state, loaders.validation, stft, log)
            raise_fault(state, args, log, epoch_complete=True)
            measures = {"loss": totals.validation["val_loss"]}
            if checkup.due(epoch, last):
                measures = checkup(state, args, log) | measures
            last = not update_best_checkpoint(state, measures, args, log) or last
        state.totals = EpochTotals()
        saved = ""
        if last or stopping or epoch % args.epochs_per_checkpoint == 0:
            saved = save(state, args, final=last)
            timer.restart()
        if stopping and not last:
            log.say(f"stopped: {saved}")
            return False
        if last:
            break
    totals.log(log, state.rates)
    return True


def is_last(state: TrainState, args: argparse.Namespace, limit: TimeLimit, log: Log) -> bool:
    """Return True after the last of --epochs, or where --max-minutes may not suffice for another one; all processes call it."""
    if state.epoch + 1 == args.epochs:
        return True
    near = args.max_minutes is not None and any_process(limit.is_near(), state.dist)
    if near:
        log.say(f"--max-minutes {limit.minutes:g}: epoch {state.epoch} is the last, as another might not fit")
    return near


def raise_fault(state: TrainState, args: argparse.Namespace, log: Log, *, epoch_complete: bool) -> None:
    """Save and raise the error of a clip, if there is one; every process has to call it."""
    if state.fault is None:
        return
    if epoch_complete:
        state.totals = EpochTotals()
    if state.iteration:
        log.say(f"a clip cannot be read: {save(state, args, epoch_complete)}")
    raise state.fault


def save(
    state: TrainState,
    args: argparse.Namespace,
    epoch_complete: bool = True,
    alone: bool = False,
    final: bool = False,
) -> str:
    """Write a checkpoint, unless the run only measures speed; the final one also as weights alone, in safetensors.

    `alone` is that of snapshot.save. Returns a sentence on how to resume from it.
    """
    if args.bench_class.startswith("perf"):
        return f"--bench-class {args.bench_class} saves nothing"
    path = snapshot.save(state, args, epoch_complete, alone)
    if final:
        snapshot.save_final_weights(state, args)
    resume = "add --resume-from-last to the same command to go on"
    if args.resume_from_last:
        resume = "the same command goes on"
    return f"saved {path}; {resume}"


@contextmanager
def save_on_timeout(state: TrainState, args: argparse.Namespace) -> Iterator[None]:
    """Save on the main process where another one does not answer. Raises DataError that names it.

    The checkpoint has all finished steps, but no random numbers of other processes. Where a process has ended, nothing is saved: a
    run resumes from the last checkpoint, bit for bit.
    """
    try:
        yield
    except RuntimeError as error:
        loss = distributed.find_loss(error, state.dist)
        if loss is None:
            raise
        saved = ""
        if loss.timed_out and state.dist.is_main and state.iteration and not args.shard:
            saved = f"; {save(state, args, epoch_complete=False, alone=True)}"
        raise DataError(f"{loss.message}{saved}") from None


def update_best_checkpoint(
    state: TrainState, measures: Mapping[str, float], args: argparse.Namespace, log: Log
) -> bool:
    """Save the weights if they are the best so far by --best-by. Returns False where early stopping ends the run.

    `measures` without --best-by change nothing.
    """
    if args.best_by not in measures:
        return True
    if state.best.by != args.best_by:  # values of different measures do not compare
        state.best = Best(by=args.best_by)
    value, loss = BEST_BY[args.best_by] * measures[args.best_by], measures.get("loss", math.inf)
    better = update_best(state, value, loss, math.inf if args.best_slack is None else args.best_slack)
    if better and not args.bench_class.startswith("perf"):
        snapshot.save_best(state, args)
    return may_continue(state, args, log)


def may_continue(state: TrainState, args: argparse.Namespace, log: Log) -> bool:
    """Return False, and log the reason, after --early-stop-patience validations without a better one."""
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
