"""One process or many, by the same calls: each is a no-op where there is only one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from common.engine.precision import distributed_backend, pick_device
from common.errors import DataError


class Dist(NamedTuple):
    """This process's place: rank among all, local_rank on its machine, and its device."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes logs and checkpoints."""
        return self.rank == 0


@contextmanager
def session(cpu: bool = False) -> Iterator[Dist]:
    """Join the other processes that torchrun (or multiproc.py) started, if it did; leave them at the end.

    DataError where another one is gone: it has said why, and this one's traceback would bury that.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = pick_device(local_rank, cpu)
    if "RANK" not in os.environ:
        yield Dist(0, 0, 1, device)
        return
    torch_dist.init_process_group(distributed_backend(device))
    try:
        yield Dist(torch_dist.get_rank(), local_rank, torch_dist.get_world_size(), device)
    except RuntimeError as error:
        if "closed by peer" not in str(error):  # Gloo's words, which have no type of their own
            raise
        raise DataError("another process of this run ended, for the reason it gave") from None
    finally:
        torch_dist.destroy_process_group()


def wrap(model: nn.Module, dist: Dist) -> nn.Module:
    """The model as training calls it: averaging gradients over all processes."""
    if dist.world_size == 1:
        return model
    device_ids = None if dist.device.type == "cpu" else [dist.device]
    return DistributedDataParallel(model, device_ids=device_ids)


def all_sum(tensor: Tensor, dist: Dist) -> Tensor:
    """The sum of every process's tensor, on every process."""
    if dist.world_size > 1:
        torch_dist.all_reduce(tensor)
    return tensor


def gather(value: Any, dist: Dist) -> list[Any]:
    """Every process's value by rank, on every process; tensors have to be on the CPU."""
    if dist.world_size == 1:
        return [value]
    values: list[Any] = [None] * dist.world_size
    torch_dist.all_gather_object(values, value)
    return values


def broadcast(value: Any, dist: Dist) -> Any:
    """The main process's value, on every process."""
    if dist.world_size == 1:
        return value
    values = [value]
    torch_dist.broadcast_object_list(values, src=0)
    return values[0]
