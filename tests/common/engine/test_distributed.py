"""The same calls on one process, where they are no-ops, and on two, joined by Gloo."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from torch import nn

from common.engine import distributed
from common.engine.distributed import Dist

ONE = Dist(0, 0, 1, torch.device("cpu"))


def test_one_process_is_left_alone(monkeypatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with distributed.session(cpu=True) as dist:
        assert dist == ONE
        assert dist.is_main
        assert not torch.distributed.is_initialized()
    model, tensor = nn.Linear(2, 2), torch.arange(3.0)
    assert distributed.wrap(model, ONE) is model
    assert torch.equal(distributed.all_sum(tensor, ONE), torch.arange(3.0))
    assert distributed.gather("mine", ONE) == ["mine"]
    assert distributed.broadcast("mine", ONE) == "mine"


def one_of_two(rank: int, port: int, folder: str) -> None:
    """What each of two processes, on two machines as far as LOCAL_RANK goes, sees of both."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }
    with distributed.session(cpu=True) as dist:
        torch.manual_seed(rank)
        model = distributed.wrap(nn.Linear(2, 1, bias=False), dist)
        x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])[rank : rank + 1]
        model(x).square().sum().backward()
        seen = {
            "dist": (dist.rank, dist.local_rank, dist.world_size, dist.is_main),
            "sum": distributed.all_sum(torch.tensor([1.0 + rank, 10.0]), dist),
            "gathered": distributed.gather({"rank": rank, "x": x}, dist),
            "broadcast": distributed.broadcast(f"from {rank}", dist),
            "weight": model.module.weight.detach(),
            "gradient": model.module.weight.grad,
        }
        torch.save(seen, Path(folder, f"{rank}.pt"))
    assert not torch.distributed.is_initialized()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(one_of_two, args=(port, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def test_the_rank_is_the_global_one(both: list[dict]) -> None:
    assert [seen["dist"] for seen in both] == [(0, 0, 2, True), (1, 0, 2, False)]


def test_collectives_reach_every_process(both: list[dict]) -> None:
    for seen in both:
        assert seen["sum"].tolist() == [3.0, 20.0]
        assert [item["rank"] for item in seen["gathered"]] == [0, 1]
        assert [item["x"].tolist() for item in seen["gathered"]] == [[[1.0, 2.0]], [[3.0, -1.0]]]
        assert seen["broadcast"] == "from 0"


def test_gradients_are_the_mean_over_processes(both: list[dict]) -> None:
    weight = both[0]["weight"]
    assert torch.equal(weight, both[1]["weight"])
    torch.manual_seed(0)
    assert torch.equal(weight, nn.Linear(2, 1, bias=False).weight)  # the main process's
    xs = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    wanted = (2 * (xs @ weight.T) * xs).mean(0, keepdim=True)  # of the derivative of (x·w)²
    for seen in both:
        assert torch.allclose(seen["gradient"], wanted, atol=1e-5)
