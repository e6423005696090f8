"""Steps with a loss that is no number or too large: the clips by name, and weights and statistics as before."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from common.errors import DataError
from common.run.interrupt import StopRequest
from common.training.loop import log_epoch, train_epoch, train_step
from common.training.optimization import moving_average
from common.training.state import TrainState
from tests.common.training.points import Notes, PointsDataset, change, loader, make_state
from tests.test_train import differences


def state_with_statistics(**skipping: float) -> TrainState:
    """A state whose model has BatchNorm, whose average moves, and that skips steps."""
    state = make_state()
    state.model.register_module("norm", nn.BatchNorm1d(2, affine=False))
    linear = state.model.forward
    state.model.forward = lambda x: linear(state.model.norm(x))  # type: ignore[method-assign]
    state.average = moving_average(state.model, 0.5)
    change(state, **skipping)
    return state


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_skipped_step_changes_nothing_but_its_count(poison: float) -> None:
    state, batch = state_with_statistics(max_skipped=1), PointsDataset(4).collate([1, 3])
    before = copy.deepcopy(state.model.state_dict())
    batch.x[0, 0] = poison
    result = train_step(state, [batch])
    assert result.dropped == (
        f"step skipped, 1 of at most 1 in an epoch: the loss is {result.loss} at epoch 0, iteration 0 (step 0 in all); "
        "the batch's files: clip 1, clip 3"
    )
    assert differences(dict(before), dict(state.model.state_dict())) == []
    assert state.progress.iteration == 1
    assert state.model.weight.grad is None
    assert state.average is not None and int(state.average.n_averaged) == 0
    assert state.optimizer.state_dict()["state"] == {}
    good = train_step(state, [PointsDataset(4).collate([1, 3])])
    assert (good.dropped, math.isfinite(good.loss)) == ("", True)


def test_one_more_than_max_skipped_ends_the_epoch() -> None:
    state, notes, data = make_state(), Notes(), loader(8, 2)
    change(state, max_skipped=2)
    collate = data.collate_fn

    def poison(items: list[int]):
        batch = collate(items)
        batch.y[0] = math.nan
        return batch

    data.collate_fn = poison
    with pytest.raises(
        DataError, match=r"training stopped, after 2 skipped steps of this epoch \(--max-skipped 2\): the loss is nan"
    ):
        train_epoch(state, data, notes, StopRequest())
    assert [line[:40] for line in notes.said] == [
        f"step skipped, {number} of at most 2 in an epoch" for number in (1, 2)
    ]
    assert (state.progress.totals.iterations, state.progress.totals.dropped, state.progress.totals.loss) == (2, 2, 0.0)
    state.progress.totals.dropped = 0  # as a new epoch
    assert math.isnan(train_step(state, [poison([0, 1])]).loss)


def test_the_mean_of_an_epoch_leaves_skipped_steps_out() -> None:
    losses = {}
    for poisoned in (False, True):
        state, notes, data = make_state(), Notes(), loader(6, 2)
        change(state, max_skipped=3)
        collate = data.collate_fn
        count = 0

        def poison(items: list[int], collate=collate, poisoned=poisoned):
            nonlocal count
            count += 1
            batch = collate(items)
            if poisoned and count == 2:
                batch.y[0] = math.nan
            return batch

        data.collate_fn = poison
        train_epoch(state, data, notes, StopRequest())
        losses[poisoned] = [row["train_loss"] for step, row in notes.records if len(step) == 2]
        means = log_epoch(state, notes)
        finite = [loss for loss in losses[poisoned] if math.isfinite(loss)]
        assert means["train_loss"] == pytest.approx(sum(finite) / len(finite))
        assert means["train_skipped_steps"] == poisoned
    assert math.isnan(losses[True][1]) and losses[True][0] == losses[False][0]


def test_an_exploded_loss_is_skipped_like_one_that_is_no_number() -> None:
    state = make_state()
    batch = PointsDataset(4).collate([1, 3])
    loss = train_step(make_state(), [batch]).loss
    change(state, max_skipped=1, max_loss=loss - 0.01)
    before = copy.deepcopy(state.model.state_dict())
    assert f"the loss is {loss:.6g}, above --max-loss {loss - 0.01:g}, at epoch 0" in train_step(state, [batch]).dropped
    assert differences(dict(before), dict(state.model.state_dict())) == []
    change(state, max_skipped=0, max_loss=loss)  # not above it
    assert train_step(state, [batch]).dropped == ""


def test_a_loss_scaler_forgets_a_skipped_step() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    change(state, max_skipped=1)
    batch.y[0] = math.nan
    assert train_step(state, [batch]).dropped
    assert state.scaler.get_scale() == 2.0  # lower, as after an overflow
    assert math.isfinite(train_step(state, [PointsDataset(4).collate([1, 3])]).grad_norm)
