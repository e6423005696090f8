"""The training loop on a linear model, whose every number has a closed form."""

from __future__ import annotations

import argparse
import dataclasses
import math
import signal
import time
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from common.errors import DataError, UsageError
from common.spec import Key, Preview
from common.training.distributed import Dist
from common.training.interrupt import SaveTimer, StopRequest
from common.training.loop import (
    Ending,
    EpochTotals,
    RunTotals,
    TrainState,
    accelerate_training,
    build_state,
    log_epoch,
    steady_rate,
    to_device,
    train_epoch,
    train_step,
)
from common.training.nvlog import Log
from common.training.optimization import Pace, moving_average
from common.training.sampler import EpochBatches
from common.training.validation import validate
from models import REGISTRY

CPU = Dist(0, 0, 1, torch.device("cpu"))


class Points(NamedTuple):
    """x (B, 2) and y (B, 1)."""

    x: Tensor
    y: Tensor
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.x,)

    @property
    def targets(self) -> Tensor:
        return self.y

    @property
    def num_items(self) -> Tensor:
        return torch.tensor(10 * len(self.x))


class Errors(nn.Module):
    """Mean square and mean absolute error."""

    def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
        error = outputs - targets
        return {"square": error.square().mean(), "absolute": error.abs().mean()}

    def forward(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> Tensor:
        return sum(self.terms(outputs, targets).values())  # type: ignore[return-value]


class PointsDataset:
    """Item i is the point (i, 1) with y = 2 i."""

    def __init__(self, size: int) -> None:
        self.lengths = list(range(size))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, key: Key) -> int:
        return key.item

    def collate(self, items: list[int]) -> Points:
        x = torch.tensor([[float(item), 1.0] for item in items])
        return Points(x, 2 * x[:, :1], tuple(f"clip {item}" for item in items))


class Notes(Log):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.records: list[tuple[tuple[int, ...], dict]] = []
        self.shown: dict[str, list[float]] = {}
        self.said: list[str] = []

    def log(self, step, data) -> None:
        self.records.append((step, dict(data)))

    def scalars(self, tag_prefix, values, step) -> None:
        for name, value in values.items():
            self.shown.setdefault(f"{tag_prefix}/{name}", []).append(value)

    def say(self, sentence) -> None:
        self.said.append(sentence)


def make_state(learning_rate: float = 0.1, clip: float | None = None, amp: bool = False) -> TrainState:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -0.25]]))
        model.bias.fill_(0.125)
    args = argparse.Namespace(learning_rate=learning_rate, weight_decay=0.0, grad_clip_thresh=clip, amp=amp)
    spec = dataclasses.replace(REGISTRY["WaveGlow"], fast_ways=())
    return build_state(spec, model, Errors(), args, CPU, Pace(4, 2, 2))


def loader(size: int, batch_size: int, training: bool = True) -> DataLoader:
    dataset = PointsDataset(size)
    sampler = EpochBatches(dataset.lengths, batch_size, seed=1, training=training)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=dataset.collate)  # type: ignore[arg-type]


def test_one_step_is_adam_on_the_summed_terms() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    weights = torch.tensor([0.5, -0.25, 0.125], dtype=torch.float64)
    inputs = torch.tensor([[1.0, 1, 1], [3, 1, 1]], dtype=torch.float64)  # the last column is the bias's
    error = inputs @ weights - torch.tensor([2.0, 6.0], dtype=torch.float64)
    gradient = (2 * error[:, None] * inputs).mean(0) + (error.sign()[:, None] * inputs).mean(0)
    result = train_step(state, [batch])
    assert result.terms == pytest.approx(
        {"square": error.square().mean().item(), "absolute": error.abs().mean().item()}
    )
    assert result.loss == pytest.approx(sum(result.terms.values()))
    assert result.grad_norm == pytest.approx(gradient.norm().item())
    assert (result.items, result.stop, state.iteration) == (20.0, False, 1)
    # Adam's first step is rate x sign(gradient), whatever the gradient's size
    found = torch.cat([p.detach().flatten() for p in state.model.parameters()])
    assert torch.allclose(found.double(), weights - 0.1 * gradient.sign(), atol=1e-6)
    assert all(p.grad is None for p in state.model.parameters())


