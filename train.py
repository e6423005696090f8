"""Train a model: python train.py -m MODEL … on one GPU or the CPU, python -m multiproc train.py -m MODEL … on every GPU.

Writes checkpoints, nvlog.json and TensorBoard files to --output. `python train.py -h` lists the flags that all models share, and
`python train.py -m MODEL -h` those of a model too.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from common import __version__, precision
from common.arguments import log_path
from common.audio.stft import TacotronSTFT
from common.checkpoint.files import best_path
from common.checkpoint.weights import build_model
from common.errors import DataError, exit_on_user_error
from common.progress import counted, duration
from common.run import distributed
from common.run.distributed import Dist
from common.run.interrupt import SaveTimer, Stopped, StopRequest
from common.run.memory import explain_out_of_memory
from common.run.nvlog import Log, NvLog
from common.run.run_folder import occupy, prepare_log, refuse_checkpoints
from common.spec import ModelSpec
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.differences import resumed_otherwise, shared_clips
from common.training.fine_tuning import warm_start
from common.training.forecast import describe_plan, measure_run, memory_advice, write_figures
from common.training.loader import end_workers
from common.training.loop import Ending, RunTotals, any_process, log_epoch, train_epoch, way_back
from common.training.optimization import Pace, batch_factor, freeze
from common.training.options import BEST_BY, TrainOptions, small_step_note
from common.training.rate_test import find_rate
from common.training.state import Best, EpochTotals, TrainState, build_state
from common.training.validation import check_loss, update_best, validate
from compat.train import adjust_learning_rate, evaluating, get_last_checkpoint_filename, reduce_tensor, refuse  # noqa: F401
from data_functions import get_loaders
from models import REGISTRY, init_bn

if TYPE_CHECKING:
    from common.training.checkup import Checkup


__getattr__ = refuse  # for names that the published train.py has


def main(argv: list[str] | None = None) -> int:
    """Parse the flags, join the process group and train to --epochs. Returns the exit code."""
    options, spec = parse_training_arguments(sys.argv[1:] if argv is None else argv, REGISTRY, __doc__ or "")
    timeout = timedelta(minutes=options.scale.timeout_minutes)
    with (
        distributed.session(options.run.cpu, options.scale.shard, timeout) as dist,
        precision.deterministic(options.precision.deterministic),
        StopRequest(last=argv is None) as stop,
        # of several processes the main one locks --output for all; a dry run writes nothing there
        occupy(options.run.output, options.model_name) if dist.is_main and not options.run.dry_run else nullcontext(),
    ):
        try:
            finished = run(options, spec, dist, stop)
        finally:
            end_workers()
    return 0 if finished else stop.exit_code


def run(options: TrainOptions, spec: ModelSpec, dist: Dist, stop: StopRequest) -> bool:
    """Build or restore the state and train. Returns False if a signal ended the run early, after a save."""
    config, numbers = options.run, options.precision
    precision.configure(numbers.cudnn_enabled, numbers.cudnn_benchmark, not numbers.no_tf32)
    precision.keep_freed_memory(dist.device)
    threads = precision.balance_threads(dist.device, numbers.deterministic)
    start = snapshot.find(options, spec, dist)
    seed = snapshot.choose_seed(config.seed, start.checkpoint, dist)
    resumes_here = start.path is not None and start.path.parent.resolve() == config.output.resolve()
    writes = not (config.dry_run or config.find_lr or config.is_benchmark)
    if dist.is_main and writes and not resumes_here:
        refuse_checkpoints(config.output, spec.name, options.checkpoints.resume_from_last)
    options = replace(options, run=replace(config, seed=seed))
    precision.seed_everything(seed + dist.rank)
    loaders = get_loaders(spec, options, dist, stop)
    state, start_note = make_state(spec, options, dist, loaders.pace, warm=start.path is None)
    state.loaders, state.threads = loaders, threads
    notes = shared_clips(state)
    if start.path:
        start_note = snapshot.restore(state, start.checkpoint, start.path)
        notes += resumed_otherwise(state, start.checkpoint)
        if not resumes_here:
            state.progress.saved = []  # the checkpoints of that run are in another folder
    del start  # frees a copy of all weights and averages
    described = [*describe(state, start_note), *notes]
    with explain_out_of_memory(lambda: memory_advice(state)):
        if config.dry_run or config.find_lr:
            return try_out(state, described, stop)
        with open_log(options, dist, state.progress.iteration if resumes_here else 0) as log, save_on_timeout(state):
            log.parameters({"version": __version__} | options.flat)
            for sentence in described:
                log.say(sentence)
            return fit(state, log, stop)


def try_out(state: TrainState, described: list[str], stop: StopRequest) -> bool:
    """Measure the plan of a run, its speed, or the effect of learning rates. Returns False if a signal ended that, unwritten."""
    config, is_main = state.setup.options.run, state.setup.dist.is_main
    with suppress(Stopped), stop.at_once():
        if config.measure:
            figures = measure_run(state, checkup_of(state))
            if is_main:
                write_figures(config.measure, figures)
            return True
        lines = [find_rate(state)] if config.find_lr else [*described, *describe_plan(state)]
        if is_main:
            print("\n".join(lines))
        return True
    return False


def checkup_of(state: TrainState) -> Checkup | None:
    """Build the evaluation that follows some validations, if --evaluate-every asks for one."""
    options = state.setup.options
    if not options.evaluation.evaluate_every:
        return None
    from common.training.checkup import Checkup  # loads all of synthesis

    return Checkup(options.evaluation, options.data, options.audio, state.setup.dist.is_main)


def make_state(
    spec: ModelSpec, options: TrainOptions, dist: Dist, pace: Pace, warm: bool = True
) -> tuple[TrainState, str]:
    """Build the model with initial weights, random or from --warm-start, its criterion and optimizer.

    Returns the state and a phrase that describes the weights.
    """
    start, settings = options.start, options.model
    model = build_model(spec, spec.config_from_options(settings))
    if not start.disable_uniform_initialize_bn_weight:
        init_bn(model)
    start_note = "starting at epoch 0"
    if warm and start.warm_start:
        start_note = warm_start(model, spec, start.warm_start, settings, start.ignore_layers)
    freeze(model, start.freeze)
    spec.prepare_training(model, settings)
    return build_state(spec, model, spec.make_loss(settings), options, dist, pace), start_note


def open_log(options: TrainOptions, dist: Dist, steps_done: int) -> Log:
    """Open the run's log on the main process and a silent Log elsewhere; steps_done is 0 unless the run resumes in --output."""
    if not dist.is_main:
        return Log()
    output, name = options.run.output, options.model_name
    path, tensorboard = log_path(output, options.run.log_file), output / "tensorboard" / name
    renames = prepare_log(path, tensorboard, name, steps_done)
    log = NvLog(path, tensorboard, purge_step=steps_done + 1 if steps_done else None)
    if renames:
        log.say(renames)
    return log


