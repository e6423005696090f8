"""The training loop that every model shares: state, one step, an epoch."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from common import precision
from common.errors import DataError, UsageError
from common.fast import Request, accelerate
from common.options import from_options
from common.run import distributed
from common.run.distributed import Dist
from common.run.interrupt import SaveTimer, StopRequest
from common.run.nvlog import Log
from common.spec import Batch, Criterion, ModelSpec, Options
from common.threads import ThreadBalance
from common.training import sharding
from common.training.bad_steps import SkipConfig, copy_statistics, skip_if_bad
from common.training.optimization import (
    OptimizationConfig,
    Pace,
    clip_gradients,
    make_optimizer,
    moving_average,
    rate_at,
    set_rate,
)
from common.training.sampler import sampler_of
from common.training.selection import train_mode
from common.training.steps import steps

WARM_UP = 10  # first iterations, left out of the steady rate


@dataclass(frozen=True, kw_only=True)
class ScaleConfig:
    """Options of distributed training and mixed precision, and the defaults of their flags."""

    shard: bool = False
    cpu_offload: bool = False
    bucket_cap_mb: float | None = None
    grad_compression: str = "none"
    timeout_minutes: float = distributed.TIMEOUT / timedelta(minutes=1)
    amp_dtype: str | None = None


@dataclass
class EpochTotals:
    """Sums over the iterations of an epoch so far; a checkpoint in mid-epoch stores them."""

    iterations: int = 0
    clips: int = 0  # position in the epoch's order of clips
    loss: float = 0.0
    items: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0  # the part of the seconds in which the step waited for its batch
    skipped: int = 0  # iterations whose gradient overflowed float16
    dropped: int = 0  # iterations of --max-skipped, left out of the sum of losses

    def add(self, clips: int, result: StepResult, seconds: float, waited: float) -> None:
        """Count one more iteration."""
        self.iterations += 1
        self.clips += clips
        self.loss += 0.0 if result.dropped else result.loss
        self.items += result.items
        self.seconds += seconds
        self.waited += waited
        self.dropped += bool(result.dropped)
        self.skipped += not (result.dropped or math.isfinite(result.grad_norm))

    @property
    def mean_loss(self) -> float:
        """Mean over the iterations that were not dropped; NaN without any."""
        taken = self.iterations - self.dropped
        return self.loss / taken if taken else math.nan


class Best(NamedTuple):
    """The lowest validation loss so far, its epoch, and the number of validations since then.

    With --best-by, the measure `by` replaces the loss, negated where higher is better.
    """

    loss: float = math.inf
    epoch: int = -1
    since: int = 0
    by: str = "loss"
    tie: float = math.inf  # the validation loss, which decides between equal values of a measure
    lowest_loss: float = math.inf  # of all validations, where `by` is a measure


@dataclass
class TrainState:
    """State of a training run: models, optimizer, scaler, counters and totals."""

    spec: ModelSpec
    model: nn.Module  # the plain model, stored in checkpoints
    trained: nn.Module  # a fast way with the same parameters; wrapped in DistributedDataParallel on several processes
    eval_model: nn.Module  # for validation: a fast way with the weights of the average, or else of the model
    average: AveragedModel | None  # of the model's weights over time
    criterion: Criterion
    optimizer: torch.optim.Optimizer
    optimization: OptimizationConfig
    pace: Pace
    scaler: torch.amp.GradScaler
    dist: Dist
    half: torch.dtype | None  # dtype of mixed precision; None: float32
    skipping: SkipConfig = field(default_factory=SkipConfig)
    threads: ThreadBalance | None = None  # adapts CPU threads to the load between steps
    epoch: int = 0
    iteration: int = 0  # optimizer steps since the start
    totals: EpochTotals = field(default_factory=EpochTotals)
    rates: list[float] = field(default_factory=list)  # items a second of each iteration of this run
    best: Best = field(default_factory=Best)
    saved: list[int] = field(default_factory=list)  # epochs whose checkpoints are in --output, by this run
    fault: DataError | None = None  # of a clip of this process or of another one: the run saves and ends

    @property
    def progress(self) -> float:
        """Number of epochs done, with the fraction of the current one."""
        return self.epoch + self.totals.clips / (self.pace.steps_per_epoch * self.pace.global_batch)

    @property
    def eval_weights(self) -> nn.Module:
        """The plain model whose weights validation and inference use: the average, or else the model."""
        return self.model if self.average is None else self.average.module


class Ending(Enum):
    """Reason why train_epoch returned."""

    EPOCH = auto()
    STOP = auto()
    SAVE = auto()  # a checkpoint is due in mid-epoch; train_epoch has to be called again
    FAULT = auto()  # the next clips cannot be read: state.fault


class StepResult(NamedTuple):
    """Means over all processes of the loss, its terms by name, and the gradient's norm before clipping; the sum of items.

    stop, save and fault are True if any process requested it; dropped is a sentence about a step that was skipped.
    """

    loss: float
    terms: dict[str, float]
    grad_norm: float
    items: float
    stop: bool
    save: bool
    fault: bool
    dropped: str = ""


class RunTotals:
    """Totals of a run."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.rates: list[float] = []
        self.last_epoch: dict[str, float] = {}
        self.validation: dict[str, float] = {}

    def add(self, epoch: dict[str, float]) -> None:
        """Count one more epoch."""
        self.rates.append(epoch["train_items_per_sec"])
        self.last_epoch = epoch

    def log(self, log: Log, iteration_rates: list[float]) -> None:
        """Record the totals under the empty step."""
        data = {"run_time": time.perf_counter() - self.start, **self.validation}
        if iteration_rates:
            data["train_steady_items_per_sec"] = steady_rate(iteration_rates)
        if self.rates:
            data["train_loss"] = self.last_epoch["train_loss"]
            data["train_items_per_sec"] = sum(self.rates) / len(self.rates)
        log.log((), data)


