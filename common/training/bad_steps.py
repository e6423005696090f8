"""Steps whose loss or gradient is not finite, or whose loss exploded: the run names their clips, and skips them or ends.

A skipped step changes no weights, no averages and no statistics of BatchNorm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from common.errors import DataError
from common.run import distributed
from common.spec import Batch

if TYPE_CHECKING:
    from common.training.loop import StepResult, TrainState

SMALLEST_SCALE = 1e-3  # of float16's loss scale; a stable run stays above 1


@dataclass(frozen=True, kw_only=True)
class SkipConfig:
    """Options of bad steps, and the defaults of their flags."""

    max_skipped: int = 0  # in an epoch
    max_loss: float | None = None


def copy_statistics(state: TrainState) -> list[Tensor]:
    """Copy the statistics that a forward changes, where a step may be skipped."""
    return [buffer.clone() for buffer in state.model.buffers()] if state.skipping.max_skipped else []


def skip_if_bad(
    state: TrainState, result: StepResult, loss: Tensor, batches: Sequence[Batch], statistics: Sequence[Tensor]
) -> str:
    """Undo a bad step, and return a sentence about it; return "" after a good one. Every process has to call it.

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
    where = f"epoch {state.epoch}, iteration {state.totals.iterations} (step {state.iteration} in all)"
    described = f"the {fault} at {where}; the batch's files: {clips}"
    most, done = state.skipping.max_skipped, state.totals.dropped
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
    most = state.skipping.max_loss
    if not math.isfinite(result.loss):
        return f"loss is {result.loss}"
    if most is not None and result.loss > most:
        return f"loss is {result.loss:.6g}, above --max-loss {most:g},"
    if not (math.isfinite(result.grad_norm) or _overflow_may_pass(state)):
        return f"gradient norm is {result.grad_norm}"
    return ""


def _overflow_may_pass(state: TrainState) -> bool:
    """Return True if the scaler skips this step and lowers its scale. At a tiny scale a gradient cannot overflow: it is NaN."""
    return state.scaler.is_enabled() and state.scaler.get_scale() > SMALLEST_SCALE


def _names(state: TrainState, result: StepResult, loss: Tensor, batches: Sequence[Batch]) -> list[str]:
    """List the clips of the processes whose own loss is at fault, or of all where the gradient is."""
    own, most = loss.item(), state.skipping.max_loss
    exploded = most is not None and own > most
    all_at_fault = math.isfinite(result.loss) and (most is None or result.loss <= most)
    at_fault = not math.isfinite(own) or exploded or all_at_fault
    names = [name for batch in batches for name in batch.names] if at_fault else []
    return [name for of_process in distributed.gather(names, state.dist) for name in of_process]
