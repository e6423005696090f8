"""Bootstrap limits against SciPy's, and against distributions of resamples that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from common.quality.statistics import Interval, bootstrap, mean, pooled_rate

VALUES = np.random.default_rng(1).gamma(2.0, size=60)


def test_limits_are_scipys() -> None:
    ours = bootstrap(VALUES, n=9000)
    theirs = stats.bootstrap((VALUES,), np.mean, n_resamples=9000, method="percentile", rng=2).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value == pytest.approx(VALUES.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.04 * width)


def test_limits_of_pooled_rates_are_scipys() -> None:
    generator = np.random.default_rng(3)
    count = generator.integers(3, 15, size=40)
    errors = generator.binomial(count, 0.1)
    ours = bootstrap(list(zip(errors.tolist(), count.tolist(), strict=True)), pooled_rate, n=9000)
    theirs = stats.bootstrap(
        (errors, count),
        lambda errors, count, axis: errors.sum(axis) / count.sum(axis),
        paired=True,
        n_resamples=9000,
        method="percentile",
        rng=4,
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value == errors.sum() / count.sum()
    assert ours.low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.04 * width)


@pytest.mark.parametrize("level", [0.6, 0.9, 0.95])
def test_resamples_of_zeros_and_ones_are_binomial(level: float) -> None:
    """The sum of 40 draws from 12 ones and 28 zeros; its quantiles are whole numbers."""
    found = bootstrap([1] * 12 + [0] * 28, n=20000, level=level)
    low, high = stats.binom.ppf([(1 - level) / 2, (1 + level) / 2], 40, 0.3) / 40
    assert found == pytest.approx((0.3, low, high))


def test_limits_of_a_normal_mean() -> None:
    values = stats.norm.ppf((np.arange(400) + 0.5) / 400, loc=5, scale=2)
    half = stats.norm.ppf(0.975) * values.std() / math.sqrt(400)
    found = bootstrap(values, n=9000)
    assert found == pytest.approx((5, 5 - half, 5 + half), abs=0.02)


def test_a_seed_gives_the_same_limits_again() -> None:
    assert bootstrap(VALUES, seed=5) == bootstrap(VALUES, seed=5)
    assert bootstrap(VALUES, seed=5) != bootstrap(VALUES, seed=6)


@pytest.mark.parametrize("values", [[0.5], [0.5, math.nan], [math.nan, 0.5, math.nan]])
def test_one_number_has_no_limits(values: list[float]) -> None:
    found = bootstrap(values)
    assert found.value == 0.5
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize("values", [[], [math.nan], [math.nan, math.nan]])
@pytest.mark.parametrize("statistic", [mean, pooled_rate])
def test_nothing_has_nothing(values: list[float], statistic) -> None:
    pairs = [(value, value) for value in values] if statistic is pooled_rate else values
    assert all(map(math.isnan, bootstrap(pairs, statistic)))


def test_nan_lines_are_passed_over() -> None:
    values = np.array([1.0, math.nan, 3.0, math.nan, 3.0])
    assert mean(values) == pytest.approx(7 / 3)
    found = bootstrap(values, n=4000, level=0.99)
    assert (found.low, found.high) == (1, 3)


def test_pooled_rate_weighs_words() -> None:
    pairs = np.array([(1, 2), (0, 8)])
    assert pooled_rate(pairs) == 0.1  # where the mean of the rates is 0.25
    assert math.isnan(pooled_rate(np.array([(2, 0)])))
    assert bootstrap([(1, 4)], pooled_rate)[0] == 0.25
    assert bootstrap([(3, 10)] * 5, pooled_rate) == Interval(0.3, 0.3, 0.3)


def test_resamples_are_numpys_with_a_seed() -> None:
    """Indices from NumPy's generator, the statistic of each draw, and NumPy's quantiles of all."""
    draws = np.random.default_rng(7).integers(len(VALUES), size=(1000, len(VALUES)))
    limits = np.quantile(VALUES[draws].mean(axis=1), [0.025, 0.975])
    assert bootstrap(VALUES, seed=7) == pytest.approx((VALUES.mean(), *limits), rel=1e-12)
