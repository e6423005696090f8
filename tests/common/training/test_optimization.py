"""Learning rates by their formulas, Adam's groups and averages by name, and the moving average by its closed form."""

import argparse
import math
import re
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

from common.errors import UsageError
from common.training.optimization import (
    OptimizationConfig,
    Pace,
    RateFactor,
    annealed_rate,
    factor_of,
    freeze,
    make_optimizer,
    moving_average,
    pattern,
    rate_at,
    rate_factor,
    restore_averages,
    select_names,
    set_rate,
    train_mode,
)

PACE = Pace(steps_per_epoch=10, global_batch=36, usual_batch=4)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def train(config: OptimizationConfig, steps: int = 3) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    net = model()
    optimizer = make_optimizer(net, config)
    for step in range(steps):
        net(torch.full((2, 3), 1.0 + step)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net, optimizer


@pytest.mark.parametrize(("factor", "ratios"), [(0.3, [1, 0.3, 0.1, 0.03, 0.01]), (0.5, [1, 0.5, 0.25, 0.125, 0.0625])])
def test_the_rate_falls_at_each_milestone(factor: float, ratios: list[float]) -> None:
    milestones = [500, 1000, 1500, 1600]
    for epochs, ratio in zip([(0, 1, 499), (500, 999), (1000, 1499), (1500, 1599), (1600, 9999)], ratios, strict=True):
        for epoch in epochs:
            assert annealed_rate(1e-3, epoch, milestones, factor) == pytest.approx(1e-3 * ratio, rel=1e-12)
    assert annealed_rate(1e-3, 9999, [], factor) == 1e-3


def test_a_cosine_from_the_rate_to_nothing() -> None:
    config = OptimizationConfig(learning_rate=0.2, lr_schedule="cosine", epochs=4, warmup_steps=8)
    rates = [rate_at(config, PACE, step / 10, step) for step in range(41)]
    cosine = [0.1 * (1 + math.cos(math.pi * step / 40)) for step in range(41)]
    assert rates[:8] == pytest.approx([cosine[step] * (step + 1) / 8 for step in range(8)])
    assert rates[8:] == pytest.approx(cosine[8:])
    assert rate_at(config, PACE, 9, 90) == pytest.approx(0, abs=1e-12)  # --epochs was lowered since
    assert rate_at(config, Pace(99, 4, 4), 2.0, 198) == rates[20]  # smaller batches since: the rate goes by epochs


def test_warm_up_before_annealing_no_schedule_and_rates_that_grow_with_the_batch() -> None:
    config = OptimizationConfig(learning_rate=1e-3, anneal_steps=[2], anneal_factor=0.1, warmup_steps=4)
    rates = [rate_at(config, PACE, step // 10, step) for step in (0, 3, 4, 19, 20)]
    assert rates == pytest.approx([2.5e-4, 1e-3, 1e-3, 1e-3, 1e-4])
    constant = OptimizationConfig(learning_rate=1e-3, anneal_steps=[2], lr_schedule="constant")
    assert {rate_at(constant, PACE, epoch, 10 * epoch) for epoch in range(9)} == {1e-3}
    for scaling, factor in (("none", 1), ("sqrt", 3), ("linear", 9)):
        config = OptimizationConfig(learning_rate=1e-3, lr_scaling=scaling)
        assert rate_at(config, PACE, 0, 0) == pytest.approx(factor * 1e-3)


def test_each_group_has_its_own_rate() -> None:
    """Adam's first step is as long as the rate, whatever the gradient."""
    config = OptimizationConfig(lr_scale=[RateFactor(r"^0\.weight", 0.25), RateFactor("^0", 3.0)])
    net = model()
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    optimizer = make_optimizer(net, config)
    set_rate(optimizer, 1e-2)
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    for name, factor in (("0.weight", 0.25), ("0.bias", 3.0), ("2.weight", 1.0), ("2.bias", 1.0)):
        moved = (net.get_parameter(name) - before[name]).abs()
        torch.testing.assert_close(moved, torch.full_like(moved, 1e-2 * factor), rtol=1e-3, atol=0)


def test_the_two_adams_are_the_same_and_apex_where_it_is_missing_and_where_it_is(monkeypatch) -> None:
    fused, plain = (train(OptimizationConfig(optimizer=name))[0] for name in ("fused-adam", "adam"))
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(fused.get_parameter(name), weight)
    config = OptimizationConfig(optimizer="apex-fused-adam", learning_rate=0.5, weight_decay=0.25)
    with pytest.raises(UsageError, match="--optimizer apex-fused-adam: NVIDIA Apex is not here"):
        make_optimizer(model(), config)

    def fused_adam(params, lr, weight_decay, adam_w_mode):
        """Takes what Apex's takes; L2 penalty where adam_w_mode is off."""
        return (torch.optim.AdamW if adam_w_mode else torch.optim.SGD)(params, lr=lr, weight_decay=weight_decay)

    for name in ("apex", "apex.optimizers"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["apex.optimizers"].FusedAdam = fused_adam  # type: ignore[attr-defined]
    optimizer = make_optimizer(model(), config)
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(0.5, 0.25)]
    assert isinstance(optimizer, torch.optim.SGD)
    net, ours = train(OptimizationConfig())
    saved = ours.state_dict()
    saved["state"][0]["step"] = torch.tensor(1.0)  # a weight that was frozen for two steps
    names = [name for name, _ in net.named_parameters()]
    assert restore_averages(optimizer, saved, names) == 0
    assert optimizer.param_groups[0]["step"] == 3
    (group,) = saved["param_groups"]  # of Apex, which counts the steps of a group
    del group["param_names"]
    for state in saved["state"].values():
        del state["step"]
    fresh = make_optimizer(net, OptimizationConfig())
    assert restore_averages(fresh, saved | {"param_groups": [group | {"step": 11}]}, names) == 0
    assert {float(state["step"]) for state in fresh.state.values()} == {11.0}


def test_averages_find_their_weights_in_other_groups() -> None:
    net, optimizer = train(OptimizationConfig())
    saved, names = optimizer.state_dict(), [name for name, _ in net.named_parameters()]
    by_name = {name: optimizer.state[weight] for name, weight in net.named_parameters()}
    other = model()
    other[0].bias.requires_grad_(False)
    regrouped = make_optimizer(other, OptimizationConfig(lr_scale=[RateFactor("weight", 0.5)], learning_rate=7.0))
    assert restore_averages(regrouped, saved, names) == 0
    assert {group["lr"] for group in regrouped.param_groups} == {7.0}
    for name, weight in other.named_parameters():
        if name == "0.bias":
            assert weight not in regrouped.state
        else:
            assert torch.equal(regrouped.state[weight]["exp_avg"], by_name[name]["exp_avg"])
            assert regrouped.state[weight]["step"] == 3
    # and back: frozen weights have no averages to go on from
    again = make_optimizer(model(), OptimizationConfig())
    assert restore_averages(again, regrouped.state_dict(), names) == 1


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("param_names", ["0.bias", "0.wieght"], "1 of them name no weight of the model, '0.wieght' for one"),
        ("param_names", ["module.0.weight", "module.0.bias"], "param_names: 2 of them name no weight"),
        ("params", [7, 8], "state: averages of 2 weights, whose numbers are not in params"),
    ],
)
def test_averages_of_no_weight_are_refused(key: str, values: list[Any], message: str) -> None:
    """They were dropped, with a note that these weights had not been trained."""
    net, optimizer = train(OptimizationConfig())
    saved, names = optimizer.state_dict(), [name for name, _ in net.named_parameters()]
    values = [*values, *saved["param_groups"][0][key][len(values) :]]
    saved["param_groups"][0] = saved["param_groups"][0] | {key: values}
    with pytest.raises(ValueError, match=re.escape(message)):
        restore_averages(make_optimizer(model(), OptimizationConfig()), saved, names)


def test_the_moving_average_is_a_weighted_sum_of_the_past() -> None:
    net = nn.Linear(1, 1, bias=False)
    average = moving_average(net, 0.3)
    assert average is not None
    values = [2.0, -1.0, 5.0, 0.5, 3.0]
    for value in values:
        nn.init.constant_(net.weight, value)
        average.update_parameters(net)
    decays = [2 / 11, 3 / 12, 0.3, 0.3]  # (1 + n) / (10 + n) after n values, until that is above 0.3
    wanted = values[0]
    for decay, value in zip(decays, values[1:], strict=True):
        wanted = decay * wanted + (1 - decay) * value
    assert average.module.weight.item() == pytest.approx(wanted)


def test_the_average_has_the_models_statistics_and_lstms_in_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy's are apart, which cuDNN gathers in every call, with a warning."""
    flattened: list[nn.Module] = []
    model = nn.Sequential(nn.LSTM(2, 3))
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", lambda lstm: flattened.append(lstm))
    average = moving_average(model, 0.9)
    assert average is not None and flattened == [average.module[0]]
    net = nn.BatchNorm1d(2)
    average = moving_average(net, 0.9)
    assert average is not None
    for shift in (0.0, 5.0, -3.0):
        net(torch.tensor([[1.0, 2.0], [4.0, -2.0]]) + shift)
        average.update_parameters(net)
        for name, buffer in net.named_buffers():
            assert torch.equal(average.module.get_buffer(name), buffer), name


def test_weight_decay_is_a_term_of_the_gradient() -> None:
    """As in the published recipe: Adam with L2, whose first step is rate x sign(weight) here; AdamW's is rate x decay x weight."""
    net = nn.Linear(2, 1, bias=False)
    net.weight.data = torch.tensor([[0.5, -2.0]])
    optimizer = make_optimizer(net, OptimizationConfig(learning_rate=0.125, weight_decay=0.01))
    net.weight.grad = torch.zeros(1, 2)
    optimizer.step()
    assert net.weight.tolist() == [pytest.approx([0.375, -1.875], abs=1e-5)]


def convolutions() -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3))


