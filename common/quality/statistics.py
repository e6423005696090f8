"""Confidence of a figure over a set of lines: percentile bootstrap (Efron and Tibshirani 1993, chapter 13)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

# L lines


class Interval(NamedTuple):
    """A statistic of all lines, and the limits of its confidence interval; nan where the lines do not define it."""

    value: float
    low: float
    high: float


def mean(values: np.ndarray) -> float:
    """Average numbers (L,), nan left out; nan where nothing is left."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else math.nan


def pooled_rate(pairs: np.ndarray) -> float:
    """Divide all errors by all counts of pairs (L, 2), so that each word has the same weight; nan where all counts are 0."""
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
    """Compute a statistic and its confidence interval over lines drawn from the same source (scipy.stats.bootstrap).

    Args:
        values: a number a line (L,), or a pair (errors, count) a line (L, 2), resampled together. Lines with nan are left out.
        statistic: maps such an array to a number: `mean`, `pooled_rate`.
        n: number of resamples, drawn with replacement.
        seed: of the resamples; equal arguments give equal limits.
        level: confidence level, 0 to 1.

    With fewer than two lines the limits are nan.
    """
    from scipy import stats  # takes a second to import

    lines = np.asarray(values, dtype=np.float64)
    lines = lines[~np.isnan(lines.reshape(len(lines), -1)).any(axis=1)] if len(lines) else lines
    if len(lines) < 2:
        return Interval(statistic(lines) if len(lines) else math.nan, math.nan, math.nan)
    found = stats.bootstrap(
        (np.arange(len(lines)),),
        lambda draw: statistic(lines[draw]),
        vectorized=False,
        n_resamples=n,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(statistic(lines), float(found.confidence_interval.low), float(found.confidence_interval.high))
