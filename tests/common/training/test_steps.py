"""Optimizer steps of the training loop on a linear model, whose every number has a closed form; steps that are skipped."""

import copy
import itertools
import math
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from common.errors import DataError, UsageError
from common.run.interrupt import StopRequest
from common.training.loop import Ending, log_epoch, train_epoch, train_step
from common.training.optimization import Pace, RateFactor, moving_average
from common.training.state import Best, EpochTotals, TrainState
from common.training.validation import check_loss
from tests.common.training.points import Errors, Notes, PointsDataset, change, loader, make_state
from tests.recipe import fresh_state
from tests.test_train import differences
from train import update_best_checkpoint


def test_one_step_is_adam_on_the_summed_terms() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    weights = torch.tensor([0.5, -0.25, 0.125], dtype=torch.float64)
    inputs = torch.tensor([[1.0, 1, 1], [3, 1, 1]], dtype=torch.float64)  # the last column is the bias's
    error = inputs @ weights - torch.tensor([2.0, 6.0], dtype=torch.float64)
    gradient = (2 * error[:, None] * inputs).mean(0) + (error.sign()[:, None] * inputs).mean(0)
    result = train_step(state, [batch])
    wanted = {"square": error.square().mean().item(), "absolute": error.abs().mean().item()}
    assert result.terms == pytest.approx(wanted)
    assert result.grad_norm == pytest.approx(gradient.norm().item())
    assert (result.items, result.stop, state.progress.iteration) == (20.0, False, 1)
    # Adam's first step is rate x sign(gradient), whatever the gradient's size
    found = torch.cat([p.detach().flatten() for p in state.model.parameters()])
    assert torch.allclose(found.double(), weights - 0.1 * gradient.sign(), atol=1e-6)
    assert all(p.grad is None for p in state.model.parameters())


@pytest.mark.parametrize(("clip", "scale"), [(None, 1.0), (1e6, 1.0), (2.0, 1.0), (2.0, 2.0**10)])
def test_gradients_are_clipped_after_the_loss_scale_is_taken_out(clip: float | None, scale: float) -> None:
    state, batch = make_state(grad_clip_thresh=clip), PointsDataset(4).collate([1, 3])
    state.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    norm = train_step(state, [batch]).grad_norm
    assert norm == pytest.approx(train_step(make_state(), [batch]).grad_norm, rel=1e-6) and norm > 2.0
    averages = torch.cat([state.optimizer.state[p]["exp_avg"].flatten() for p in state.model.parameters()])
    # Adam's average starts at 0.1 x gradient
    assert averages.norm().item() == pytest.approx(0.1 * min(norm, clip or norm), rel=1e-5)


def test_a_step_of_several_batches_is_one_of_all_their_clips_and_adds_to_no_gradient_before() -> None:
    data, whole, parts = PointsDataset(9), make_state(), make_state()
    at_once = train_step(whole, [data.collate([1, 3, 7, 8])])
    in_two = train_step(parts, [data.collate([1, 3]), data.collate([7, 8])])
    assert in_two.terms == pytest.approx(at_once.terms)
    assert (in_two.loss, in_two.grad_norm) == pytest.approx((at_once.loss, at_once.grad_norm))
    assert in_two.items == at_once.items == 40

    class Decaying(Errors):
        """A loss that depends on the number of the step alone, and a gradient that does not."""

        def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
            return {"decaying": 0.5**iteration + outputs.sum() - outputs.sum().detach()}

    state, batch = make_state(criterion=Decaying(), learning_rate=0.0), PointsDataset(4).collate([1, 3])
    steps = [train_step(state, [batch]) for _ in range(3)]
    assert [step.loss for step in steps] == [1.0, 0.5, 0.25]
    assert len({step.grad_norm for step in steps}) == 1


def test_the_schedule_advances_within_an_epoch_and_its_curve_leaves_factors_of_groups_out() -> None:
    state, notes = make_state(pace=Pace(3, 2, 8), lr_schedule="cosine", epochs=1), Notes()
    assert train_epoch(state, loader(6, 2), notes, StopRequest()) is Ending.EPOCH
    assert notes.shown["train/learning_rate"] == pytest.approx([0.1, 0.075, 0.025])  # 0.05 (1 + cos(k pi / 3))
    state, notes = make_state(lr_scale=[RateFactor("bias", 0.25)]), Notes()
    train_epoch(state, loader(4, 2), notes, StopRequest())
    assert notes.shown["train/learning_rate"] == [0.1, 0.1]
    assert [group["lr"] for group in state.optimizer.param_groups] == [0.1, 0.025]