def test_what_is_frozen_stays_with_its_statistics_unless_a_weight_is_trained() -> None:
    net = convolutions()
    freeze(net, [r"^[01]\."])
    train_mode(net)
    trained = [name for name, weight in net.named_parameters() if weight.requires_grad]
    assert trained == ["2.weight", "2.bias", "3.weight", "3.bias"]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    optimizer = torch.optim.SGD([weight for weight in net.parameters() if weight.requires_grad], lr=0.1)
    net(torch.randn(4, 2, 5)).square().sum().backward()
    optimizer.step()
    moved = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[0] for name in moved} == {"2", "3"}
    assert {"3.running_mean", "3.num_batches_tracked"} <= moved
    net = convolutions()
    freeze(net, [r"^1\.weight$"])
    train_mode(net)
    assert net[1].training and not net[1].weight.requires_grad


def test_matching_is_a_search_whose_first_match_counts_and_expressions_that_cannot_be_meant() -> None:
    message = "^--freeze: no weight's name matches 'encodr', 'zzz'; names start with 0, 1, 2, 3"
    with pytest.raises(UsageError, match=message):
        freeze(convolutions(), ["encodr", "^0", "zzz"])
    with pytest.raises(UsageError, match=r"^--freeze: '\.' leave no weight to train"):
        freeze(convolutions(), ["."])
    assert select_names(["a.weight", "a.bias", "b.weight"], ["bias", "^b"], "--flag") == {"a.bias", "b.weight"}
    assert [rate_factor(text) for text in ("^encoder=0.1", "a=b=2")] == [("^encoder", 0.1), ("a=b", 2.0)]
    factors = [RateFactor("lstm", 0.1), RateFactor("^encoder", 0.5)]
    found = [factor_of(name, factors) for name in ("encoder.lstm.bias", "encoder.conv", "decoder.lstm", "postnet")]
    assert found == [0.1, 0.5, 0.1, 1.0]
    assert pattern("^a|b$") == "^a|b$"
    for text in ("encoder", "=0.1", "encoder=", "encoder=0", "encoder=-1", "encoder=nan", "x=inf", "(=1"):
        with pytest.raises(argparse.ArgumentTypeError):
            rate_factor(text)
    with pytest.raises(argparse.ArgumentTypeError, match=r"'a\(' is no regular expression: missing \), "):
        pattern("a(")
