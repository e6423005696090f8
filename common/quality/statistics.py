"""How sure a figure over a set of lines is: percentile bootstrap (Efron and Tibshirani 1993, chapter 13)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# L lines


class Interval(NamedTuple):
    """A statistic of all lines, and the limits of its confidence interval; nan where nothing can be said."""

    value: float
    low: float
    high: float


def mean(values: np.ndarray) -> float:
    """The mean of numbers (L,) that passes over nan; nan where nothing is left."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else math.nan


def pooled_rate(pairs: np.ndarray) -> float:
    """All errors over all counts of pairs (L, 2), so that each word weighs the same, not each line; nan where none count."""
    if not len(pairs):
        return math.nan
    errors, count = pairs.sum(axis=0)
    return float(errors / count) if count else math.nan


def bootstrap(
    values: Sequence[float] | Sequence[tuple[int, int]] | np.ndarray,
    statistic: Callable[[np.ndarray], float] = mean,
    n: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """A statistic and the interval that holds it with probability `level`, were other lines drawn from where these are from.

    Args:
        values: a number a line (L,), nan where a line has none, or a pair (errors, count) a line (L, 2).
        statistic: of such an array, to a number: `mean`, `pooled_rate`.
        n: how often the lines are drawn again, with replacement. Draws whose statistic is nan do not count.
        seed: of the draws; equal arguments give equal limits.

    With fewer than two lines that hold numbers the limits are nan.
    """
    lines = np.asarray(values, dtype=np.float64)
    if not len(lines):
        return Interval(math.nan, math.nan, math.nan)
    value = statistic(lines)
    if np.sum(~np.isnan(lines.reshape(len(lines), -1)).any(axis=1)) < 2:
        return Interval(value, math.nan, math.nan)
    draws = np.random.default_rng(seed).integers(len(lines), size=(n, len(lines)))
    drawn = np.array([statistic(lines[draw]) for draw in draws])
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))
