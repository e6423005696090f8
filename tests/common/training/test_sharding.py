"""A sharded LSTM where cuDNN would move its weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from common.run import distributed
from common.training import sharding

pytestmark = pytest.mark.slow


def move_to_a_block(lstm: nn.LSTM) -> None:
    """flatten_parameters as it acts on a GPU: the weights become views of another memory."""
    if not any(isinstance(weight, DTensor) for weight in lstm._flat_weights):
        with torch.no_grad():
            for weight in lstm._flat_weights:
                weight.set_(weight.detach().clone())  # type: ignore[union-attr, call-overload]


def outputs_of_steps(lstm: nn.LSTM, x: Tensor) -> list[Tensor]:
    optimizer = torch.optim.SGD(lstm.parameters(), lr=0.5)
    outputs = []
    for _ in range(3):
        out, _ = lstm(x)
        outputs.append(out.detach().clone())
        out.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return outputs


def test_an_lstm_computes_with_the_weights_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 5, 3)
    torch.manual_seed(1)
    wanted = outputs_of_steps(nn.LSTM(3, 4, batch_first=True), x)
    torch.manual_seed(1)
    lstm = nn.LSTM(3, 4, batch_first=True)
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", move_to_a_block)
    with distributed.session(cpu=True, always=True) as dist:
        got = outputs_of_steps(sharding.shard(lstm, dist, cpu_offload=False), x)  # type: ignore[arg-type]
        del lstm
    assert not torch.allclose(wanted[0], wanted[2], atol=0.01)
    for mine, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, want)
