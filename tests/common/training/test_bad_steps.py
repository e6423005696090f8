"""Steps with a loss that is no number or too large: the clips by name, and weights and statistics as before."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.run.interrupt import StopRequest
from common.training.loop import log_epoch, train_epoch, train_step
from common.training.optimization import moving_average
from common.training.state import SkipConfig, TrainState
from tests.common.training.points import Notes, PointsDataset, loader, make_state
from tests.recipe import flags, read_steps, run, start, succeed
from tests.test_scale import ENVIRONMENT, LAUNCHER
from tests.test_train import differences


def state_with_statistics(**skipping: float) -> TrainState:
    """A state whose model has BatchNorm, whose average moves, and that skips steps."""
    state = make_state()
    state.model.register_module("norm", nn.BatchNorm1d(2, affine=False))
    linear = state.model.forward
    state.model.forward = lambda x: linear(state.model.norm(x))  # type: ignore[method-assign]
    state.average = moving_average(state.model, 0.5)
    state.skipping = SkipConfig(**skipping)  # type: ignore[arg-type]
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
    assert state.iteration == 1
    assert state.model.weight.grad is None
    assert state.average is not None and int(state.average.n_averaged) == 0
    assert state.optimizer.state_dict()["state"] == {}
    good = train_step(state, [PointsDataset(4).collate([1, 3])])
    assert (good.dropped, math.isfinite(good.loss)) == ("", True)


def test_one_more_than_max_skipped_ends_the_epoch() -> None:
    state, notes, data = make_state(), Notes(), loader(8, 2)
    state.skipping = SkipConfig(max_skipped=2)
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
    assert (state.totals.iterations, state.totals.dropped, state.totals.loss) == (2, 2, 0.0)
    state.totals.dropped = 0  # as a new epoch
    assert math.isnan(train_step(state, [poison([0, 1])]).loss)


def test_the_mean_of_an_epoch_leaves_skipped_steps_out() -> None:
    losses = {}
    for poisoned in (False, True):
        state, notes, data = make_state(), Notes(), loader(6, 2)
        state.skipping = SkipConfig(max_skipped=3)
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
    state.skipping = SkipConfig(max_skipped=1, max_loss=loss - 0.01)
    before = copy.deepcopy(state.model.state_dict())
    assert f"the loss is {loss:.6g}, above --max-loss {loss - 0.01:g}, at epoch 0" in train_step(state, [batch]).dropped
    assert differences(dict(before), dict(state.model.state_dict())) == []
    state.skipping = SkipConfig(max_loss=loss)  # not above it
    assert train_step(state, [batch]).dropped == ""


def test_a_loss_scaler_forgets_a_skipped_step() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.skipping, state.scaler = SkipConfig(max_skipped=1), torch.amp.GradScaler("cpu", init_scale=4.0)
    batch.y[0] = math.nan
    assert train_step(state, [batch]).dropped
    assert state.scaler.get_scale() == 2.0  # lower, as after an overflow
    assert math.isfinite(train_step(state, [PointsDataset(4).collate([1, 3])]).grad_norm)


@pytest.mark.slow
def test_a_run_that_diverges_names_its_clips_and_ends(tmp_path: Path) -> None:
    words = [*flags("Tacotron2", tmp_path), "-lr", 1e30, "--epochs", 9, "--max-skipped", 1]
    result = run("train.py", *words)
    assert result.code == 1
    assert "step skipped, 1 of at most 1 in an epoch: the loss is nan at epoch" in result.out
    assert (
        "error: training stopped, after 1 skipped steps of this epoch (--max-skipped 1): the loss is nan" in result.err
    )
    assert ".ogg" in result.err and "Traceback" not in result.err


@pytest.mark.slow
def test_two_processes_skip_together(tmp_path: Path) -> None:
    """A bound on the loss between those of the first two steps: both skip the same steps, and train on."""
    words = [*flags("WaveGlow", tmp_path, 8), "-bs", 1, "--epochs", 2]
    succeed("train.py", *words, "-bs", 2, "-o", tmp_path / "one")
    losses = [data["train_loss"] for step, data in read_steps(tmp_path / "one" / "nvlog.json") if len(step) == 2]
    bound = sorted(losses)[-2] + 0.5 * (sorted(losses)[-1] - sorted(losses)[-2])
    launch = start(*LAUNCHER, "train.py", *words, "--max-loss", bound, "--max-skipped", 8, environment=ENVIRONMENT)
    out, err = launch.communicate(timeout=200)
    assert launch.returncode == 0, err
    assert "step skipped, 1 of at most 8 in an epoch: the loss is" in out and "above --max-loss" in out
    steps = [data for step, data in read_steps(tmp_path / "nvlog.json") if len(step) == 2]
    assert len(steps) == len(losses)
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"] == len(losses)
