"""Epochs and validation of the training loop on a linear model, whose every number has a closed form."""

import dataclasses
import math
import signal
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.errors import DataError
from common.run.interrupt import SaveTimer, StopRequest
from common.spec import Preview
from common.training.loop import Ending, RunTotals, log_epoch, steady_rate, to_device, train_epoch
from common.training.state import EpochTotals
from common.training.validation import validate
from tests.common.training.points import Errors, Notes, Points, PointsDataset, change, loader, make_state


def test_an_epoch_logs_each_iteration_and_its_own_means() -> None:
    state, notes = make_state(), Notes()
    state.progress.epoch, state.progress.iteration = 3, 9
    assert train_epoch(state, loader(7, 2), notes, StopRequest()) is Ending.EPOCH
    means = log_epoch(state, notes, 120.0)
    assert [step for step, _ in notes.records] == [(3, 0), (3, 1), (3, 2), (3,)]
    *iterations, last = (data for _, data in notes.records)
    losses = [data["train_loss"] for data in iterations]
    assert [data["glob_iter/iters_per_epoch"] for data in iterations] == ["9/3", "10/3", "11/3"]
    for data in iterations:
        rate = pytest.approx(20 / data["train_iter_time"])
        assert data["train_items_per_sec"] == data["train_iter_items/sec"] == rate
    rates = {"train_items_per_sec", "train_epoch_items/sec"}
    assert (
        set(means) == {"train_loss", "train_epoch_time", "train_data_wait_share", "time_left", "planned_epochs"} | rates
    )
    assert means == last and means["time_left"] == 120 and means["planned_epochs"] == state.progress.plan.last
    assert state.rates == notes.shown["train/items_per_sec"]
    assert means["train_loss"] == pytest.approx(sum(losses) / 3)
    assert means["train_epoch_time"] == pytest.approx(sum(data["train_iter_time"] for data in iterations))
    assert means["train_items_per_sec"] == pytest.approx(60 / means["train_epoch_time"])
    assert notes.shown["train/loss"] == losses
    terms = zip(notes.shown["train/loss_square"], notes.shown["train/loss_absolute"], strict=True)
    assert list(map(sum, terms)) == pytest.approx(losses)
    assert (state.progress.iteration, state.progress.totals.iterations, state.progress.totals.clips) == (12, 3, 6)


def test_a_stop_ends_an_epoch_after_the_step_before_a_save_and_at_its_end_is_no_stop() -> None:
    state, notes, data = make_state(), Notes(), loader(6, 2)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        endings = [train_epoch(state, data, notes, stop) for _ in range(3)]
    assert endings == [Ending.STOP, Ending.STOP, Ending.EPOCH]
    assert [step for step, _ in notes.records] == [(0, 0), (0, 1), (0, 2)]
    state = make_state()
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

    state = make_state(Modes(), Term())
    for _ in range(2):
        notes = Notes()
        train_epoch(state, loader(4, 2), notes, StopRequest())
        assert notes.shown["train/loss"] == [3.25, 3.25]
        assert validate(state, loader(4, 2, training=False), None, Notes())["val_loss"] == 5.5
        state.progress.totals = EpochTotals()


def test_validation_uses_the_average_and_its_own_random_numbers() -> None:
    model = nn.Sequential(nn.Linear(2, 1))
    state = make_state(model, ema_decay=0.5)
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


def test_validation_is_the_mean_over_clips_and_moves_nothing_and_its_rates_are_items_a_second() -> None:
    state, notes = make_state(), Notes()
    state.progress.epoch, state.progress.iteration, state.progress.totals.iterations = 2, 11, 5
    before, start = torch.get_rng_state(), time.perf_counter()
    result = validate(state, loader(5, 2, training=False), None, notes)
    elapsed = time.perf_counter() - start
    assert torch.equal(torch.get_rng_state(), before)
    assert [step for step, _ in notes.records] == [(2, 5, 0), (2, 5, 1), (2, 5, 2), (2,)]
    errors = [abs(0.5 * item - 0.25 + 0.125 - 2 * item) for item in range(5)]
    losses = [error**2 + error for error in errors]
    batches = [sum(losses[:2]) / 2, sum(losses[2:4]) / 2, losses[4]]
    assert [data["val_loss"] for _, data in notes.records[:3]] == pytest.approx(batches, rel=1e-5)
    assert result["val_loss"] == pytest.approx(sum(losses) / 5, rel=1e-5)
    assert notes.records[-1][1] == result
    assert (notes.shown["validation/loss"], notes.places) == ([result["val_loss"]], {"validation": 11})
    assert state.model.weight.grad is None
    seconds = [n / data["val_items_per_sec"] for n, (_, data) in zip((20, 40, 50, 50), notes.records, strict=True)]
    assert seconds == sorted(seconds) and seconds[0] > 0 and seconds[-1] <= elapsed


def test_a_preview_that_cannot_be_made_is_no_reason_to_stop() -> None:
    state, notes = make_state(), Notes()

    def refuse(*_: object) -> Preview:
        raise DataError("log-mels with values that are NaN")

    change(state, spec=dataclasses.replace(state.setup.spec, preview=refuse))
    result = validate(state, loader(4, 2, training=False), object(), notes)  # type: ignore[arg-type]
    assert math.isfinite(result["val_loss"])
    assert notes.said == ["no preview of this validation: log-mels with values that are NaN"]


def test_run_totals() -> None:
    totals, notes = RunTotals(), Notes()
    for rate, loss in ((100.0, 3.0), (300.0, 2.0)):
        totals.epochs.append({"train_items_per_sec": rate, "train_loss": loss})
    totals.validation = {"val_loss": 2.5, "val_items_per_sec": 50.0}
    totals.log(notes, [1.0] * 10 + [70.0, 90.0, 80.0])
    ((step, data),) = notes.records
    assert step == () and 0 <= data.pop("run_time") < 60
    last = {"train_loss": 2.0, "train_items_per_sec": 200.0, "val_loss": 2.5, "val_items_per_sec": 50.0}
    assert data == last | {"train_steady_items_per_sec": 80.0}  # the median without the first ten
    for rates, steady in (([5.0], 5.0), ([1.0, 4.0], 4.0), ([1.0, 1.0, 2.0, 9.0, 3.0], 3.0)):
        assert steady_rate(rates) == steady


def test_the_share_of_waiting_is_the_time_the_loader_takes(monkeypatch) -> None:
    """By a clock that moves by 3 s where a batch is read, and by 1 s in a forward: four times each."""
    state, data, clock = make_state(), loader(8, 2), [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def take(seconds: float, result: Any) -> Any:
        clock[0] += seconds
        return result

    fetch = data.collate_fn
    data.collate_fn = lambda items: take(3, fetch(items))
    state.trained.register_forward_hook(lambda *_: take(1, None))
    train_epoch(state, data, Notes(), StopRequest())
    assert log_epoch(state, Notes(), 0.0)["train_data_wait_share"] == 0.75
    assert (state.progress.totals.waited, state.progress.totals.seconds) == (12, 16)
    moved = to_device(PointsDataset(3).collate([0, 2]), torch.device("meta"))  # keeps its type and its names
    assert (type(moved), moved.x.device.type, moved.names) == (Points, "meta", ("clip 0", "clip 2"))


def test_a_save_timer_is_due_once_an_interval(monkeypatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    timer = SaveTimer(2.0)
    for seconds, due in ((119.0, False), (1.0, True), (50.0, True)):
        clock[0] += seconds
        assert timer.due is due
    timer.restart()
    clock[0] += 119.0
    assert not timer.due