def describe(state: TrainState, start_note: str) -> list[str]:
    """List lines that describe the run: the model, its data, its initial weights, and unusual settings."""
    setup, options, dist = state.setup, state.setup.options, state.setup.dist
    weights = list(state.model.parameters())
    total, trained = sum(w.numel() for w in weights), sum(w.numel() for w in weights if w.requires_grad)
    frozen = f", {trained:,} of them trained," if trained < total else ""
    both = (state.loaders.training, state.loaders.validation)
    clips, held_out = (len(loader.dataset) for loader in both)  # type: ignore[arg-type]
    lines = [
        f"{setup.spec.name}: {total:,} parameters{frozen} on {dist.world_size} x {dist.device.type}; "
        f"{counted(clips, 'clip')} for training, {held_out:,} for validation; {start_note}"
    ]
    if state.note:
        lines.append(state.note)
    lines += dict.fromkeys(loader.note for loader in both if loader.note)
    if note := small_step_note(setup.pace.global_batch, dist.world_size, options.data):
        lines.append(f"a step takes {note}")
    factor = batch_factor(options.optimization, setup.pace)
    if factor != 1:
        lines.append(
            f"--lr-scaling {options.optimization.lr_scaling}: learning rates times {factor:.3g} for batches of "
            f"{setup.pace.global_batch} in place of {setup.pace.usual_batch}, {state.learning_rate:.3g} now"
        )
    if options.precision.amp and (note := precision.half_note(dist.device, setup.half)):
        lines.append(f"--amp: {note}")
    return lines


