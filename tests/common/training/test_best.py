"""The best validation so far: the lowest value of the measure; of equal ones, the lowest loss."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from common.training.loop import Best
from common.training.validation import update_best


@pytest.mark.parametrize(
    ("validations", "best", "since"),
    [
        ([(0.2, 1.0), (0.1, 2.0), (0.3, 0.5)], 1, 1),
        ([(0.2, 1.0), (0.2, 0.9), (0.2, 0.95)], 1, 1),  # few words: the loss decides
        ([(0.2, 1.0), (0.2, 1.0)], 0, 1),
        ([(math.nan, 0.1), (0.5, 1.0), (math.nan, 0.1)], 1, 1),
        ([(0.0, -5.0), (0.0, -6.0)], 1, 0),
    ],
)
def test_the_lowest_value_wins_and_the_loss_decides_between_equals(
    validations: list[tuple[float, float]], best: int, since: int
) -> None:
    state: Any = SimpleNamespace(best=Best(by="wer"), epoch=0)
    for epoch, (value, loss) in enumerate(validations):
        state.epoch = epoch
        update_best(state, value, loss)
    assert (state.best.epoch, state.best.since, state.best.by) == (best, since, "wer")
