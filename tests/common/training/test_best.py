"""The best validation so far: the lowest value of the measure; of equal ones, the lowest loss."""

from __future__ import annotations

import math
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from common.training.state import Best
from common.training.validation import update_best
from train import update_best_checkpoint


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


@pytest.mark.parametrize(
    ("validations", "best", "since"),
    [
        # words wrong rise while a model leaves its old voice, then fall
        ([(0.1, 3.0), (0.4, 2.0), (0.8, 1.2), (0.6, 1.15), (0.5, 1.14)], 4, 0),
        ([(0.1, 3.0), (0.4, 2.0), (0.8, 1.2), (0.9, 1.15), (0.9, 1.14)], 2, 2),
        ([(0.5, 1.0), (0.2, 1.05), (0.1, 1.11)], 1, 1),  # too far from the lowest
        ([(0.2, 1.0), (0.5, 0.95), (0.1, 1.06)], 0, 2),  # from that of a validation that was not the best
        ([(0.2, -5.0), (0.3, -5.05), (0.1, -5.2), (0.1, -5.19)], 2, 1),
        ([(0.5, 1.0), (math.nan, 0.1), (0.4, 1.05)], 2, 0),  # without a value, its loss does not count
    ],
)
def test_checkpoints_far_from_the_lowest_loss_are_left_out(
    validations: list[tuple[float, float]], best: int, since: int
) -> None:
    state: Any = SimpleNamespace(best=Best(by="wer"), epoch=0)
    for epoch, (value, loss) in enumerate(validations):
        state.epoch = epoch
        update_best(state, value, loss, slack=0.1)
    assert (state.best.epoch, state.best.since) == (best, since)


@pytest.mark.parametrize(("slack", "best"), [(None, 0), (0.1, 2)])
def test_the_flag_decides_how_far_from_the_lowest_loss_the_best_may_be(slack: float | None, best: int) -> None:
    state: Any = SimpleNamespace(best=Best(by="wer"), epoch=0)
    args = Namespace(
        best_by="wer", best_slack=slack, bench_class="perf-train", early_stop_patience=None
    )  # saves nothing
    for epoch, (wer, loss) in enumerate([(0.1, 3.0), (0.8, 1.2), (0.6, 1.15)]):
        state.epoch = epoch
        log: Any = None
        assert update_best_checkpoint(state, {"wer": wer, "loss": loss}, args, log)
    assert state.best.epoch == best
