"""Process groups: calls of one process, which are no-ops, restarts, and the end of a group; test_two_processes has two at work."""

from __future__ import annotations

import multiprocessing
import os
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import nn

from common.errors import DataError
from common.run import distributed
from common.run.distributed import Dist

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


def one_of_a_restart(rank: int, port: int, restart: int, delay: float) -> None:
    """Meets the other process in a store that has outlived earlier ones, as torchrun's does."""
    os.environ |= ADDRESS | {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(restart)}
    time.sleep(delay * rank)  # rank 0 looks before rank 1 has written
    with distributed.session(True) as dist:
        assert distributed.all_sum(torch.tensor(1.0 + rank), dist) == 3
        os._exit(0)  # as a killed process: it takes nothing back


@pytest.mark.slow
def test_processes_that_start_again_do_not_wait_for_the_dead() -> None:
    multiprocessing.set_forkserver_preload(["common.training.sharding"])  # the processes are its forks
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for restart in range(3):  # whether a stale address does harm depends on its port's number
        processes: Any = torch.multiprocessing.start_processes(
            one_of_a_restart, (store.port, restart, 0.2), 2, join=False, start_method="forkserver"
        )
        try:
            deadline = time.monotonic() + 200
            while not processes.join(timeout=1):
                assert time.monotonic() < deadline
        finally:
            for process in processes.processes:
                process.kill()


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
