"""The same calls on one process, where they are no-ops, and on two, joined by Gloo."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from common.errors import DataError, UsageError
from common.run import distributed
from common.run.distributed import Dist
from common.run.memory import state_bytes
from common.training.sharding import accumulate_only
from tests.recipe import free_port

pytestmark = pytest.mark.slow

ONE, ADDRESS = Dist(0, 0, 1, torch.device("cpu")), {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}


def test_one_process_is_left_alone(monkeypatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "3")  # alone it is of no process
    with distributed.session(cpu=True) as dist:
        assert dist == ONE
        assert dist.is_main
        assert not torch.distributed.is_initialized()
    model, tensor = nn.Linear(2, 2), torch.arange(3.0)
    assert distributed.wrap(model, ONE) is model
    assert torch.equal(distributed.all_sum(tensor, ONE), torch.arange(3.0))
    assert distributed.gather("mine", ONE) == ["mine"]
    assert distributed.broadcast("mine", ONE) == "mine"
    for value, name in (("job 7", "job 7"), ("none", None)):  # "none" is torchrun's default
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", value)
        assert distributed.launch_id() == name
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert distributed.launch_id() is None


def averaged_gradient(compression: str, dist: Dist) -> torch.Tensor:
    """The average gradient of a weight whose gradient in each process is (2 rank + 1) / 7 times 0, 1, 2 …"""
    model = nn.Linear(64, 64, bias=False)
    wrapped = distributed.wrap(model, dist, bucket_cap_mb=1, compression=compression)
    x = torch.arange(64.0)[None] * (2 * dist.rank + 1) / 7
    wrapped(x).sum().backward()
    assert model.weight.grad is not None
    return model.weight.grad


def held_back_gradient(x: torch.Tensor, dist: Dist) -> torch.Tensor:
    """The gradient of the sum over two batches, of which the first is not averaged by itself."""
    model = nn.Linear(2, 1, bias=False)
    wrapped = distributed.wrap(model, dist)
    with accumulate_only(wrapped):
        wrapped(x).sum().backward()
    assert torch.equal(model.weight.grad, x)  # this process's own
    wrapped(2 * x).sum().backward()
    return model.weight.grad


def start(function: Callable[..., None], *arguments: Any, join: bool = True) -> Any:
    """Call a function with 0 and with 1 in two processes, forked from one that has imported PyTorch."""
    multiprocessing.set_forkserver_preload(["common.training.sharding"])
    return torch.multiprocessing.start_processes(function, arguments, 2, join, start_method="forkserver")


def own_part_of_a_weight() -> tuple[int, ...]:
    """The bytes of a process's part of a weight of five rows, which is cut by rows."""
    model = nn.Linear(4, 5, bias=False)
    weight = distribute_tensor(model.weight.detach(), init_device_mesh("cpu", (2,)), [Shard(0)])
    model.weight = nn.Parameter(weight)
    return tuple(state_bytes(model))


def one_of_two(rank: int, port: int, folder: str) -> None:
    """Gather values of two processes in each of them; LOCAL_RANK places them on two machines."""
    os.environ |= ADDRESS | {"RANK": str(rank), "LOCAL_RANK": "0", "MASTER_PORT": str(port)}
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
            "compressed": {kind: averaged_gradient(kind, dist) for kind in ("none", "fp16", "powersgd")},
            "held back": held_back_gradient(x, dist),
            "own part": own_part_of_a_weight(),
        }
        with pytest.raises(UsageError) as refusal:
            averaged_gradient("bf16", dist)
        seen["refused"] = str(refusal.value)
        torch.save(seen, Path(folder, f"{rank}.pt"))
    assert not torch.distributed.is_initialized()


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("two")
    start(one_of_two, free_port(), str(folder))
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def one_of_a_restart(rank: int, port: int, restart: int, delay: float) -> None:
    """Meets the other process in a store that has outlived earlier ones, as torchrun's does."""
    os.environ |= ADDRESS | {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(restart)}
    time.sleep(delay * rank)  # rank 0 looks before rank 1 has written
    with distributed.session(True) as dist:
        assert distributed.all_sum(torch.tensor(1.0 + rank), dist) == 3
        os._exit(0)  # as a killed process: it takes nothing back


def test_processes_that_start_again_do_not_wait_for_the_dead() -> None:
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for restart in range(3):  # whether a stale address does harm depends on its port's number
        processes = start(one_of_a_restart, store.port, restart, 0.5, join=False)
        try:
            deadline = time.monotonic() + 200
            while not processes.join(timeout=1):
                assert time.monotonic() < deadline
        finally:
            for process in processes.processes:
                process.kill()


def test_the_rank_is_the_global_one_and_collectives_reach_every_process(both: list[dict]) -> None:
    assert [seen["dist"] for seen in both] == [(0, 0, 2, True), (1, 0, 2, False)]
    rows = [(48, 48, 96), (32, 32, 64)]  # of 16 bytes, of a sharded weight: three, and the other two
    assert [seen["own part"] for seen in both] == rows
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
        torch.testing.assert_close(seen["held back"], 3 * xs.mean(0, keepdim=True))  # averaged with the last


def test_compressed_gradients_are_the_mean_to_their_precision(both: list[dict]) -> None:
    wanted = (torch.arange(64.0) * 2 / 7).expand(64, 64)
    for kind, precision in (("none", 2**-22), ("fp16", 2**-10), ("powersgd", 2**-22)):
        for seen in both:
            torch.testing.assert_close(seen["compressed"][kind], wanted, rtol=precision, atol=0)
    # a seventh has more digits than half precision, so the compressed one differs
    assert not torch.equal(both[0]["compressed"]["fp16"], both[0]["compressed"]["none"])
    assert both[0]["refused"].startswith("--grad-compression bf16: BF16 all reduce")
    assert both[0]["refused"].endswith("fp16 works everywhere")


@pytest.fixture
def pretended_group(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options that a group of one, which does not exist, begins with, and "destroyed": how often it is."""
    options: dict[str, Any] = {"destroyed": 0}
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(distributed.torch_dist, "init_process_group", lambda *_, **words: options.update(words))
    monkeypatch.setattr(distributed.torch_dist, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed.torch_dist, "get_world_size", lambda: 1)
    count = lambda: options.update(destroyed=options["destroyed"] + 1)  # noqa: E731
    monkeypatch.setattr(distributed.torch_dist, "destroy_process_group", count)
    return options


@pytest.mark.parametrize(("device", "after_error"), [("cpu", 1), ("cuda", 0)])
def test_processes_wait_for_a_main_one_that_evaluates_and_an_error_on_a_gpu_leaves_the_group(
    device: str, after_error: int, pretended_group: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's default of 10 minutes may be too short. After an error it would wait, too: for processes that wait for this one."""
    monkeypatch.setattr(distributed, "pick_device", lambda *_: torch.device(device))
    with pytest.raises(DataError, match="no room"), distributed.session(always=True):
        raise DataError("no room")
    assert pretended_group["destroyed"] == after_error
    with distributed.session(always=True):
        pass
    assert pretended_group["destroyed"] == after_error + 1
    assert pretended_group["timeout"] == timedelta(minutes=30)
