"""The state of a training run: what it is made of, what it trains, and how far it has come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from common import precision
from common.errors import DataError, UsageError
from common.fast import Accelerated, Request, accelerate
from common.run import distributed
from common.run.distributed import Dist
from common.spec import Criterion, ModelSpec
from common.threads import ThreadBalance
from common.training import sharding
from common.training.loader import Loaders
from common.training.optimization import Pace, make_optimizer, moving_average, rate_at
from common.training.options import PrecisionConfig, ScaleConfig, TrainOptions
from common.training.time_plan import TimePlan


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
class Progress:
    """How far a run has come; a checkpoint stores it."""

    epoch: int = 0
    iteration: int = 0  # optimizer steps since the start
    totals: EpochTotals = field(default_factory=EpochTotals)
    best: Best = field(default_factory=Best)
    saved: list[int] = field(default_factory=list)  # epochs whose checkpoints are in --output, by this run
    plan: TimePlan = field(default_factory=TimePlan)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a run is made of: options, model package, loss, processes and numbers, none of which a step changes."""

    options: TrainOptions
    spec: ModelSpec
    criterion: Criterion
    pace: Pace
    dist: Dist
    half: torch.dtype | None  # dtype of mixed precision; None: float32


@dataclass(kw_only=True)
class TrainState:
    """A training run: its setup, the model with all that trains it, and its progress."""

    setup: Setup
    model: nn.Module  # the plain model, stored in checkpoints
    trained: nn.Module  # a fast way with the same parameters; wrapped in DistributedDataParallel on several processes
    eval_model: nn.Module  # for validation: a fast way with the weights of the average, or else of the model
    average: AveragedModel | None  # of the model's weights over time
    note: str  # on an edited model whose fast way is not taken, or ""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    progress: Progress = field(default_factory=Progress)
    loaders: Loaders = field(init=False, repr=False)  # of a run of train.py; a state that only takes steps has none
    threads: ThreadBalance | None = None  # adapts CPU threads to the load between steps
    rates: list[float] = field(default_factory=list)  # items a second of each iteration of this process
    bad_validations: int = 0  # in a row, whose loss is not finite
    fault: DataError | None = None  # a clip of this process or of another cannot be read: the run saves and ends

    @property
    def epochs_done(self) -> float:
        """Number of epochs done, with the fraction of the current one."""
        pace, progress = self.setup.pace, self.progress
        return progress.epoch + progress.totals.clips / (pace.steps_per_epoch * pace.global_batch)

    @property
    def learning_rate(self) -> float:
        """The rate of the next step, before the factors of --lr-scale."""
        options, progress = self.setup.options, self.progress
        scheduled = self.epochs_done / progress.plan.squeeze
        return rate_at(options.optimization, self.setup.pace, scheduled, progress.iteration)

    @property
    def eval_weights(self) -> nn.Module:
        """The plain model whose weights validation and inference use: the average, or else the model."""
        return self.model if self.average is None else self.average.module


def build_state(
    spec: ModelSpec, model: nn.Module, criterion: Criterion, options: TrainOptions, dist: Dist, pace: Pace
) -> TrainState:
    """Build the state at the start of training, on this process's device.

    `model` is the plain model with its initial weights, after freezing. Raises UsageError for PowerSGD with float16.
    """
    scale, optimization = options.scale, options.optimization
    half = _half_dtype(options.precision, scale, dist.device)
    setup = Setup(options=options, spec=spec, criterion=criterion.to(dist.device), pace=pace, dist=dist, half=half)
    on_device = model if scale.cpu_offload else model.to(dist.device)
    average = moving_average(on_device, optimization.ema_decay)
    plain = [on_device] if average is None else [on_device, average.module]
    accelerated = [accelerate_training(spec, one, half, options) for one in plain]
    fast, note = accelerated[0]
    trained, eval_model = fast, accelerated[-1].model
    if scale.shard:
        for sharded in dict.fromkeys((fast, eval_model)):
            sharding.shard(sharded, dist, scale.cpu_offload)
    else:
        trained = distributed.wrap(fast, dist, bucket_cap_mb=scale.bucket_cap_mb, compression=scale.grad_compression)
    return TrainState(
        setup=setup,
        model=on_device,
        trained=trained,
        eval_model=eval_model,
        average=average,
        note=note,
        optimizer=make_optimizer(on_device, optimization),
        scaler=precision.grad_scaler(dist.device, half),
    )


def _half_dtype(numbers: PrecisionConfig, scale: ScaleConfig, device: torch.device) -> torch.dtype | None:
    """Return the dtype of mixed precision, None for float32. Raises UsageError for PowerSGD with float16."""
    half = precision.half_dtype(device, numbers.amp, numbers.amp_dtype)
    if scale.shard and half == torch.float16:
        return torch.bfloat16  # PyTorch's loss scaling does not support sharded gradients
    if scale.grad_compression == "powersgd" and half == torch.float16:
        raise UsageError(
            "--grad-compression powersgd: carries its error forward, so one float16 overflow would corrupt the rest of the run: "
            "add --amp-dtype bfloat16, or take fp16"
        )
    return half


def accelerate_training(
    spec: ModelSpec, model: nn.Module, half: torch.dtype | None, options: TrainOptions
) -> Accelerated:
    """Return the fast way to train a plain model that the options select, or with --plain the model itself."""
    numbers, recompute = options.precision, options.model.get("recompute", False)
    request = Request(half is not None, recompute=recompute, compile=numbers.compile or "")
    return accelerate(model, () if numbers.plain else spec.fast_ways, "training", request)
