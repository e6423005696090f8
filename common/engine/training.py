"""The training loop that every model shares: state, one step, an epoch, validation."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from common.engine import distributed, precision
from common.engine.distributed import Dist
from common.engine.interrupt import StopRequest
from common.engine.nvlog import Log
from common.engine.sampler import EpochBatches
from common.errors import DataError
from common.sound.stft import TacotronSTFT
from common.spec import Batch, Criterion, ModelSpec

SMALLEST_SCALE = 1e-3  # of the loss under float16; healthy runs stay above 1
WARM_UP = 10  # iterations that the steady rate passes over
VALIDATION_SEED = 0  # dropout that stays on in evaluation is the same at each validation, so that losses compare


@dataclass
class EpochTotals:
    """Sums over the iterations of an epoch so far, kept in a checkpoint made in mid-epoch."""

    iterations: int = 0
    clips: int = 0  # how far into the epoch's order of clips
    loss: float = 0.0
    items: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0  # seconds of them in which the step waited for its batch

    def add(self, clips: int, result: StepResult, seconds: float, waited: float) -> None:
        """Count one more iteration."""
        self.iterations += 1
        self.clips += clips
        self.loss += result.loss
        self.items += result.items
        self.seconds += seconds
        self.waited += waited


@dataclass
class TrainState:
    """All that training changes, and what it needs to change it."""

    spec: ModelSpec
    model: nn.Module  # bare: what is saved
    trained: nn.Module  # the same, as a step calls it (DistributedDataParallel on several processes)
    criterion: Criterion
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    dist: Dist
    amp: bool
    grad_clip_thresh: float
    epoch: int = 0
    iteration: int = 0  # optimizer steps since the start
    totals: EpochTotals = field(default_factory=EpochTotals)
    rates: list[float] = field(default_factory=list)  # items a second of each iteration of this run


class StepResult(NamedTuple):
    """Means over all processes: the loss and its terms by name; the gradient's norm before clipping; items of all processes."""

    loss: float
    terms: dict[str, float]
    grad_norm: float
    items: float
    stop: bool