def fit(state: TrainState, log: Log, stop: StopRequest) -> bool:
    """Train from the state's epoch to --epochs. Returns False if a signal ended the run early, after a save."""
    options, dist, progress = state.setup.options, state.setup.dist, state.progress
    plan, every = progress.plan, options.run.epochs_per_validation
    epochs = start_plan(state, log)
    if progress.totals.iterations == 0 and not may_continue(state, log):
        return True
    show = dist.is_main and not options.scale.shard  # a sharded model cannot run on rank 0 alone
    stft, checkup = TacotronSTFT.from_config(options.audio) if show else None, checkup_of(state)
    totals = RunTotals()
    timer = SaveTimer(math.inf)
    restart(timer, state)
    for epoch in epochs:
        progress.epoch, steps_before = epoch, progress.iteration
        if (ending := take_steps(state, log, stop, timer)) is Ending.STOP:
            return False
        if ending is Ending.OVER:
            break
        last = end_epoch(state, totals, log, trained=progress.iteration > steps_before)
        if last or epoch % plan.interval(every) == 0:
            totals.validation, measures = judge(state, stft, checkup, last, log, stop)
            if not measures:
                log.say(f"stopped before the end of the validation: {save(state, epoch_complete=False)}")
                return False
            last = not update_best_checkpoint(state, measures, log) or last
        progress.totals, saved = EpochTotals(), ""
        stopping = any_process(stop.is_requested, dist)
        is_due = epoch % plan.interval(options.checkpoints.epochs_per_checkpoint) == 0 and not state.bad_validations
        if last or stopping or is_due:
            saved = save(state, final=last)
            restart(timer, state)
        if stopping and not last:
            log.say(f"stopped: {saved}")
            return False
        plan.end_epoch()
        if last:
            break
    totals.log(log, state.rates)
    return True


def take_steps(state: TrainState, log: Log, stop: StopRequest, timer: SaveTimer) -> Ending:
    """Train to the end of the epoch, with the saves that fall due, or until a stop or the end of --max-minutes, after a save."""
    while (ending := train_epoch(state, state.loaders.training, log, stop, timer)) is not Ending.EPOCH:
        raise_fault(state, log, epoch_complete=False)
        plan = state.progress.plan
        if ending is Ending.SAVE and any_process(plan.over_in <= 0, state.setup.dist):
            log.say(f"--max-minutes {plan.minutes:g} ends before epoch {state.progress.epoch} does")
            ending = Ending.OVER
        log.say(f"{'still' if ending is Ending.SAVE else 'stopped'} in mid-epoch: {save(state, epoch_complete=False)}")
        if ending is not Ending.SAVE:
            break
        restart(timer, state)
    return ending


def restart(timer: SaveTimer, state: TrainState) -> None:
    """Wait for the next save in mid-epoch: by --checkpoint-every-minutes, or at the end of --max-minutes."""
    every = state.setup.options.checkpoints.checkpoint_every_minutes or math.inf
    timer.minutes = min(every, state.progress.plan.over_in)
    timer.restart()


def judge(
    state: TrainState, stft: TacotronSTFT | None, checkup: Checkup | None, last: bool, log: Log, stop: StopRequest
) -> tuple[dict[str, float], dict[str, float]]:
    """Validate after an epoch. Returns the validation's figures, and the measures for --best-by; none after a request to stop."""
    found = validate(state, state.loaders.validation, stft, log, stop)
    raise_fault(state, log, epoch_complete=True)
    if not found:
        return {}, {}
    measures = {"loss": check_loss(state, found["val_loss"], last, log)}
    every = state.progress.plan.interval(state.setup.options.run.epochs_per_validation)
    number = state.progress.epoch // every * state.setup.options.run.epochs_per_validation
    if checkup and checkup.due(number, last):
        evaluated = checkup(state, log, stop)
        measures = evaluated and evaluated | measures
    return found, measures


def start_plan(state: TrainState, log: Log) -> range:
    """Start the clock of --max-minutes. Returns the epochs to train at most; none, said to the user, after the end of the plan."""
    config, done, plan = state.setup.options.run, state.progress.epoch, state.progress.plan
    plan.start(config.max_minutes, config.epochs, config.epochs_per_validation, done)
    if done < plan.last and (plan.over_in > 0 or not state.progress.iteration):
        return range(done, config.epochs)
    raised = (
        f"--max-minutes, now {plan.minutes:g}"
        if plan.last < config.epochs or plan.over_in <= 0
        else f"--epochs, now {config.epochs}"
    )
    log.say(f"nothing left to train: epochs done: {done}; raise {raised}, to go on")
    return range(0)