@pytest.mark.parametrize(("clip", "norm_after"), [(None, 1.0), (1e6, 1.0), (2.0, 2.0)])
def test_gradients_are_clipped_to_the_threshold(clip: float | None, norm_after: float) -> None:
    state, batch = make_state(clip=clip), PointsDataset(4).collate([1, 3])
    norm = train_step(state, [batch]).grad_norm
    averages = torch.cat([state.optimizer.state[p]["exp_avg"].flatten() for p in state.model.parameters()])
    wanted = norm if norm_after == 1.0 else norm_after
    assert averages.norm().item() == pytest.approx(0.1 * wanted, rel=1e-5)  # Adam's average starts at 0.1 x gradient
    assert norm > 2.0


@pytest.mark.parametrize("scale", [1.0, 2.0**10])
def test_gradients_are_clipped_after_the_loss_scale_is_taken_out(scale: float) -> None:
    state, batch = make_state(clip=2.0), PointsDataset(4).collate([1, 3])
    state.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    unscaled = train_step(make_state(clip=2.0), [batch]).grad_norm
    assert train_step(state, [batch]).grad_norm == pytest.approx(unscaled, rel=1e-6)
    averages = torch.cat([state.optimizer.state[p]["exp_avg"].flatten() for p in state.model.parameters()])
    assert averages.norm().item() == pytest.approx(0.1 * 2.0, rel=1e-5)


def test_a_step_of_several_batches_is_one_of_all_their_clips() -> None:
    data, whole, parts = PointsDataset(9), make_state(), make_state()
    at_once = train_step(whole, [data.collate([1, 3, 7, 8])])
    in_two = train_step(parts, [data.collate([1, 3]), data.collate([7, 8])])
    assert in_two.terms == pytest.approx(at_once.terms)
    assert (in_two.loss, in_two.grad_norm) == pytest.approx((at_once.loss, at_once.grad_norm))
    assert in_two.items == at_once.items == 40


def test_a_step_adds_to_no_gradient_of_the_step_before() -> None:
    state, batch = make_state(learning_rate=0.0), PointsDataset(4).collate([1, 3])
    norms = {train_step(state, [batch]).grad_norm for _ in range(3)}
    assert len(norms) == 1


def test_the_criterion_takes_the_number_of_the_step() -> None:
    class Decaying(Errors):
        def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
            return {"decaying": 0.5**iteration + 0 * outputs.sum()}

    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.criterion = Decaying()
    assert [train_step(state, [batch]).loss for _ in range(3)] == [1.0, 0.5, 0.25]


def test_the_schedule_advances_within_an_epoch() -> None:
    state, notes = make_state(), Notes()
    state.pace = Pace(3, 2, 2)
    state.optimization = dataclasses.replace(state.optimization, lr_schedule="cosine", epochs=1)
    assert train_epoch(state, loader(6, 2), notes, StopRequest()) is Ending.EPOCH
    assert notes.shown["train/learning_rate"] == pytest.approx([0.1, 0.075, 0.025])  # 0.05 (1 + cos(k pi / 3))


def test_the_curve_of_the_rate_leaves_the_factors_of_groups_out() -> None:
    state, notes = make_state(), Notes()
    for group in state.optimizer.param_groups:
        group["lr_scale"] = 0.25
    train_epoch(state, loader(4, 2), notes, StopRequest())
    assert notes.shown["train/learning_rate"] == [0.1, 0.1]
    assert {group["lr"] for group in state.optimizer.param_groups} == {0.025}


