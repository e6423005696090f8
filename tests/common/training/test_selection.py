"""Weights chosen by regular expressions: to freeze, to leave out, to train at another pace."""

from __future__ import annotations

import argparse

import pytest
import torch
from torch import nn

from common.errors import UsageError
from common.training.optimization import RateFactor, factor_of, freeze, pattern, rate_factor, select_names, train_mode


def model() -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), nn.Conv1d(3, 3, 1), nn.BatchNorm1d(3))


def test_what_is_frozen_stays_with_its_statistics() -> None:
    net = model()
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


def test_a_batchnorm_with_a_weight_to_train_collects_statistics() -> None:
    net = model()
    freeze(net, [r"^1\.weight$"])
    train_mode(net)
    assert net[1].training and not net[1].weight.requires_grad


def test_nothing_is_frozen_unless_asked_for() -> None:
    net = model()
    freeze(net, [])
    train_mode(net)
    assert all(weight.requires_grad for weight in net.parameters())
    assert net[1].training


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["encodr", "^0", "zzz"], "--freeze: no weight's name matches 'encodr', 'zzz'; names start with 0, 1, 2, 3"),
        (["."], "--freeze: '.' leave no weight to train"),
    ],
)
def test_expressions_that_cannot_be_meant(patterns: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        freeze(model(), patterns)
    assert str(error.value).startswith(message)


def test_matching_is_a_search() -> None:
    assert select_names(["a.weight", "a.bias", "b.weight"], ["bias", "^b"], "--flag") == {"a.bias", "b.weight"}


@pytest.mark.parametrize(
    ("text", "wanted"), [("^encoder=0.1", ("^encoder", 0.1)), ("a=b=2", ("a=b", 2.0)), ("x=1e-3", ("x", 1e-3))]
)
def test_a_factor_by_flag(text: str, wanted: tuple[str, float]) -> None:
    assert rate_factor(text) == wanted


@pytest.mark.parametrize(
    "text", ["encoder", "=0.1", "encoder=", "encoder=0", "encoder=-1", "encoder=nan", "x=inf", "(=1"]
)
def test_what_is_no_factor(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        rate_factor(text)


def test_the_first_match_counts() -> None:
    factors = [RateFactor("lstm", 0.1), RateFactor("^encoder", 0.5)]
    found = [factor_of(name, factors) for name in ("encoder.lstm.bias", "encoder.conv", "decoder.lstm", "postnet")]
    assert found == [0.1, 0.5, 0.1, 1.0]


def test_what_is_no_expression() -> None:
    assert pattern("^a|b$") == "^a|b$"
    with pytest.raises(argparse.ArgumentTypeError, match=r"'a\(' is no regular expression: missing \), "):
        pattern("a(")
