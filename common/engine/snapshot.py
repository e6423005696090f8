"""Training state to checkpoint and back."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from common.engine import distributed, precision
from common.engine.checkpoint import (
    checkpoint_path,
    current_layout,
    find_last,
    last_link,
    load_weights,
    save_checkpoint,
)
from common.engine.distributed import Dist
from common.engine.training import EpochTotals, TrainState
from common.errors import DataError
from common.sound.stft import AudioConfig
from common.spec import config_of


def stored_data_options(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    """The flags that inference needs to treat text and audio as training did."""
    return {name: getattr(args, name) for name in (*(field.name for field in fields(AudioConfig)), *names)}


def save(state: TrainState, data: dict[str, Any], args: argparse.Namespace, epoch_complete: bool = True) -> Path:
    """Write checkpoint_{model}_{epoch}.pt and point the `last` link at it; every process has to call it."""
    path = checkpoint_path(args.output, state.spec.name, state.epoch)
    cpu_state, gpu_state = precision.rng_states(state.dist.device)
    rng = distributed.gather((cpu_state, gpu_state), state.dist)
    if not state.dist.is_main:
        return path
    gpu_states = [gpu for _, gpu in rng if gpu is not None]
    checkpoint = {
        "epoch": state.epoch,
        "epoch_complete": epoch_complete,
        "iteration": state.iteration,
        "epoch_totals": asdict(state.totals),
        "config": config_of(state.model),
        "data": data,
        "seed": args.seed,
        "state_dict": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "scaler": state.scaler.state_dict(),
        "random_rng_states_all": torch.stack([cpu for cpu, _ in rng]),
        "cuda_rng_state_all": torch.stack(gpu_states) if gpu_states else None,
    }
    save_checkpoint(path, checkpoint, last_link(args.output, state.spec.name))
    return path


def find(args: argparse.Namespace, model_name: str, dist: Dist) -> Path | None:
    """The checkpoint that the flags ask for, on every process; None for a fresh start.

    With both flags --checkpoint-path is where a run starts and --resume-from-last how the same command goes on.
    """
    if not args.resume_from_last:
        return args.checkpoint_path
    path = distributed.broadcast(find_last(args.output, model_name), dist)
    if path is None and dist.is_main:
        start = args.checkpoint_path or "epoch 0"
        print(f"no checkpoint of {model_name} in {args.output} yet: starting at {start}")
    return path or args.checkpoint_path


def choose_seed(seed: int | None, checkpoint: dict[str, Any], dist: Dist) -> int:
    """The flag's seed, else that of the run that made the checkpoint, else a random one; the same on every process."""
    if seed is None:
        seed = checkpoint.get("seed")
    return distributed.broadcast(precision.draw_seed() if seed is None else seed, dist)


def restore(state: TrainState, checkpoint: dict[str, Any], path: Path) -> str:
    """Continue from a checkpoint of any published layout; returns a sentence on what was restored.

    Without an optimizer's state it is a warm start: weights only, from epoch 0.
    """
    try:
        load_weights(state.model, current_layout(checkpoint, state.spec.upgrade_state_dict), path)
    except DataError as error:
        raise DataError(f"{error}{_config_difference(checkpoint.get('config'), state)}") from None
    if checkpoint.get("optimizer") is None:
        return f"{path}: weights only, no optimizer: a warm start at epoch 0"
    _restore_optimizer(state, checkpoint, path)
    totals = EpochTotals(**checkpoint.get("epoch_totals", {}))
    state.epoch = int(checkpoint.get("epoch", -1))
    state.iteration = int(checkpoint.get("iteration", 0))
    restored = _restore_rng(state, checkpoint)
    if checkpoint.get("epoch_complete", True):
        state.epoch, state.totals = state.epoch + 1, EpochTotals()
        return f"{path}: resuming at epoch {state.epoch}{restored}"
    state.totals = totals
    return f"{path}: resuming in epoch {state.epoch} after {totals.iterations} iterations{restored}"


def _restore_optimizer(state: TrainState, checkpoint: dict[str, Any], path: Path) -> None:
    # What this run's flags say; `fused` has to be there before loading, which puts each state where that one wants it.
    ours = {name: state.optimizer.param_groups[0][name] for name in ("lr", "weight_decay", "fused")}
    try:
        saved = checkpoint["optimizer"]
        groups = [{**group, **ours} for group in saved["param_groups"]]
        state.optimizer.load_state_dict({**saved, "param_groups": groups})
        if strays := _strays(state.optimizer):
            raise ValueError(f"{strays} of its averages have another shape than their weights")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: its optimizer does not belong to this model ({error}); "
            f"to start from its weights alone: python -m common.checkpoint convert {path} WEIGHTS.pt --weights-only"
        ) from None
    if checkpoint.get("scaler"):
        state.scaler.load_state_dict(checkpoint["scaler"])
    elif isinstance(checkpoint.get("amp"), dict) and state.scaler.is_enabled():
        scale = precision.apex_loss_scale(checkpoint["amp"])
        if scale is not None:
            state.scaler = torch.amp.GradScaler(state.dist.device.type, init_scale=scale)


def _strays(optimizer: torch.optim.Optimizer) -> int:
    """How many averages do not have their weight's shape, which PyTorch does not check."""
    pairs = ((weight, state["exp_avg"]) for weight, state in optimizer.state.items() if "exp_avg" in state)
    return sum(weight.shape != average.shape for weight, average in pairs)


def _restore_rng(state: TrainState, checkpoint: dict[str, Any]) -> str:
    """Put back this process's random state; on another number of processes there is none, which is said."""
    cpu_states = checkpoint.get("random_rng_states_all")
    if cpu_states is None and checkpoint.get("random_rng_state") is not None:
        cpu_states = [checkpoint["random_rng_state"]]
    if cpu_states is None or len(cpu_states) != state.dist.world_size:
        return " (random numbers start anew: the checkpoint has none for this number of processes)"
    gpu_states, rank = checkpoint.get("cuda_rng_state_all"), state.dist.rank
    gpu_state = gpu_states[rank] if gpu_states is not None and len(gpu_states) == state.dist.world_size else None
    try:
        precision.restore_rng_states(state.dist.device, cpu_states[rank], gpu_state)
    except RuntimeError as error:  # old releases of PyTorch kept states of another size
        return f" (random numbers start anew: {error})"
    return ""


def _config_difference(stored: dict[str, Any] | None, state: TrainState) -> str:
    """Which model settings differ, as a hint at the flags to change."""
    current = config_of(state.model)
    known = {key: value for key, value in (stored or {}).items() if key in current and current[key] != value}
    pairs = [f"{key}: {value} in the file, {current[key]} now" for key, value in known.items()]
    return f"; settings that differ: {'; '.join(pairs)}" if pairs else ""