def test_an_overflowed_step_leaves_the_moving_average_alone() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.average = moving_average(state.model, 0.5)
    assert state.average is not None
    with torch.no_grad():
        state.model.bias.add_(1.0)  # an update would show
    before = [p.clone() for p in state.average.module.parameters()]
    state.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-100)
    assert not math.isfinite(train_step(state, [batch]).grad_norm)
    assert all(torch.equal(p, q) for p, q in zip(before, state.average.module.parameters(), strict=True))
    assert (int(state.average.n_averaged), state.iteration) == (0, 1)
    train_step(state, [batch])
    assert int(state.average.n_averaged) == 1


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


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_it_reaches_the_weights(poison: float) -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.epoch, state.iteration, state.totals.iterations = 7, 93, 2
    batch.y[1] = poison
    before = [p.clone() for p in state.model.parameters()]
    with pytest.raises(
        DataError, match=r"loss is (nan|inf) at epoch 7, iteration 2 \(step 93 in all\).*clip 1, clip 3"
    ):
        train_step(state, [batch])
    assert all(torch.equal(p, q) for p, q in zip(before, state.model.parameters(), strict=True))


def test_a_gradient_that_is_no_number_stops_as_well() -> None:
    class Root(Errors):
        def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
            return {"root": (outputs - outputs.detach()).abs().sqrt().mean()}  # 0, and its slope there is infinite

    state = make_state()
    state.criterion = Root()
    with pytest.raises(DataError, match=r"gradient norm is nan at epoch 0, iteration 0.*files: clip 1, clip 3;"):
        train_step(state, [PointsDataset(4).collate([1, 3])])


def test_a_loss_scaler_sees_to_gradients_that_overflow_but_not_to_a_loss_that_is_no_number() -> None:
    state, batch = make_state(), PointsDataset(4).collate([1, 3])
    state.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-100)
    before = [p.clone() for p in state.model.parameters()]
    result = train_step(state, [batch])
    assert (math.isfinite(result.loss), math.isfinite(result.grad_norm)) == (True, False)
    assert all(torch.equal(p, q) for p, q in zip(before, state.model.parameters(), strict=True))
    assert math.isfinite(train_step(state, [batch]).grad_norm)
    assert not any(torch.equal(p, q) for p, q in zip(before, state.model.parameters(), strict=True))
    batch.y[0] = math.nan
    with pytest.raises(DataError, match="loss is nan"):
        train_step(state, [batch])


def test_a_gradient_that_no_loss_scale_mends_ends_the_run() -> None:
    class Root:
        """A loss whose value is a number and whose slope at 0 is not."""

        def terms(self, outputs: torch.Tensor, targets: torch.Tensor, iteration: int = 0) -> dict[str, torch.Tensor]:
            return {"root": (outputs - outputs.detach()).sqrt().sum()}

    state = make_state()
    state.criterion, state.scaler = Root(), torch.amp.GradScaler("cpu", init_scale=4.0, backoff_factor=2.0**-8)
    batch = PointsDataset(4).collate([1, 3])
    for _ in range(2):  # at a scale of 4 and of 2^-6 it may still be an overflow
        assert not math.isfinite(train_step(state, [batch]).grad_norm)
    with pytest.raises(DataError, match="gradient norm is inf"):
        train_step(state, [batch])


def test_an_epoch_logs_each_iteration_and_its_own_means() -> None:
    state, notes = make_state(), Notes()
    state.epoch, state.iteration = 3, 9
    assert train_epoch(state, loader(7, 2), notes, StopRequest()) is Ending.EPOCH
    means = log_epoch(state, notes)
    *iterations, last = notes.records
    losses = [data["train_loss"] for _, data in iterations]
    assert [step for step, _ in notes.records] == [(3, 0), (3, 1), (3, 2), (3,)]
    assert [data["glob_iter/iters_per_epoch"] for _, data in iterations] == ["9/3", "10/3", "11/3"]
    for _, data in iterations:
        assert (
            data["train_items_per_sec"] == data["train_iter_items/sec"] == pytest.approx(20 / data["train_iter_time"])
        )
    assert means == last[1]
    rates = {"train_items_per_sec", "train_epoch_items/sec"}
    assert set(means) == {"train_loss", "train_epoch_time", "train_data_wait_share"} | rates
    assert 0 < means["train_data_wait_share"] < 1
    assert len(notes.shown["train/data_wait_share"]) == 3
    assert state.rates == notes.shown["train/items_per_sec"]
    assert means["train_loss"] == pytest.approx(sum(losses) / 3)
    assert means["train_epoch_time"] == pytest.approx(sum(data["train_iter_time"] for _, data in iterations))
    assert means["train_items_per_sec"] == pytest.approx(60 / means["train_epoch_time"])
    assert notes.shown["train/loss"] == losses
    square, absolute = notes.shown["train/loss_square"], notes.shown["train/loss_absolute"]
    assert [a + b for a, b in zip(square, absolute, strict=True)] == pytest.approx(losses)
    assert notes.shown["train/learning_rate"] == [0.1] * 3
    assert (state.iteration, state.totals.iterations, state.totals.clips) == (12, 3, 6)