def test_mixed_precision_on_a_cpu_computes_in_bfloat16(monkeypatch) -> None:
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: True)  # which is true of most servers
    losses = []
    for amp in (False, True):
        state = make_state(amp=amp)
        with torch.no_grad():
            state.model.weight.mul_(1.003)  # bfloat16 has no place for it
        losses.append(train_step(state, [PointsDataset(9).collate([1, 3, 7])]).loss)
        assert state.model.weight.dtype == torch.float32
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=2**-6)


class Root(Errors):
    """A loss whose value is 0, and whose slope there is no number."""

    def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
        return {"root": (outputs - outputs.detach()).abs().sqrt().mean()}


def test_a_loss_scaler_sees_to_gradients_that_overflow_but_not_to_a_loss_that_is_no_number() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.average = average = moving_average(state.model, 0.5)
    assert average is not None
    with torch.no_grad():
        state.model.bias.add_(1.0)  # an update of the average would show
    state.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-100)
    before, averaged = ([p.clone() for p in model.parameters()] for model in (state.model, average.module))
    result = train_step(state, [batch])
    assert (math.isfinite(result.loss), math.isfinite(result.grad_norm)) == (True, False)
    assert differences(before, list(state.model.parameters())) == []
    assert differences(averaged, list(average.module.parameters())) == []
    assert (int(average.n_averaged), state.progress.iteration) == (0, 1)
    assert math.isfinite(train_step(state, [batch]).grad_norm) and int(average.n_averaged) == 1
    assert differences(before, list(state.model.parameters()))
    state.progress.epoch, state.progress.iteration, state.progress.totals.iterations = 7, 93, 2
    before = [p.clone() for p in state.model.parameters()]
    for poison in (math.nan, math.inf):
        state.scaler = torch.amp.GradScaler("cpu", enabled=math.isnan(poison))
        batch.y[1] = poison
        message = rf"loss is {poison} at epoch 7, iteration 2 \(step 93 in all\).*clip 1, clip 3"
        with pytest.raises(DataError, match=message):
            train_step(state, [batch])
    assert differences(before, list(state.model.parameters())) == []


def test_a_gradient_that_is_no_number_ends_the_run_with_or_without_a_loss_scale() -> None:
    state = make_state(criterion=Root())
    state.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, backoff_factor=2.0**-8)
    batch = PointsDataset(4).collate([1, 3])
    for _ in range(2):  # at a scale of 4 and of 2^-6 it may still be an overflow
        assert not math.isfinite(train_step(state, [batch]).grad_norm)
    for one in (state, make_state(criterion=Root())):
        with pytest.raises(DataError, match=r"gradient norm is nan at epoch 0, iteration \d.*files: clip 1, clip 3;"):
            train_step(one, [batch])


def test_two_ways_to_compute_a_step_exclude_each_other(tmp_path: Path) -> None:
    for words in (["--compile", "--recompute"], ["--plain", "--recompute"]):
        with pytest.raises(UsageError, match=f"^{' and '.join(words)}: each chooses another way"):
            fresh_state("WaveGlow", tmp_path, *words)
    fast, plain = (fresh_state("Tacotron2", tmp_path, *words) for words in ([], ["--plain"]))
    assert fast.trained is not fast.model and plain.trained is plain.model


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
    assert result.dropped.startswith("step skipped, 1 of at most 1 in an epoch: the loss is")
    assert differences(dict(before), dict(state.model.state_dict())) == []
    assert state.progress.iteration == 1
    assert state.model.weight.grad is None
    assert state.average is not None and int(state.average.n_averaged) == 0
    assert state.optimizer.state_dict()["state"] == {}
    good = train_step(state, [PointsDataset(4).collate([1, 3])])
    assert (good.dropped, math.isfinite(good.loss)) == ("", True)


def poisoned_loader(clips: int, poisoned: Collection[int]) -> DataLoader:
    """A loader of batches of two; those with these numbers have a target that is NaN."""
    data = loader(clips, 2)
    collate, numbers = data.collate_fn, itertools.count()

    def poison(items: list[int]):
        batch = collate(items)
        if next(numbers) in poisoned:
            batch.y[0] = math.nan
        return batch

    data.collate_fn = poison
    return data


