"""The functions of the published train.py that a script may need; for the others, SUCCESSORS names what takes their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from common.checkpoint.files import find_last
from common.training.optimization import annealed_rate

SUCCESSORS = {
    "parse_args": "common.training.arguments.parse_training_arguments",
    "init_distributed": "common.run.distributed.session",
    "save_checkpoint": "common.training.snapshot.save",
    "load_checkpoint": "models.load_model, or common.training.snapshot.restore for a training's state",
}


def refuse(name: str) -> NoReturn:
    """Raise ImportError for a name of the published train.py that is gone, AttributeError for any other."""
    if name in SUCCESSORS:
        raise ImportError(
            f"train.{name} of the published recipe: {SUCCESSORS[name]} takes its place (docs/compatibility.md)"
        )
    raise AttributeError(f"module 'train' has no attribute {name!r}")


def reduce_tensor(tensor: Tensor, num_gpus: int) -> Tensor:
    """Return the mean of a tensor over all processes."""
    total = tensor.clone()
    torch.distributed.all_reduce(total)
    return total / num_gpus


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode within the block."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def adjust_learning_rate(
    iteration: int,
    epoch: int,
    optimizer: torch.optim.Optimizer,
    learning_rate: float,
    anneal_steps: Sequence[int] | None,
    anneal_factor: float,
    rank: int = 0,
) -> None:
    """Set the rate of an epoch: learning_rate times a power of anneal_factor, the number of anneal_steps that it has reached."""
    for group in optimizer.param_groups:
        group["lr"] = annealed_rate(learning_rate, epoch, anneal_steps or (), anneal_factor)


def get_last_checkpoint_filename(output_dir: str, model_name: str) -> str:
    """Return the path of the last checkpoint of a model, "" if there is none."""
    return str(find_last(Path(output_dir), model_name) or "")
