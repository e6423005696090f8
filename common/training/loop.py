"""The training loop that every model shares: a step, steps that are skipped, an epoch."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from common import precision
from common.checkpoint.files import best_path
from common.errors import DataError
from common.run import distributed
from common.run.distributed import Dist
from common.run.interrupt import SaveTimer, StopRequest
from common.run.nvlog import PLACE, Log
from common.spec import ModelBatch
from common.training import sharding
from common.training.optimization import clip_gradients, set_rate, train_mode
from common.training.sampler import sampler_of, steps
from common.training.state import StepResult, TrainState

SMALLEST_SCALE = 1e-3  # loss scale of float16 below which no overflow is plausible; a stable run stays above 1
WARM_UP = 10  # first iterations, left out of the steady rate


class Ending(Enum):
    """Reason why train_epoch returned."""

    EPOCH = auto()
    STOP = auto()
    SAVE = auto()  # a checkpoint is due in mid-epoch; train_epoch has to be called again
    OVER = auto()  # --max-minutes has ended in mid-epoch
    FAULT = auto()  # the next clips cannot be read: state.fault


class RunTotals:
    """Totals of a run: the figures of its epochs and of its last validation."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.epochs: list[dict[str, float]] = []
        self.validation: dict[str, float] = {}

    def log(self, log: Log, iteration_rates: list[float]) -> None:
        """Record the totals under the empty step."""
        data = {"run_time": time.perf_counter() - self.start, **self.validation}
        if iteration_rates:
            data["train_steady_items_per_sec"] = steady_rate(iteration_rates)
        if self.epochs:
            data["train_loss"] = self.epochs[-1]["train_loss"]
            data["train_items_per_sec"] = statistics.fmean(epoch["train_items_per_sec"] for epoch in self.epochs)
        log.log((), data)


