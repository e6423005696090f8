"""Validation: the mean loss over held-out clips, pictures and sounds of the model, and the best loss so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from common import precision
from common.audio.stft import TacotronSTFT
from common.errors import DataError
from common.run import distributed
from common.run.interrupt import StopRequest
from common.run.nvlog import Log
from common.spec import ModelBatch
from common.training import sharding
from common.training.loop import fault_elsewhere, to_device, way_back
from common.training.sampler import load_batch, sampler_of
from common.training.state import Best, Progress, TrainState

VALIDATION_SEED = 0  # of the prenet's dropout, which stays on; constant, so that losses compare


@torch.no_grad()
def validate(
    state: TrainState, loader: DataLoader, stft: TacotronSTFT | None, log: Log, stop: StopRequest | None = None
) -> dict[str, float]:
    """Return the mean loss over the validation clips; with an stft, log the first batch's pictures and sounds too.

    Returns {} after a request to stop, and where a process cannot read a clip; then state.fault has the error.
    """
    sampler_of(loader).start_at(0)
    state.eval_model.eval()
    state.setup.criterion.train(False)
    sums = torch.zeros(3, dtype=torch.float64)  # loss x clips, clips, items
    clock = time.perf_counter()
    spent = 0.0  # seconds of the preview, left out of the rate
    with precision.separate_rng(state.setup.dist.device, VALIDATION_SEED):
        batches = _readable_everywhere(loader, state, stop)
        for number, batch in enumerate(log.progress(batches, "validation", len(sampler_of(loader)))):
            batch = to_device(batch, state.setup.dist.device)
            outputs, loss = _evaluate(state, batch)
            sums += torch.tensor([loss * len(batch.names), len(batch.names), float(batch.num_items)])
            seconds = time.perf_counter() - clock - spent
            data = {"val_loss": loss, "val_items_per_sec": float(sums[2]) / seconds}
            log.log((state.progress.epoch, state.progress.totals.iterations, number), data)
            if number == 0 and stft is not None:
                start = time.perf_counter()
                show(state, batch, outputs, stft, log)
                spent = time.perf_counter() - start
    if _must_end(state, stop):
        return {}
    loss_sum, clips, items = distributed.all_sum(sums.to(state.setup.dist.device), state.setup.dist).tolist()
    result = {"val_loss": loss_sum / clips, "val_items_per_sec": items / (time.perf_counter() - clock - spent)}
    log.log((state.progress.epoch,), result)
    log.scalars(
        "validation", {name.removeprefix("val_"): value for name, value in result.items()}, state.progress.iteration
    )
    return result


def _load(state: TrainState, read: Callable[[], ModelBatch | None]) -> ModelBatch | None:
    """Return what read() loads; None after a clip that cannot be read, whose error becomes state.fault."""
    try:
        return None if state.fault else read()
    except DataError as error:
        state.fault = error
        return None


def _readable_everywhere(loader: DataLoader, state: TrainState, stop: StopRequest | None) -> Iterator[ModelBatch]:
    """Yield batches up to the first that a process cannot read, or that follows a request to stop; all processes end together.

    With sharded weights they run each forward together: a process without a last batch runs one with the others and discards it.
    """
    batches, sharded = iter(loader), sharding.is_sharded(state.model)
    for _ in range(sampler_of(loader).batches_per_epoch()):
        batch = _load(state, lambda: next(batches, None))
        spare = _load(state, lambda: load_batch(loader, [0])) if sharded and batch is None else None
        if _must_end(state, stop):
            return
        if batch is not None:
            yield batch
        elif spare is not None:
            _evaluate(state, to_device(spare, state.setup.dist.device))


def _must_end(state: TrainState, stop: StopRequest | None) -> bool:
    """Return True if a process cannot read a clip or is asked to stop; all processes call it."""
    dist = state.setup.dist
    mine = [float(state.fault is not None), float(stop is not None and stop.is_requested)]
    faults, stops = distributed.all_sum(torch.tensor(mine, device=dist.device), dist).tolist()
    if faults:
        state.fault = state.fault or fault_elsewhere()
    return bool(faults or stops)


def _evaluate(state: TrainState, batch: ModelBatch) -> tuple[Any, float]:
    with precision.autocast(state.setup.dist.device, state.setup.half):
        outputs = state.eval_model(*batch.inputs)
        loss: Tensor = state.setup.criterion(outputs, batch.targets)
    return outputs, loss.item()  # host sync, once a batch


def show(state: TrainState, batch: ModelBatch, outputs: Any, stft: TacotronSTFT, log: Log) -> None:
    """Write the model's pictures, sounds and numbers of a validation batch to TensorBoard."""
    try:
        preview = state.setup.spec.preview(state.eval_model, batch, outputs, stft)
    except DataError as error:  # mels of an untrained model may overflow a transform
        log.say(f"no preview of this validation: {error}")
        return
    log.scalars("validation", preview.scalars, state.progress.iteration)
    for name, figure in preview.figures.items():
        log.figure(f"validation/{name}", figure, state.progress.iteration)
    for name, sound in preview.sounds.items():
        log.audio(f"validation/{name}", sound, state.progress.iteration, stft.config.sampling_rate)


def check_loss(state: TrainState, loss: float, last: bool, log: Log) -> float:
    """Return a validation's loss, and log one that is not finite. Raises DataError for the second in a row, or for a run's last.

    A single one may be an outlier of mixed precision; the weights of a diverged run are not worth a checkpoint.
    """
    state.bad_validations = 0 if math.isfinite(loss) else state.bad_validations + 1
    if not state.bad_validations:
        return loss
    found = f"the validation loss is {loss} after epoch {state.progress.epoch}"
    if not last and state.bad_validations == 1:
        log.say(f"{found}; no checkpoint is due with it, and a second such validation in a row ends the run")
        return loss
    before = ", as it was before" if state.bad_validations > 1 else ", the last one"
    raise DataError(f"training stopped: {found}{before}, and its weights are not saved; {way_back(state)}")


def update_best(progress: Progress, value: float, loss: float = math.inf, slack: float = math.inf) -> bool:
    """Record a validation. Returns True if its value is the lowest so far; of equal ones, if its loss is.

    A few lines have few wrong words, so many checkpoints share a word error rate. A validation whose loss exceeds the lowest one by
    more than `slack` is never the best, and no longer the best once it does.
    """
    best = progress.best
    if math.isnan(value):
        progress.best = best._replace(since=best.since + 1)
        return False
    lowest = min(best.lowest_loss, loss)
    is_lower = (value, loss) < (best.loss, best.tie) or best.tie > lowest + slack
    if is_lower and loss <= lowest + slack:
        progress.best = Best(value, progress.epoch, by=best.by, tie=loss, lowest_loss=lowest)
        return True
    progress.best = best._replace(since=best.since + 1, lowest_loss=lowest)
    return False
