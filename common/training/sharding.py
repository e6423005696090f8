"""Weights, gradients and averages sharded over all processes by PyTorch's FSDP2, and gathered for checkpoints.

Each block gathers its weights for its own forward and backward only. A process holds 1 / world_size of the state and one block's
weights. Zhao et al. 2023, "PyTorch FSDP", arXiv:2304.11277.

FSDP takes half a second to import, hence only where it is used: commands that never train import this file, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from common.run.distributed import Dist

SMALLEST_BLOCK = 0.01  # fraction of all weights; smaller blocks are gathered with the rest


def shard(model: nn.Module, dist: Dist, cpu_offload: bool) -> nn.Module:
    """Shard the main process's model in place, on every process. Blocks are its children, and the items of its lists.

    With cpu_offload the shards and the optimizer are on the CPU.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    # The models' outputs are views, but no code writes into them.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            # On a GPU it moves the gathered weights to a block of its own. FSDP gathers each step's weights into the memory of the
            # first ones: an LSTM that reads a block would read those forever.
            module.flatten_parameters = lambda: None  # type: ignore[method-assign]
    for tensor in model.state_dict().values():
        torch_dist.broadcast(tensor, src=0)  # other processes have other random weights
    mesh = init_device_mesh(dist.device.type, (dist.world_size,))
    policy = CPUOffloadPolicy(pin_memory=dist.device.type != "cpu") if cpu_offload else OffloadPolicy()
    least = SMALLEST_BLOCK * _size(model)
    for block in _blocks(model):
        if _size(block) >= least:
            fully_shard(block, mesh=mesh, offload_policy=policy)
    fully_shard(model, mesh=mesh, offload_policy=policy)
    return model


def is_sharded(model: nn.Module) -> bool:
    """True for a model whose parameters `shard` has sharded."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(weight, DTensor) for weight in model.parameters())


@contextmanager
def accumulate_only(trained: nn.Module) -> Iterator[None]:
    """Context in which backward adds to this process's gradients without an all-reduce."""
    from torch.distributed.fsdp import FSDPModule

    if isinstance(trained, DistributedDataParallel):
        with trained.no_sync():
            yield
    elif isinstance(trained, FSDPModule):
        trained.set_requires_gradient_sync(False)
        yield
        trained.set_requires_gradient_sync(True)
    else:
        yield


def share_buffers(model: nn.Module) -> None:
    """Copy the main process's BatchNorm statistics to every process; DistributedDataParallel does so itself, FSDP does not."""
    if is_sharded(model):
        for buffer in model.buffers():
            torch_dist.broadcast(buffer, src=0)


def gather_full(value: Any) -> Any:
    """Gather every sharded tensor in nested dicts and lists, on the CPU; every process has to call it."""
    from torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        return value.full_tensor().cpu()
    if isinstance(value, dict):
        return {key: gather_full(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(gather_full(item) for item in value)
    return value


def shard_like(value: Any, example: Any) -> Any:
    """Shard a full tensor as `example` is sharded; return the value itself where `example` is not sharded."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(example, DTensor) or not isinstance(value, Tensor) or value.shape != example.shape:
        return value
    on_device = value.to(example.device, example.dtype)
    return distribute_tensor(on_device, example.device_mesh, example.placements, src_data_rank=None)


def load(model: nn.Module, state_dict: dict[str, Tensor]) -> None:
    """Load full tensors into a model, sharded or not."""
    if not is_sharded(model):
        model.load_state_dict(state_dict)
        return
    with torch.no_grad():
        for name, mine in model.state_dict().items():
            mine.copy_(shard_like(state_dict[name], mine))


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else [child]


def _size(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