def steady_rate(rates: list[float]) -> float:
    """Return the median rate without the first iterations, which load code, fill caches and start the loader."""
    return statistics.median(rates[WARM_UP:] or rates[len(rates) // 2 :])


def any_process(value: bool, dist: Dist) -> bool:
    """Return True if the value is True on any process; all have to call it."""
    return distributed.all_sum(torch.tensor(float(value), device=dist.device), dist).item() > 0


def to_device(batch: Any, device: torch.device) -> Any:
    """Move the tensors of a NamedTuple batch to the device."""
    moved = (x.to(device, non_blocking=True) if isinstance(x, Tensor) else x for x in batch)
    return type(batch)(*moved)


def train_step(
    state: TrainState, batches: Sequence[ModelBatch], stop: bool = False, save: bool = False, fault: bool = False
) -> StepResult:
    """Run forward and backward on each batch, then one optimizer step with the mean gradient, in which each clip counts the same.

    stop, save and fault are requests of this process; the result combines those of all. Raises DataError if the loss or the
    gradient is not finite and --max-skipped steps have been skipped already.
    """
    buffers = copy_statistics(state)
    set_rate(state.optimizer, state.learning_rate)
    parts = [_accumulate(state, batch, batch is batches[-1]) for batch in batches]
    terms = {name: torch.stack([part[name] for part in parts]).sum() for name in parts[0]}
    loss = torch.stack(list(terms.values())).sum()
    state.scaler.unscale_(state.optimizer)
    grad_norm = clip_gradients(state.model, state.setup.options.optimization.grad_clip_thresh)
    result = _reduce(state, loss, terms, grad_norm, batches, (stop, save, fault))
    if dropped := skip_if_bad(state, result, loss, batches, buffers):
        state.progress.iteration += 1
        return result._replace(dropped=dropped)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.optimizer.zero_grad()
    if state.average is not None and math.isfinite(result.grad_norm):
        state.average.update_parameters(state.model)
    state.progress.iteration += 1
    return result


def _accumulate(state: TrainState, batch: ModelBatch, last: bool) -> dict[str, Tensor]:
    """Add a batch's share of the gradient, and return its share of the loss's terms; the process's mean is their sum.

    Only the last batch averages gradients over all processes, with equal weights, although their clips may differ by one.
    """
    parts = state.setup.pace.global_batch / (len(batch.names) * state.setup.dist.world_size)
    with nullcontext() if last else sharding.accumulate_only(state.trained):
        with precision.autocast(state.setup.dist.device, state.setup.half):
            outputs = state.trained(*batch.inputs)
            terms = state.setup.criterion.terms(outputs, batch.targets, state.progress.iteration)
        loss = torch.stack(list(terms.values())).sum()
        state.scaler.scale(loss / parts).backward()
    return {name: term.detach() / parts for name, term in terms.items()}


def _reduce(
    state: TrainState,
    loss: Tensor,
    terms: Mapping[str, Tensor],
    grad_norm: Tensor,
    batches: Sequence[ModelBatch],
    requests: tuple[bool, bool, bool],
) -> StepResult:
    """Reduce the figures of a step over all processes, with one all-reduce and one host sync."""
    device = state.setup.dist.device
    means = torch.stack([loss, grad_norm.detach().to(device), *terms.values()]).float()
    items = torch.stack([batch.num_items.to(device) for batch in batches]).sum()
    # Filled on the device: copying numbers to a GPU would wait for it once more.
    counts = [torch.full((1,), float(request), device=device) for request in requests]
    values = torch.cat((means / state.setup.dist.world_size, items[None].float(), *counts))
    total: list[float] = distributed.all_sum(values, state.setup.dist).tolist()  # host sync, once a step
    *numbers, item_sum, stops, saves, faults = total
    named = dict(zip(terms, numbers[2:], strict=True))
    return StepResult(numbers[0], named, numbers[1], item_sum, stops > 0, saves > 0, faults > 0)


def copy_statistics(state: TrainState) -> list[Tensor]:
    """Copy the statistics that a forward changes, if steps may be skipped."""
    return [buffer.clone() for buffer in state.model.buffers()] if state.setup.options.skipping.max_skipped else []


def skip_if_bad(
    state: TrainState, result: StepResult, loss: Tensor, batches: Sequence[ModelBatch], statistics: Sequence[Tensor]
) -> str:
    """Undo a bad step and return a sentence about it; return "" after a good one. Every process has to call it.

    A skipped step changes no weights, no averages and no statistics of BatchNorm.

    Args:
        state: the state before the optimizer's step.
        result: the step's figures, the same on every process.
        loss: of this process.
        batches: of this process.
        statistics: the result of copy_statistics before the step.

    Raises:
        DataError: --max-skipped steps of the epoch have been skipped already.
    """
    fault = _find_fault(state, result)
    if not fault:
        return ""
    clips = ", ".join(_names(state, result, loss, batches))
    progress = state.progress
    where = f"epoch {progress.epoch}, iteration {progress.totals.iterations} (step {progress.iteration} in all)"
    described = f"the {fault} at {where}; the batch's files: {clips}"
    most, done = state.setup.options.skipping.max_skipped, progress.totals.dropped
    if done >= most:
        others = f", after {done} skipped steps of this epoch (--max-skipped {most})" if most else ""
        raise DataError(
            f"training stopped{others}: {described}; look at these clips, or lower --learning-rate or --grad-clip-thresh and "
            "go on with --resume-from-last"
        )
    with torch.no_grad():
        for buffer, before in zip(state.model.buffers(), statistics, strict=True):
            buffer.copy_(before)
    if state.scaler.is_enabled():
        state.scaler.update()  # drops this step's gradients
    state.optimizer.zero_grad()
    return f"step skipped, {done + 1} of at most {most} in an epoch: {described}"


def _find_fault(state: TrainState, result: StepResult) -> str:
    if fault := _fault_of_loss(state, result.loss):
        return fault
    if math.isfinite(result.grad_norm):
        return ""
    # The scaler skips a step that overflows and lowers its scale. At a tiny scale no gradient overflows: it really is NaN.
    may_overflow = state.scaler.is_enabled() and state.scaler.get_scale() > SMALLEST_SCALE
    return "" if may_overflow else f"gradient norm is {result.grad_norm}"


def _fault_of_loss(state: TrainState, loss: float) -> str:
    most = state.setup.options.skipping.max_loss
    if not math.isfinite(loss):
        return f"loss is {loss}"
    return f"loss is {loss:.6g}, above --max-loss {most:g}," if most is not None and loss > most else ""


def _names(state: TrainState, result: StepResult, loss: Tensor, batches: Sequence[ModelBatch]) -> list[str]:
    """List the clips of the processes with a bad loss, or of all processes if only the gradient is bad."""
    at_fault = _fault_of_loss(state, loss.item()) or not _fault_of_loss(state, result.loss)
    names = [name for batch in batches for name in batch.names] if at_fault else []
    return [name for of_process in distributed.gather(names, state.setup.dist) for name in of_process]


def train_epoch(
    state: TrainState, loader: DataLoader, log: Log, stop: StopRequest, timer: SaveTimer | None = None
) -> Ending:
    """Train on the remaining batches of the current epoch, or until a stop or a save is due."""
    ending = _train_batches(state, loader, log, stop, timer)
    for model in (state.model, state.eval_weights):
        sharding.share_buffers(model)
    if ending is Ending.EPOCH:
        _check_steps(state)
    return ending


def _check_steps(state: TrainState) -> None:
    """Raise DataError after an epoch whose steps were all skipped: the next one would begin with the same weights."""
    totals = state.progress.totals
    if totals.dropped and totals.dropped + totals.skipped >= totals.iterations:
        steps = "its only step was" if totals.iterations == 1 else f"all of its {totals.iterations} steps were"
        raise DataError(
            f"training stopped: epoch {state.progress.epoch} changed no weight, since {steps} skipped "
            f"(--max-skipped {state.setup.options.skipping.max_skipped}); look at the clips named above, or {way_back(state)}"
        )


def way_back(state: TrainState) -> str:
    """Return advice for a run that has diverged."""
    best, saved = state.progress.best, state.progress.saved
    again = f"go on after epoch {saved[-1]} with --resume-from-last" if saved else "begin again"
    path = best_path(state.setup.options.run.output, state.setup.spec.name)
    other = f", or start from the best weights so far with --warm-start {path}" if best.epoch >= 0 else ""
    return f"lower --learning-rate or --grad-clip-thresh and {again}{other}"


def _train_batches(
    state: TrainState, loader: DataLoader, log: Log, stop: StopRequest, timer: SaveTimer | None
) -> Ending:
    sampler = sampler_of(loader)
    sampler.start_at(state.progress.epoch, state.progress.totals.clips)
    train_mode(state.trained)
    state.setup.criterion.train()
    left = len(sampler) // sampler.accumulation
    clock = time.perf_counter()
    checked = False
    for batches, waited, fault in log.progress(
        steps(loader, sampler.accumulation), f"epoch {state.progress.epoch}", total=left
    ):
        if not checked and any_process(not batches, state.setup.dist):
            return _fail(state, fault)
        checked = True
        if state.threads and (line := state.threads.adjust()):
            log.say(line)
        moved = [to_device(batch, state.setup.dist.device) for batch in batches]
        result = train_step(state, moved, stop.is_requested, timer is not None and timer.due, fault is not None)
        if result.dropped:
            log.say(result.dropped)
        now = time.perf_counter()
        seconds = now - clock
        clock = now
        state.rates.append(result.items / seconds)
        _log_iteration(state, result, seconds, sampler.batches_per_epoch(), log)
        _show_iteration(state, result, waited / seconds, log)
        state.progress.totals.add(sampler.global_size, result, seconds, waited)
        left -= 1
        if result.fault:
            return _fail(state, fault)
        if left and (result.stop or result.save):
            return Ending.STOP if result.stop else Ending.SAVE
    return Ending.EPOCH


def _fail(state: TrainState, fault: DataError | None) -> Ending:
    state.fault = fault or fault_elsewhere()
    return Ending.FAULT


def fault_elsewhere() -> DataError:
    """Return the error for a process that could read its clips when another process could not."""
    return DataError("another process of this run cannot read a clip, for the reason it gave")


def _log_iteration(state: TrainState, result: StepResult, seconds: float, per_epoch: int, log: Log) -> None:
    rate = result.items / seconds
    data: dict[str, float | str] = {
        PLACE: f"{state.progress.iteration - 1}/{per_epoch}",
        "train_loss": result.loss,
        "train_items_per_sec": rate,
        "train_iter_items/sec": rate,
        "train_iter_time": seconds,
    }
    log.log((state.progress.epoch, state.progress.totals.iterations), data)


def _show_iteration(state: TrainState, result: StepResult, wait_share: float, log: Log) -> None:
    shown = {
        "loss": result.loss,
        "items_per_sec": state.rates[-1],
        "grad_norm": result.grad_norm,
        "learning_rate": state.optimizer.param_groups[0]["lr"] / state.optimizer.param_groups[0]["lr_scale"],
        "data_wait_share": wait_share,
    }
    if state.scaler.is_enabled():
        shown["loss_scale"] = state.scaler.get_scale()  # host sync; the step has synchronised already
    peak = precision.peak_memory(state.setup.dist.device)
    if peak is not None:
        shown["gpu_memory_gb"] = peak / 1e9
    log.scalars(
        "train", shown | {f"loss_{name}": value for name, value in result.terms.items()}, state.progress.iteration
    )


def log_epoch(state: TrainState, log: Log, time_left: float) -> dict[str, float]:
    """Log the epoch's means and the seconds that the rest of the run may take; return the means."""
    totals = state.progress.totals
    data: dict[str, float] = {
        "train_loss": totals.mean_loss,
        "train_items_per_sec": totals.items / totals.seconds,
        "train_epoch_items/sec": totals.items / totals.seconds,
        "train_epoch_time": totals.seconds,
        "train_data_wait_share": totals.waited / totals.seconds,
        "time_left": time_left,
        "planned_epochs": float(state.progress.plan.last),
    }
    if state.scaler.is_enabled() or state.setup.options.skipping.max_skipped:
        data["train_skipped_steps"] = totals.skipped + totals.dropped
    log.log((state.progress.epoch,), data)
    return data