def steady_rate(rates: list[float]) -> float:
    """Return the median rate without the first iterations, which load code, fill caches and start the loader."""
    return statistics.median(rates[WARM_UP:] or rates[len(rates) // 2 :])


def is_stop_requested(stop: StopRequest, dist: Dist) -> bool:
    """Return True if any process has received a stop signal."""
    return any_process(stop.is_requested, dist)


def any_process(value: bool, dist: Dist) -> bool:
    """Return True if the value is True on any process; all have to call it."""
    return distributed.all_sum(torch.tensor(float(value), device=dist.device), dist).item() > 0


def build_state(
    spec: ModelSpec, model: nn.Module, criterion: Criterion, args: argparse.Namespace, dist: Dist, pace: Pace
) -> TrainState:
    """Build the state at the start of training, on this process's device.

    `model` is the plain model with its initial weights, after freezing. Raises UsageError for flags that exclude each other.
    """
    scale = from_options(ScaleConfig, vars(args))
    optimization = from_options(OptimizationConfig, vars(args))
    half = _half_dtype(scale, args.amp, dist.device)
    on_device = model if scale.cpu_offload else model.to(dist.device)
    average = moving_average(on_device, optimization.ema_decay)
    fast = accelerate_training(spec, on_device, half, vars(args))
    eval_model = fast if average is None else accelerate_training(spec, average.module, half, vars(args))
    trained = fast
    if scale.shard:
        for sharded in dict.fromkeys((fast, eval_model)):
            sharding.shard(sharded, dist, scale.cpu_offload)
    else:
        trained = distributed.wrap(fast, dist, bucket_cap_mb=scale.bucket_cap_mb, compression=scale.grad_compression)
    return TrainState(
        spec=spec,
        model=on_device,
        trained=trained,
        eval_model=eval_model,
        average=average,
        criterion=criterion.to(dist.device),
        optimizer=make_optimizer(on_device, optimization),
        optimization=optimization,
        pace=pace,
        scaler=precision.grad_scaler(dist.device, half),
        dist=dist,
        half=half,
        skipping=from_options(SkipConfig, vars(args)),
    )


def _half_dtype(scale: ScaleConfig, amp: bool, device: torch.device) -> torch.dtype | None:
    """Return the dtype of mixed precision, None for float32. Raises UsageError for PowerSGD with float16."""
    half = precision.half_dtype(device, amp, scale.amp_dtype)
    if scale.shard and half == torch.float16:
        return torch.bfloat16  # PyTorch's loss scaling does not support sharded gradients
    if scale.grad_compression == "powersgd" and half == torch.float16:
        raise UsageError(
            "--grad-compression powersgd: feeds its error back, and the first float16 gradient that overflows would stay "
            "in it for good: add --amp-dtype bfloat16, or take fp16"
        )
    return half


def accelerate_training(spec: ModelSpec, model: nn.Module, half: torch.dtype | None, options: Options) -> nn.Module:
    """Return the fast way to train a plain model that the options select, or with --plain the model itself.

    Raises UsageError for two of --plain, --compile, --recompute and --graphs.
    """
    named = [name for name in ("plain", "compile", "recompute", "graphs") if options.get(name)]
    if len(named) > 1:
        flags = " and ".join(f"--{name}" for name in named)
        raise UsageError(f"{flags}: each chooses another way to compute a step; leave all but one of them out")
    ways = () if "plain" in named else spec.fast_ways
    request = Request(half is not None, **{name: options[name] for name in named if name != "plain"})
    return accelerate(model, ways, "training", request)


def to_device(batch: Any, device: torch.device) -> Any:
    """Move the tensors of a NamedTuple batch to the device."""
    moved = (x.to(device, non_blocking=True) if isinstance(x, Tensor) else x for x in batch)
    return type(batch)(*moved)


def train_step(
    state: TrainState, batches: Sequence[Batch], stop: bool = False, save: bool = False, fault: bool = False
) -> StepResult:
    """Run forward and backward on each batch, then one optimizer step with the mean gradient.

    stop, save and fault are requests of this process; the result has those of all. Raises DataError where the loss or the gradient
    is not finite, beyond --max-skipped.
    """
    buffers = copy_statistics(state)
    set_rate(state.optimizer, rate_at(state.optimization, state.pace, state.progress, state.iteration))
    parts = [_accumulate(state, batch, len(batches), batch is batches[-1]) for batch in batches]
    terms = {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}
    loss = torch.stack(list(terms.values())).sum()
    state.scaler.unscale_(state.optimizer)
    grad_norm = clip_gradients(state.model, state.optimization.grad_clip_thresh)
    result = _reduce(state, loss, terms, grad_norm, batches, (stop, save, fault))
    if dropped := skip_if_bad(state, result, loss, batches, buffers):
        state.iteration += 1
        return result._replace(dropped=dropped)
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.optimizer.zero_grad()
    if state.average is not None and math.isfinite(result.grad_norm):
        state.average.update_parameters(state.model)
    state.iteration += 1
    return result


def _accumulate(state: TrainState, batch: Batch, batches: int, last: bool) -> dict[str, Tensor]:
    """Add a batch's gradient and return the loss's terms. Only the last batch averages gradients over all processes."""
    with nullcontext() if last else sharding.accumulate_only(state.trained):
        with precision.autocast(state.dist.device, state.half):
            outputs = state.trained(*batch.inputs)
            terms = state.criterion.terms(outputs, batch.targets, state.iteration)
        loss = torch.stack(list(terms.values())).sum()
        state.scaler.scale(loss / batches).backward()
    return {name: term.detach() for name, term in terms.items()}


def _reduce(
    state: TrainState,
    loss: Tensor,
    terms: Mapping[str, Tensor],
    grad_norm: Tensor,
    batches: Sequence[Batch],
    requests: tuple[bool, bool, bool],
) -> StepResult:
    """Reduce the figures of a step over all processes, with one all-reduce and one host sync."""
    device = state.dist.device
    means = torch.stack([loss, grad_norm.detach().to(device), *terms.values()]).float()
    items = torch.stack([batch.num_items.to(device) for batch in batches]).sum()
    # Filled there: a copy of numbers to a GPU would be one more wait for it.
    counts = [torch.full((1,), float(request), device=device) for request in requests]
    values = torch.cat((means / state.dist.world_size, items[None].float(), *counts))
    total: list[float] = distributed.all_sum(values, state.dist).tolist()  # host sync, once a step
    *numbers, item_sum, stops, saves, faults = total
    named = dict(zip(terms, numbers[2:], strict=True))
    return StepResult(numbers[0], named, numbers[1], item_sum, stops > 0, saves > 0, faults > 0)


def train_epoch(
    state: TrainState, loader: DataLoader, log: Log, stop: StopRequest, timer: SaveTimer | None = None
) -> Ending:
    """Train on the remaining batches of the current epoch, or until a stop or a save is due."""
    ending = _train_batches(state, loader, log, stop, timer)
    for model in (state.model, state.eval_weights):
        sharding.share_buffers(model)
    return ending


def _train_batches(
    state: TrainState, loader: DataLoader, log: Log, stop: StopRequest, timer: SaveTimer | None
) -> Ending:
    sampler = sampler_of(loader)
    sampler.start_at(state.epoch, state.totals.clips)
    train_mode(state.trained)
    state.criterion.train()
    left = len(sampler) // sampler.accumulation
    clock = time.perf_counter()
    checked = False
    for batches, waited, fault in log.progress(steps(loader, sampler.accumulation), f"epoch {state.epoch}", total=left):
        if not checked and any_process(not batches, state.dist):
            return _fail(state, fault)
        checked = True
        if state.threads and (line := state.threads.adjust()):
            log.say(line)
        moved = [to_device(batch, state.dist.device) for batch in batches]
        result = train_step(state, moved, stop.is_requested, timer is not None and timer.due, fault is not None)
        if result.dropped:
            log.say(result.dropped)
        seconds, clock = time.perf_counter() - clock, time.perf_counter()
        state.rates.append(result.items / seconds)
        _log_iteration(state, result, seconds, sampler.batches_per_epoch(), log)
        _show_iteration(state, result, waited / seconds, log)
        state.totals.add(sampler.global_size, result, seconds, waited)
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
    """Return the error of a process whose clips are good, where those of another are not."""
    return DataError("another process of this run cannot read a clip, for the reason it gave")


def _log_iteration(state: TrainState, result: StepResult, seconds: float, per_epoch: int, log: Log) -> None:
    rate = result.items / seconds
    data: dict[str, float | str] = {
        "glob_iter/iters_per_epoch": f"{state.iteration - 1}/{per_epoch}",
        "train_loss": result.loss,
        "train_items_per_sec": rate,
        "train_iter_items/sec": rate,
        "train_iter_time": seconds,
    }
    log.log((state.epoch, state.totals.iterations), data)


def _show_iteration(state: TrainState, result: StepResult, wait_share: float, log: Log) -> None:
    """Write a step's curves to TensorBoard."""
    shown = {
        "loss": result.loss,
        "items_per_sec": state.rates[-1],
        "grad_norm": result.grad_norm,
        "learning_rate": state.optimizer.param_groups[0]["lr"] / state.optimizer.param_groups[0]["lr_scale"],
        "data_wait_share": wait_share,
    }
    if state.scaler.is_enabled():
        shown["loss_scale"] = state.scaler.get_scale()  # host sync; the step has synchronised already
    peak = precision.peak_memory(state.dist.device)
    if peak is not None:
        shown["gpu_memory_gb"] = peak / 1e9
    log.scalars("train", shown | {f"loss_{name}": value for name, value in result.terms.items()}, state.iteration)


def log_epoch(state: TrainState, log: Log) -> dict[str, float]:
    """Log and return the epoch's means."""
    totals = state.totals
    data: dict[str, float] = {
        "train_loss": totals.mean_loss,
        "train_items_per_sec": totals.items / totals.seconds,
        "train_epoch_items/sec": totals.items / totals.seconds,
        "train_epoch_time": totals.seconds,
        "train_data_wait_share": totals.waited / totals.seconds,
    }
    if state.scaler.is_enabled() or state.skipping.max_skipped:
        data["train_skipped_steps"] = totals.skipped + totals.dropped
    log.log((state.epoch,), data)
    return data
