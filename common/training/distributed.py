"""One process or many, by the same calls: each is a no-op where there is only one."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from common.errors import DataError, UsageError
from common.precision import distributed_backend, pick_device

COMPRESSIONS = ("none", "fp16", "bf16", "powersgd")
HALF_HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
PEER_IS_GONE = ("closed by peer", "Connection reset by peer")  # Gloo's words, which have no type of their own


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
def session(cpu: bool = False, always: bool = False, longest_wait: timedelta | None = None) -> Iterator[Dist]:
    """Join the other processes that torchrun (or multiproc.py) started, if it did; leave them at the end.

    With `always` a process by itself makes a group of one. A process waits for another one up to `longest_wait`, by default
    PyTorch's. Inside, keep models to functions that return before the end.
    DataError where another process is gone: it has said why, and this one's traceback would bury that.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = pick_device(local_rank, cpu)
    launched = "RANK" in os.environ
    if not launched and not always:
        yield Dist(0, 0, 1, device)
        return
    store, rank, world_size = _meeting_place() if launched else (torch_dist.HashStore(), 0, 1)
    backend = distributed_backend(device)
    torch_dist.init_process_group(backend, timeout=longest_wait, store=store, rank=rank, world_size=world_size)
    try:
        yield Dist(torch_dist.get_rank(), local_rank, torch_dist.get_world_size(), device)
    except RuntimeError as error:
        if not any(words in str(error) for words in PEER_IS_GONE):
            raise
        raise DataError("another process of this run ended, for the reason it gave") from None
    finally:
        # Whatever else holds the group has to go first: where DistributedDataParallel is the last to let go, it keeps Python's
        # lock while it waits for Gloo's thread, and that one for Python's lock.
        gc.collect()
        torch_dist.destroy_process_group()


def _meeting_place() -> tuple[torch_dist.Store, int, int]:
    """Where the processes of this launch find each other, this one's rank, and their number.

    torchrun keeps one store over all its restarts. Under the same names a process would find the addresses of those that are
    dead, and wait for them.
    """
    store, rank, world_size = next(torch_dist.rendezvous("env://"))
    name = f"restart_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    return torch_dist.PrefixStore(name, store), rank, world_size


def launch_id() -> str | None:
    """The name of a launch of several processes, the same after a restart; None without one."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")  # torchrun's own word for no name
    return None if name == "none" else name


def wrap(model: nn.Module, dist: Dist, *, bucket_cap_mb: float | None = None, compression: str = "none") -> nn.Module:
    """The model as training calls it: averaging gradients over all processes, in buckets that overlap with the backward.

    compression is one of COMPRESSIONS: float16 and bfloat16 halve what is sent, PowerSGD (Vogels et al. 2019,
    arXiv:1905.13727) sends factors of rank 1 after its first thousand steps and feeds the error back. UsageError for bfloat16
    between CPUs.
    """
    if dist.world_size == 1:
        return model
    device_ids = None if dist.device.type == "cpu" else [dist.device]
    wrapped = DistributedDataParallel(
        model, device_ids=device_ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
    )
    if compression == "powersgd":
        wrapped.register_comm_hook(PowerSGDState(None), powerSGD_hook)
    elif compression != "none":
        try:
            wrapped.register_comm_hook(None, HALF_HOOKS[compression])
        except TypeError as error:  # PyTorch sends bfloat16 between GPUs only
            raise UsageError(f"--grad-compression {compression}: {error}; fp16 works everywhere") from None
    return wrapped


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