class RunTotals:
    """What a run says of itself as a whole."""

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
    """The median of the iterations' rates without the first ones, which load code, fill caches and start the loader."""
    return statistics.median(rates[WARM_UP:] or rates[len(rates) // 2 :])


def stop_everywhere(stop: StopRequest, dist: Dist) -> bool:
    """Whether any process was asked to stop."""
    return distributed.all_sum(torch.tensor(float(stop.requested), device=dist.device), dist).item() > 0


def build_state(
    spec: ModelSpec, model: nn.Module, criterion: Criterion, args: argparse.Namespace, dist: Dist
) -> TrainState:
    """The state at the start of training, on this process's device."""
    model = model.to(dist.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay, fused=True)
    return TrainState(
        spec=spec,
        model=model,
        trained=distributed.wrap(model, dist),
        criterion=criterion.to(dist.device),
        optimizer=optimizer,
        scaler=precision.grad_scaler(dist.device, args.amp),
        dist=dist,
        amp=args.amp,
        grad_clip_thresh=args.grad_clip_thresh or math.inf,
    )


def annealed_rate(rate: float, epoch: int, milestones: list[int], factor: float) -> float:
    """The learning rate of an epoch: rate x factor^n after n milestones; a factor of 0.3 means 1, 0.3, 0.1, 0.03, 0.01 …"""
    passed = sum(epoch >= milestone for milestone in milestones)
    if factor == 0.3:
        return rate * 0.1 ** (passed // 2) * (0.3 if passed % 2 else 1.0)
    return rate * factor**passed


def to_device(batch: Any, device: torch.device) -> Any:
    """A NamedTuple batch with its tensors on the device."""
    moved = (x.to(device, non_blocking=True) if isinstance(x, Tensor) else x for x in batch)
    return type(batch)(*moved)


def train_step(state: TrainState, batch: Batch, stop: StopRequest) -> StepResult:
    """Forward, backward and optimizer step on one batch. DataError where the loss or the gradient is not a number."""
    with precision.autocast(state.dist.device, state.amp):
        outputs = state.trained(*batch.inputs)
        terms = state.criterion.terms(outputs, batch.targets, state.iteration)
    loss = torch.stack(list(terms.values())).sum()
    state.scaler.scale(loss).backward()
    state.scaler.unscale_(state.optimizer)
    grad_norm = nn.utils.clip_grad_norm_(state.model.parameters(), state.grad_clip_thresh)
    result = _reduce(state, loss, terms, grad_norm, batch, stop)
    if not math.isfinite(result.loss) or not (math.isfinite(result.grad_norm) or _overflow_may_pass(state)):
        raise DataError(_not_a_number(state, result, loss, batch))
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.optimizer.zero_grad(set_to_none=True)
    state.iteration += 1
    return result


def _overflow_may_pass(state: TrainState) -> bool:
    """Whether the scaler will skip this step and lower its scale; at a tiny scale no gradient is too large, it is NaN."""
    return state.scaler.is_enabled() and state.scaler.get_scale() > SMALLEST_SCALE


def _reduce(
    state: TrainState, loss: Tensor, terms: Mapping[str, Tensor], grad_norm: Tensor, batch: Batch, stop: StopRequest
) -> StepResult:
    """What a step reports, in one all-reduce and one host sync."""
    device = state.dist.device
    counts = torch.tensor([float(stop.requested)], device=device)
    means = torch.stack([loss.detach(), grad_norm.detach(), *(term.detach() for term in terms.values())]).float()
    values = torch.cat((means / state.dist.world_size, batch.num_items[None].to(device).float(), counts))
    total: list[float] = distributed.all_sum(values, state.dist).tolist()  # host sync, once a step
    return StepResult(total[0], dict(zip(terms, total[2:], strict=False)), total[1], total[-2], total[-1] > 0)


def _not_a_number(state: TrainState, result: StepResult, loss: Tensor, batch: Batch) -> str:
    names = batch.names if not math.isfinite(loss.item()) or math.isfinite(result.loss) else ()
    files = [name for names in distributed.gather(names, state.dist) for name in names]
    what = f"loss is {result.loss}" if not math.isfinite(result.loss) else f"gradient norm is {result.grad_norm}"
    return (
        f"training stopped: the {what} at epoch {state.epoch}, iteration {state.totals.iterations} "
        f"(step {state.iteration} in all); the batch's files: {', '.join(files)}; "
        "look at these clips, or lower --learning-rate or --grad-clip-thresh and go on with --resume-from-last"
    )


def train_epoch(state: TrainState, loader: DataLoader, log: Log, stop: StopRequest) -> bool:
    """Train on the rest of the current epoch's batches; returns False if a stop was asked for before its end."""
    sampler = _sampler(loader)
    sampler.start_at(state.epoch, state.totals.clips)
    state.trained.train()
    state.criterion.train()
    left = len(sampler)
    clock = time.perf_counter()
    for batch, waited in log.progress(_with_wait(loader), f"epoch {state.epoch}", total=left):
        result = train_step(state, to_device(batch, state.dist.device), stop)
        seconds, clock = time.perf_counter() - clock, time.perf_counter()
        state.rates.append(result.items / seconds)
        _log_iteration(state, result, seconds, sampler.batches_per_epoch(), log)
        _show_iteration(state, result, waited / seconds, log)
        state.totals.add(sampler.global_size, result, seconds, waited)
        left -= 1
        if result.stop and left:
            return False
    return True


def _with_wait(loader: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Each batch and the seconds it was waited for."""
    batches = iter(loader)
    while True:
        start = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return
        yield batch, time.perf_counter() - start


def _sampler(loader: DataLoader) -> EpochBatches:
    sampler = loader.batch_sampler
    assert isinstance(sampler, EpochBatches)
    return sampler


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
    """What TensorBoard shows of a step."""
    shown = {
        "loss": result.loss,
        "items_per_sec": state.rates[-1],
        "grad_norm": result.grad_norm,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "data_wait_share": wait_share,
    }
    if state.scaler.is_enabled():
        shown["loss_scale"] = state.scaler.get_scale()  # host sync; the step has waited for the GPU already
    peak = precision.peak_memory(state.dist.device)
    if peak is not None:
        shown["gpu_memory_gb"] = peak / 1e9
    log.scalars("train", shown | {f"loss_{name}": value for name, value in result.terms.items()}, state.iteration)


def log_epoch(state: TrainState, log: Log) -> dict[str, float]:
    """Record the epoch's means; returns them."""
    totals = state.totals
    data = {
        "train_loss": totals.loss / totals.iterations,
        "train_items_per_sec": totals.items / totals.seconds,
        "train_epoch_items/sec": totals.items / totals.seconds,
        "train_epoch_time": totals.seconds,
        "train_data_wait_share": totals.waited / totals.seconds,
    }
    log.log((state.epoch,), data)
    return data


@torch.no_grad()
def validate(state: TrainState, loader: DataLoader, stft: TacotronSTFT | None, log: Log) -> dict[str, float]:
    """Mean loss over the validation clips; where there is an stft, the first batch's pictures and sounds too."""
    _sampler(loader).start_at(0)
    state.model.eval()
    state.criterion.train(False)
    sums = torch.zeros(3, dtype=torch.float64)  # loss x clips, clips, items
    clock = time.perf_counter()
    spent = 0.0  # on the preview, which is no part of the rate
    with precision.separate_rng(state.dist.device, VALIDATION_SEED):
        for number, batch in enumerate(log.progress(loader, "validation", total=len(_sampler(loader)))):
            batch = to_device(batch, state.dist.device)
            with precision.autocast(state.dist.device, state.amp):
                outputs = state.model(*batch.inputs)
                loss = state.criterion(outputs, batch.targets).item()  # host sync, once a batch
            sums += torch.tensor([loss * len(batch.names), len(batch.names), float(batch.num_items)])
            seconds = time.perf_counter() - clock - spent
            data = {"val_loss": loss, "val_items_per_sec": float(sums[2]) / seconds}
            log.log((state.epoch, state.totals.iterations, number), data)
            if number == 0 and stft is not None:
                start = time.perf_counter()
                show(state, batch, outputs, stft, log)
                spent = time.perf_counter() - start
    loss_sum, clips, items = distributed.all_sum(sums.to(state.dist.device), state.dist).tolist()
    result = {"val_loss": loss_sum / clips, "val_items_per_sec": items / (time.perf_counter() - clock - spent)}
    log.log((state.epoch,), result)
    log.scalars("validation", {name.removeprefix("val_"): value for name, value in result.items()}, state.iteration)
    return result


def show(state: TrainState, batch: Batch, outputs: Any, stft: TacotronSTFT, log: Log) -> None:
    """The model's own pictures, sounds and numbers of a validation batch, to TensorBoard."""
    try:
        preview = state.spec.preview(state.model, batch, outputs, stft)
    except DataError as error:  # a model that knows nothing yet may make what no transform takes
        log.say(f"no preview of this validation: {error}")
        return
    log.scalars("validation", preview.scalars, state.iteration)
    for name, figure in preview.figures.items():
        log.figure(f"validation/{name}", figure, state.iteration)
    for name, sound in preview.sounds.items():
        log.audio(f"validation/{name}", sound, state.iteration, stft.config.sampling_rate)