def test_a_stop_ends_an_epoch_after_the_step_and_at_its_end_is_no_stop() -> None:
    state, notes, data = make_state(), Notes(), loader(6, 2)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert train_epoch(state, data, notes, stop) is Ending.STOP
        assert (state.totals.iterations, state.totals.clips) == (1, 2)
        assert train_epoch(state, data, notes, stop) is Ending.STOP
        assert train_epoch(state, data, notes, stop) is Ending.EPOCH
    assert [step for step, _ in notes.records] == [(0, 0), (0, 1), (0, 2)]


def test_a_stop_comes_before_a_save_that_is_due() -> None:
    state, data = make_state(), loader(6, 2)
    with StopRequest() as stop:
        assert train_epoch(state, data, Notes(), stop, SaveTimer(0.0)) is Ending.SAVE
        signal.raise_signal(signal.SIGTERM)
        assert train_epoch(state, data, Notes(), stop, SaveTimer(0.0)) is Ending.STOP


def test_training_and_validation_switch_the_modes_of_model_and_criterion() -> None:
    class Modes(nn.Module):
        """A model whose output counts the steps in training mode."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return 0 * self.weight + (3.0 if self.training else 5.0) * torch.ones(len(x), 1)

    class Term(Errors):
        def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
            return {"mode": outputs.mean() + (0.25 if self.training else 0.5)}

    args = argparse.Namespace(learning_rate=0.1, weight_decay=0.0, grad_clip_thresh=None, amp=False)
    spec = dataclasses.replace(REGISTRY["WaveGlow"], fast_ways=())
    state = build_state(spec, Modes(), Term(), args, CPU, Pace(4, 2, 2))
    for _ in range(2):
        notes = Notes()
        train_epoch(state, loader(4, 2), notes, StopRequest())
        assert notes.shown["train/loss"] == [3.25, 3.25]
        assert validate(state, loader(4, 2, training=False), None, Notes())["val_loss"] == 5.5
        state.totals = EpochTotals()


def test_frozen_batchnorms_keep_their_statistics_in_training() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    args = argparse.Namespace(learning_rate=0.1, weight_decay=0.0, grad_clip_thresh=None, amp=False)
    spec = dataclasses.replace(REGISTRY["WaveGlow"], fast_ways=())
    state = build_state(spec, model, Errors(), args, CPU, Pace(4, 2, 2))
    train_epoch(state, loader(4, 2), Notes(), StopRequest())
    assert model[0].running_mean.tolist() == [0.0, 0.0]
    assert model[0].running_var.tolist() == [1.0, 1.0]
    assert model[1].training


def test_validation_uses_the_average_and_its_own_random_numbers() -> None:
    args = argparse.Namespace(learning_rate=0.1, weight_decay=0.0, grad_clip_thresh=None, amp=False, ema_decay=0.5)
    spec = dataclasses.replace(REGISTRY["WaveGlow"], fast_ways=())
    model = nn.Sequential(nn.Linear(2, 1))
    state = build_state(spec, model, Errors(), args, CPU, Pace(4, 2, 2))
    data = loader(4, 2, training=False)
    before = validate(state, data, None, Notes())
    with torch.no_grad():
        model[0].weight.add_(1.0)
    assert validate(state, data, None, Notes())["val_loss"] == before["val_loss"]

    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.randn(len(x), 1)

    state.eval_model = Noise()
    assert len({validate(state, data, None, Notes())["val_loss"] for _ in range(4)}) == 1


def test_two_ways_to_compute_a_step_exclude_each_other() -> None:
    spec = REGISTRY["WaveGlow"]
    with pytest.raises(UsageError, match="--plain and --recompute: each chooses another way"):
        accelerate_training(spec, nn.Linear(2, 1), None, {"plain": True, "recompute": True, "compile": False})


def test_validation_is_the_mean_over_clips_and_moves_nothing() -> None:
    state, notes = make_state(), Notes()
    state.epoch, state.totals.iterations = 2, 5
    before = torch.get_rng_state()
    result = validate(state, loader(5, 2, training=False), None, notes)
    assert torch.equal(torch.get_rng_state(), before)
    steps = [step for step, _ in notes.records]
    assert steps == [(2, 5, 0), (2, 5, 1), (2, 5, 2), (2,)]
    losses = []
    for item in range(5):
        error = abs(0.5 * item - 0.25 + 0.125 - 2 * item)
        losses.append(error**2 + error)
    batches = [sum(losses[:2]) / 2, sum(losses[2:4]) / 2, losses[4]]
    assert [data["val_loss"] for _, data in notes.records[:3]] == pytest.approx(batches, rel=1e-5)
    assert result["val_loss"] == pytest.approx(sum(losses) / 5, rel=1e-5)
    assert notes.records[-1][1] == result
    assert result["val_items_per_sec"] > 0
    assert notes.shown["validation/loss"] == [result["val_loss"]]
    assert state.model.weight.grad is None


def test_a_preview_that_cannot_be_made_is_no_reason_to_stop() -> None:
    state, notes = make_state(), Notes()

    def refuse(*_: object) -> Preview:
        raise DataError("log-mels with values that are NaN")

    state.spec = argparse.Namespace(preview=refuse)  # type: ignore[assignment]
    result = validate(state, loader(4, 2, training=False), object(), notes)  # type: ignore[arg-type]
    assert math.isfinite(result["val_loss"])
    assert notes.said == ["no preview of this validation: log-mels with values that are NaN"]


def test_run_totals() -> None:
    totals, notes = RunTotals(), Notes()
    for rate, loss in ((100.0, 3.0), (300.0, 2.0)):
        totals.add({"train_items_per_sec": rate, "train_loss": loss})
    totals.validation = {"val_loss": 2.5, "val_items_per_sec": 50.0}
    totals.log(notes, [1.0] * 10 + [70.0, 90.0, 80.0])
    ((step, data),) = notes.records
    assert step == ()
    assert 0 <= data.pop("run_time") < 60
    assert data.pop("train_steady_items_per_sec") == 80.0  # the median without the first ten
    assert data == {"train_loss": 2.0, "train_items_per_sec": 200.0, "val_loss": 2.5, "val_items_per_sec": 50.0}


def test_the_share_of_waiting_is_the_time_the_loader_takes() -> None:
    state, notes, data = make_state(), Notes(), loader(8, 2)
    fetch = data.collate_fn

    def slowly(items: list[int]) -> Any:
        time.sleep(0.05)  # a step of this model takes a hundredth of that
        return fetch(items)

    data.collate_fn = slowly
    train_epoch(state, data, notes, StopRequest())
    assert log_epoch(state, notes)["train_data_wait_share"] > 0.8
    assert state.totals.waited > 0.2


@pytest.mark.parametrize(("rates", "steady"), [([5.0], 5.0), ([1.0, 4.0], 4.0), ([1.0, 1.0, 2.0, 9.0, 3.0], 3.0)])
def test_the_steady_rate_of_short_runs(rates: list[float], steady: float) -> None:
    assert steady_rate(rates) == steady


def test_totals_of_nothing() -> None:
    notes = Notes()
    RunTotals().log(notes, [])
    assert set(notes.records[0][1]) == {"run_time"}
    assert EpochTotals() == EpochTotals(iterations=0, clips=0, loss=0.0, items=0.0, seconds=0.0)


def test_a_batch_keeps_its_type_and_names_on_the_way_to_a_device() -> None:
    batch = PointsDataset(3).collate([0, 2])
    moved = to_device(batch, torch.device("meta"))
    assert isinstance(moved, Points)
    assert (moved.x.device.type, moved.x.shape, moved.names) == ("meta", (2, 2), ("clip 0", "clip 2"))