def test_one_more_than_max_skipped_ends_the_epoch() -> None:
    state, notes, data = make_state(max_skipped=2), Notes(), poisoned_loader(8, range(9))
    message = r"training stopped, after 2 skipped steps of this epoch \(--max-skipped 2\): the loss is nan"
    with pytest.raises(DataError, match=message):
        train_epoch(state, data, notes, StopRequest())
    assert (state.progress.totals.iterations, state.progress.totals.dropped, state.progress.totals.loss) == (2, 2, 0.0)


def test_the_mean_of_an_epoch_leaves_skipped_steps_out() -> None:
    losses = {}
    for poisoned in (False, True):
        state, notes = make_state(max_skipped=3), Notes()
        train_epoch(state, poisoned_loader(6, {1} if poisoned else set()), notes, StopRequest())
        losses[poisoned] = [row["train_loss"] for step, row in notes.records if len(step) == 2]
        means = log_epoch(state, notes, 0.0)
        finite = [loss for loss in losses[poisoned] if math.isfinite(loss)]
        assert means["train_loss"] == pytest.approx(sum(finite) / len(finite))
        assert means["train_skipped_steps"] == poisoned
    assert math.isnan(losses[True][1]) and losses[True][0] == losses[False][0]
    assert EpochTotals(iterations=4, loss=6.0, skipped=2, dropped=1).mean_loss == 2.0  # overflows have losses


def test_an_exploded_loss_is_skipped_and_a_loss_scaler_forgets_a_skipped_step() -> None:
    batch = PointsDataset(4).collate([1, 3])
    loss = train_step(make_state(), [batch]).loss
    state = make_state(max_skipped=1, max_loss=loss - 0.01)
    before = copy.deepcopy(state.model.state_dict())
    assert f"the loss is {loss:.6g}, above --max-loss {loss - 0.01:g}, at epoch 0" in train_step(state, [batch]).dropped
    assert differences(dict(before), dict(state.model.state_dict())) == []
    change(state, max_skipped=0, max_loss=loss)  # not above it
    assert train_step(state, [batch]).dropped == ""
    state = make_state(max_skipped=1)
    state.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    batch.y[0] = math.nan
    assert train_step(state, [batch]).dropped
    assert state.scaler.get_scale() == 2.0  # lower, as after an overflow
    assert math.isfinite(train_step(state, [PointsDataset(4).collate([1, 3])]).grad_norm)


def test_an_epoch_without_a_step_ends_the_run() -> None:
    state, data = make_state(max_skipped=5, max_loss=0.0), loader(6, 2)
    with pytest.raises(DataError, match=r"epoch 0 changed no weight, since all of its 3 steps were skipped"):
        train_epoch(state, data, Notes(), StopRequest())
    state.progress.saved, state.progress.best = [1, 3], Best(0.5, 2)
    with pytest.raises(DataError, match=r"go on after epoch 3 with --resume-from-last, .* --warm-start \S+_best\.pt$"):
        train_epoch(state, data, Notes(), StopRequest())
    change(state, max_loss=None)
    state.progress.totals = EpochTotals()
    assert train_epoch(state, data, Notes(), StopRequest()) is Ending.EPOCH


def test_two_validations_in_a_row_or_a_last_one_that_are_not_finite_end_the_run() -> None:
    for losses, last in (([1.0, math.inf, -1.0, math.inf, math.nan], False), ([1.0, math.nan], True)):
        state, notes = make_state(), Notes()
        for state.progress.epoch, loss in enumerate(losses[:-1]):
            assert check_loss(state, loss, False, notes) == loss or not math.isfinite(loss)
        assert len(notes.said) == sum(not math.isfinite(loss) for loss in losses[:-1])
        with pytest.raises(DataError, match=rf"the validation loss is nan after epoch {len(losses) - 2}"):
            check_loss(state, losses[-1], last, notes)


def test_patience_without_a_number_has_no_best_weights() -> None:
    state, notes = make_state(best_by="wer", early_stop_patience=2, bench_class="perf-train"), Notes()
    assert update_best_checkpoint(state, {"wer": math.nan, "loss": 1.0}, notes) and len(notes.said) == 1
    with pytest.raises(DataError, match="--early-stop-patience 2: no validation wer was a number"):
        update_best_checkpoint(state, {"wer": math.nan, "loss": 1.0}, notes)
