"""A learning-rate range test (Smith 2015, arXiv:1506.01186): the loss while the rate of each step grows, to choose one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from torch.utils.data import DataLoader

from common.data.pictures import DPI
from common.errors import DataError
from common.files import atomic_write
from common.training.forecast import write_figures
from common.training.loop import to_device, train_step
from common.training.sampler import readable_steps, sampler_of
from common.training.state import TrainState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
LOWEST, HIGHEST, STEPS = 1e-6, 1.0, 100
BATCHES = 8  # distinct batches, used in turn
SMOOTHING = 0.9  # of the loss's moving average, over about ten steps
EXPLODED = 4.0  # rises of the loss over its lowest value, as multiples of its fall until then
SAFETY = 10.0  # the suggestion is the limit over this


class Point(NamedTuple):
    """A step of the test: its rate, its loss, and the mean of the losses so far with exponential weights."""

    rate: float
    loss: float
    smoothed: float


class RangeTest(NamedTuple):
    """The steps of a test, the rate with the lowest smoothed loss, and a rate to train with."""

    points: list[Point]
    limit: float
    suggestion: float


def growing_rates(low: float = LOWEST, high: float = HIGHEST, count: int = STEPS) -> list[float]:
    """Return `count` rates from `low` to `high`, each the same multiple of the one before."""
    return [low * (high / low) ** (number / (count - 1)) for number in range(count)]


def range_test(step: Callable[[float], float], rates: Sequence[float], smoothing: float = SMOOTHING) -> RangeTest:
    """Take a step with each rate, until the loss explodes; `step` takes a rate and returns the loss before its update.

    The effect of a step shows in the loss of the next one, so each rate is judged by the loss that follows it. A loss explodes if
    it is not finite, or if the smoothed loss has risen EXPLODED times as much as it fell. Raises DataError if the first loss is
    not finite.
    """
    points: list[Point] = []
    mean = weight = 0.0
    before: float | None = None  # the rate whose effect the next loss shows
    for rate in rates:
        loss = step(rate)
        if not math.isfinite(loss):
            break
        mean = smoothing * mean + (1 - smoothing) * loss
        weight = smoothing * weight + (1 - smoothing)
        if before is not None:
            points.append(Point(before, loss, mean / weight))
        before = rate
        if has_exploded([point.smoothed for point in points]):
            break
    if not points:
        raise DataError("the loss of the first steps is not finite: no learning rate can be tested")
    limit = min(points, key=lambda point: point.smoothed).rate
    return RangeTest(points, limit, limit / SAFETY)


def has_exploded(losses: Sequence[float]) -> bool:
    """Return True if the last loss is above the lowest by EXPLODED times the fall from the first loss to the lowest."""
    if len(losses) < 2:
        return False
    lowest = min(losses)
    fall = max(losses[0] - lowest, 0.1 * abs(losses[0]))  # a loss that never falls has to rise by a share of itself
    return losses[-1] - lowest > EXPLODED * fall


def find_rate(state: TrainState) -> str:
    """Run a range test on a training state, and write its plot and its numbers to --output. Returns a sentence on the result."""
    options = state.setup.options

    def loss_at(batches: list[Any], rate: float) -> float:
        constant = replace(
            options.optimization, learning_rate=rate, lr_schedule="constant", warmup_steps=0, lr_scaling="none"
        )
        state.setup = replace(state.setup, options=replace(options, optimization=constant))
        try:
            return train_step(state, [to_device(batch, state.setup.dist.device) for batch in batches]).loss
        except DataError:  # a loss or gradient that is not finite
            return math.inf

    step = level_losses(loss_at, first_steps(state.loaders.training, BATCHES))
    result = range_test(step, growing_rates())
    name = state.setup.spec.name
    path = options.run.output / f"learning_rate_{name}.png"
    if state.setup.dist.is_main:
        write(result, path, name)
    return (
        f"--find-lr: the smoothed loss is lowest at a rate of {result.limit:.2g}, after {len(result.points)} steps; "
        f"a tenth of it is a safe choice: --learning-rate {result.suggestion:.2g}; {path}"
    )


def write(result: RangeTest, path: Path, title: str) -> None:
    """Write the plot to `path`, and the numbers as JSON beside it."""
    with atomic_write(path) as file:
        plot(result, title).savefig(file, format="png")
    numbers: dict[str, Any] = {"limit": result.limit, "suggestion": result.suggestion}
    write_figures(path.with_suffix(".json"), numbers | {"points": [point._asdict() for point in result.points]})


def level_losses(loss_at: Callable[[T, float], float], turns: Sequence[T]) -> Callable[[float], float]:
    """Return a step of a range test whose batches take turns, and whose loss does not depend on the batch.

    Clips differ in length and difficulty, so the losses of batches differ by more than a step changes them. Each batch therefore
    takes a first step at a rate of 0; that loss is subtracted from its later ones, and the mean of all first losses is added.
    """
    bases = [loss_at(turn, 0.0) for turn in turns]
    mean = sum(bases) / len(bases)
    order = itertools.cycle(zip(turns, bases, strict=True))

    def step(rate: float) -> float:
        turn, base = next(order)
        return mean + loss_at(turn, rate) - base

    return step


def first_steps(loader: DataLoader, count: int) -> list[list[Any]]:
    """Return the batches of the first steps of an epoch. Raises the DataError of a clip that cannot be read."""
    sampler_of(loader).start_at(0)
    return list(itertools.islice(readable_steps(loader), count))


def plot(result: RangeTest, title: str) -> Figure:
    """Draw the losses over the rates, with the limit and the suggestion."""
    from matplotlib.figure import Figure

    rates, losses, smoothed = zip(*result.points, strict=True)
    figure = Figure(figsize=(7, 4), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(rates, losses, color="0.75", label="loss")
    axes.plot(rates, smoothed, color="#4C78A8", label="smoothed")
    axes.axvline(result.limit, color="#E45756", linestyle=":", label=f"lowest: {result.limit:.2g}")
    axes.axvline(result.suggestion, color="#E45756", label=f"suggestion: {result.suggestion:.2g}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="training loss", title=f"{title}: learning-rate range test")
    low, high = min(smoothed), max(smoothed[: smoothed.index(min(smoothed)) + 1])
    axes.set_ylim(low - 0.2 * (high - low + 1e-9), high + 0.5 * (high - low + 1e-9))
    axes.legend()
    return figure