def end_epoch(state: TrainState, totals: RunTotals, log: Log, trained: bool) -> bool:
    """Log an epoch, with the time left, and fit the others to --max-minutes. Returns True after the last; all processes call it.

    `trained` is False for an epoch whose steps an earlier run took, and which was stopped in its validation.
    """
    progress, plan = state.progress, state.progress.plan
    done = progress.epoch + 1
    if trained:
        plan.end_steps(done, progress.totals.seconds)
    plan.epochs = distributed.broadcast(plan.epochs, state.setup.dist)
    left = plan.time_left(done)
    if left and not totals.epochs:
        log.say(f"about {duration(left)} left; each epoch logs the seconds as time_left")
    totals.epochs.append(log_epoch(state, log, left))
    # With a time limit nobody knows the number of epochs beforehand, so each tenth of the run has a line.
    if plan.minutes and 10 * done // plan.last > 10 * progress.epoch // plan.last:
        loss = totals.epochs[-1]["train_loss"]
        log.say(f"epoch {done} of {plan.last}, loss {loss:.3f}, about {duration(left)} left")
    if done == plan.last < state.setup.options.run.epochs:
        log.say(f"--max-minutes {plan.minutes:g}: epoch {progress.epoch} is the last, as another might not fit")
    return done >= plan.last


def raise_fault(state: TrainState, log: Log, *, epoch_complete: bool) -> None:
    """Save and raise the error of a clip, if there is one; every process has to call it."""
    if state.fault is None:
        return
    if epoch_complete:
        state.progress.totals = EpochTotals()
    if state.progress.iteration:
        log.say(f"the next clips cannot be read: {save(state, epoch_complete)}")
    raise state.fault


def save(state: TrainState, epoch_complete: bool = True, alone: bool = False, final: bool = False) -> str:
    """Write a checkpoint, unless the run only measures speed; the final one also as weights alone, in safetensors.

    `alone` is passed to snapshot.save. Returns a sentence on how to resume from it.
    """
    options = state.setup.options
    if options.run.is_benchmark:
        return f"--bench-class {options.run.bench_class} saves nothing"
    path = snapshot.save(state, epoch_complete, alone)
    if final:
        snapshot.save_final_weights(state)
    resume = "add --resume-from-last to the same command to go on"
    if options.checkpoints.resume_from_last:
        resume = "the same command goes on"
    return f"saved {path}; {resume}"


@contextmanager
def save_on_timeout(state: TrainState) -> Iterator[None]:
    """Save on the main process if another one does not respond. Raises DataError that names it.

    The checkpoint has all finished steps, but no random numbers of other processes. If a process has ended, nothing is saved: the
    run then resumes from the last checkpoint, bit for bit.
    """
    try:
        yield
    except RuntimeError as error:
        dist, shard = state.setup.dist, state.setup.options.scale.shard
        loss = distributed.find_loss(error, dist)
        if loss is None:
            raise
        saved = ""
        if loss.timed_out and dist.is_main and state.progress.iteration and not shard:
            saved = f"; {save(state, epoch_complete=False, alone=True)}"
        raise DataError(f"{loss.message}{saved}") from None


def update_best_checkpoint(state: TrainState, measures: Mapping[str, float], log: Log) -> bool:
    """Save the weights if they are the best so far by --best-by. Returns False if early stopping ends the run.

    Does nothing if `measures` lack that measure.
    """
    options = state.setup.options
    by, slack = options.evaluation.best_by, options.evaluation.best_slack
    if by not in measures:
        return True
    if state.progress.best.by != by:  # values of different measures do not compare
        state.progress.best = Best(by=by)
    value, loss = BEST_BY[by] * measures[by], measures.get("loss", math.inf)
    if math.isnan(value) and by != "loss":  # that of the loss is said already
        log.say(f"--best-by {by}: no number after epoch {state.progress.epoch}, so its weights cannot be the best")
    better = update_best(state.progress, value, loss, math.inf if slack is None else slack)
    if better and not options.run.is_benchmark:
        snapshot.save_best(state)
    return may_continue(state, log)


def may_continue(state: TrainState, log: Log) -> bool:
    """Return False, and log the reason, after --early-stop-patience validations without a better one.

    Raises DataError if none of them gave a number, since there are no best weights then.
    """
    config, by, best = state.setup.options.run, state.setup.options.evaluation.best_by, state.progress.best
    if config.early_stop_patience is None or best.since < config.early_stop_patience:
        return True
    if best.epoch < 0:
        raise DataError(
            f"--early-stop-patience {config.early_stop_patience}: no validation {by} was a number, so there are no best weights; "
            f"raise it, choose another --best-by, or {way_back(state)}"
        )
    log.say(
        f"--early-stop-patience {config.early_stop_patience}: no better validation {by} than "
        f"{BEST_BY[by] * best.loss:.4g} since epoch {best.epoch}, whose weights are in "
        f"{best_path(config.output, state.setup.spec.name)}"
    )
    return False


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
