"""The learning-rate range test against gradient descent on a quadratic, whose largest stable rate is 2/L."""

import json
import math
from pathlib import Path

import pytest
from torch import Tensor

from common.errors import DataError
from common.training import rate_test
from common.training.loader import Loaders
from common.training.optimization import Pace
from common.training.rate_test import SAFETY
from common.training.sampler import sampler_of
from tests.common.training.points import Errors, loader, make_state
from tests.recipe import flags, succeed


class Quadratic:
    """Gradient descent on f(x) = L x² / 2: x is multiplied by 1 - rate·L, which grows for rates above 2/L."""

    def __init__(self, curvature: float) -> None:
        self.curvature, self.x, self.steps = curvature, 1.0, 0

    def __call__(self, rate: float) -> float:
        loss = self.curvature * self.x**2 / 2
        self.x -= rate * self.curvature * self.x
        self.steps += 1
        return loss


@pytest.mark.parametrize("curvature", [0.5, 10.0, 3000.0])
def test_the_lowest_loss_of_a_quadratic_is_at_the_stable_limit(curvature: float) -> None:
    rates = rate_test.growing_rates(1e-6, 1e3, 200)
    problem = Quadratic(curvature)
    result = rate_test.range_test(problem, rates, smoothing=0.0)
    spacing = rates[1] / rates[0]
    assert 2 / curvature / spacing <= result.limit <= 2 / curvature
    assert result.suggestion == pytest.approx(result.limit / SAFETY)
    assert problem.steps < len(rates)  # it stopped at the explosion


def test_the_losses_of_a_test_do_not_depend_on_their_batches() -> None:
    rates = rate_test.growing_rates(1e-3, 1.0, 60)
    alone, levelled = Quadratic(1.0), Quadratic(1.0)
    levels = [0.0, 1000.0, -500.0, 7.0]
    step = rate_test.level_losses(lambda level, rate: level + levelled(rate), levels)
    assert levelled.x == 1  # the steps at a rate of 0 change nothing
    mean = sum(levels) / 4  # of the first losses, each of which is 1/2 above its level
    assert [step(rate) - mean for rate in rates] == pytest.approx([alone(rate) for rate in rates], abs=1e-9)


def test_rates_grow_by_one_factor_and_the_limit_has_the_lowest_smoothed_loss() -> None:
    assert rate_test.growing_rates(1e-4, 1.0, 5) == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0])
    losses = iter([4.0, 2.0, 6.0])
    result = rate_test.range_test(lambda rate: next(losses), [0.1, 0.2, 0.3], smoothing=0.5)
    assert [point.rate for point in result.points] == [0.1, 0.2]
    # weights 1/4, 1/2 and then 1/8, 1/4, 1/2, over their sums
    assert [point.smoothed for point in result.points] == pytest.approx([(1 + 1) / 0.75, (0.5 + 0.5 + 3) / 0.875])
    losses = iter([9.0, 1.0, 2.0])
    result = rate_test.range_test(lambda rate: next(losses), [0.1, 0.2, 0.3], smoothing=0.5)
    # (9/8 + 1/4 + 2/2) / (7/8) after it, (9/4 + 1/2) / (3/4) after 0.1, whose own loss is lower
    assert result.limit == 0.2
    for explodes, values in ((False, [10, 5, 20]), (True, [10, 5, 26]), (False, [10, 10.5]), (True, [-4, -6, 3])):
        assert rate_test.has_exploded(values) is explodes  # a rise of four times the fall
    losses = iter([3.0, 2.0, math.inf])
    assert rate_test.range_test(lambda rate: next(losses), [1, 2, 3, 4], smoothing=0.0).limit == 1
    with pytest.raises(DataError, match="no learning rate can be tested"):
        rate_test.range_test(lambda rate: math.nan, [1, 2])


def test_each_step_has_the_rate_of_the_test_and_the_batches_of_an_epoch_take_turns(tmp_path: Path) -> None:
    schedule = {"warmup_steps": 50, "lr_scaling": "linear", "lr_schedule": "cosine", "epochs": 1}
    state = make_state(pace=Pace(1, 6, 3), output=tmp_path, **schedule)
    rates: list[float] = []
    state.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    state.loaders = Loaders(loader(6, 2), loader(6, 2, training=False), Pace(3, 2, 2))
    rate_test.find_rate(state)
    assert len(rates) > 10 and rates[:3] == [0, 0, 0]
    assert rates[3:] == pytest.approx(rate_test.growing_rates()[: len(rates) - 3])
    data = loader(6, 2)
    sampler = sampler_of(data)
    sampler.start_at(0)
    expected = [tuple(f"clip {key.item}" for key in keys) for keys in sampler]
    for count in (2, 3, 8):
        assert [batch.names for (batch,) in rate_test.first_steps(data, count)] == expected[:count]


def test_a_step_that_is_not_finite_ends_the_test_and_not_the_command(tmp_path: Path) -> None:
    class Overflow(Errors):
        """Infinite from the ninth loss on, the first three of which are at a rate of 0."""

        calls = 0

        def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
            self.calls += 1
            return {"square": outputs.square().mean() * (math.inf if self.calls > 8 else 1.0)}

    state = make_state(criterion=Overflow(), pace=Pace(1, 6, 3), output=tmp_path)
    state.loaders = Loaders(loader(6, 2), loader(6, 2, training=False), Pace(3, 2, 2))
    assert "after 4 steps" in rate_test.find_rate(state)


@pytest.mark.slow
def test_the_flag_writes_a_plot_and_numbers_and_no_checkpoint(tmp_path: Path) -> None:
    out = succeed("train.py", *flags("WaveGlow", tmp_path), "--find-lr")
    numbers = json.loads((tmp_path / "learning_rate_WaveGlow.json").read_text())
    assert f"--learning-rate {numbers['suggestion']:.2g}" in out
    assert (tmp_path / "learning_rate_WaveGlow.png").read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("*.pt"))
    lowest = min(numbers["points"], key=lambda point: point["smoothed"])
    assert numbers["limit"] == lowest["rate"]
