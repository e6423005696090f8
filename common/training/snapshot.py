"""Conversion of a training state to a checkpoint and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from common import __version__, precision
from common.arguments import model_flags
from common.checkpoint import files
from common.checkpoint.fields import SHARPENED
from common.checkpoint.weights import current_layout, data_of, data_to_store, load_weights, not_finite
from common.errors import DataError, UsageError, listed, printable
from common.options import flag_of_field
from common.run import distributed
from common.run.distributed import Dist
from common.spec import ModelSpec, Options, config_of
from common.training import differences, sharding
from common.training.optimization import restore_averages
from common.training.options import TrainOptions
from common.training.state import Best, EpochTotals, TrainState
from common.training.time_plan import TimePlan

T = TypeVar("T")


class Start(NamedTuple):
    """The checkpoint that a run resumes from, its path and content; (None, {}) for a fresh start."""

    path: Path | None
    checkpoint: dict[str, Any]


def save(state: TrainState, epoch_complete: bool = True, alone: bool = False) -> Path:
    """Write checkpoint_{model}_{epoch}.pt and point the `last` link at it; every process has to call it.

    Deletes older checkpoints of this run beyond --keep-checkpoints. With `alone`, the main process saves without the others and
    without their random numbers; the weights must not be sharded.
    """
    setup, progress = state.setup, state.progress
    output, keep, name = setup.options.run.output, setup.options.checkpoints.keep_checkpoints, setup.spec.name
    path = files.checkpoint_path(output, name, progress.epoch)
    progress.saved = [*(epoch for epoch in progress.saved if epoch != progress.epoch), progress.epoch]
    cpu_state, gpu_state = precision.rng_states(setup.dist.device)
    rng = [(cpu_state, gpu_state)] if alone else distributed.gather((cpu_state, gpu_state), setup.dist)
    checkpoint = _describe(state) | {
        "epoch_complete": epoch_complete,
        "epoch_totals": asdict(progress.totals),
        "best": progress.best._asdict(),
        "saved": progress.saved[-keep:] if keep else progress.saved,
        "launch": distributed.launch_id(),
        "run": differences.settings_of(state),
        "optimizer": sharding.gather_full(state.optimizer.state_dict()),
        "scaler": state.scaler.state_dict(),
    }
    if state.average is not None:
        checkpoint["ema_state_dict"] = sharding.gather_full(state.average.module.state_dict())
        checkpoint["ema_updates"] = int(state.average.n_averaged)
    if progress.plan.minutes:
        checkpoint["time_plan"] = progress.plan.stored()
    if not setup.dist.is_main:
        return path
    gpu_states = [gpu for _, gpu in rng if gpu is not None]
    checkpoint["random_rng_states_all"] = torch.stack([cpu for cpu, _ in rng])
    checkpoint["cuda_rng_state_all"] = gpu_states  # a list, empty on a CPU
    _check_finite(checkpoint, path)
    files.save_checkpoint(path, checkpoint, files.last_link(output, name))
    if keep:
        progress.saved = files.prune(output, name, progress.saved, keep)
    return path


def _check_finite(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Raise DataError for NaN or infinite weights: no run can resume from them, and saving them may delete older checkpoints."""
    if broken := not_finite(checkpoint["state_dict"]) + not_finite(checkpoint.get("ema_state_dict", {})):
        names, step = listed(broken), checkpoint["iteration"]
        raise DataError(
            f"{path}: not written, since the weights are NaN or infinite after step {step}: {names}; "
            "older checkpoints are untouched: lower --learning-rate or --grad-clip-thresh, then --resume-from-last"
        )


def save_best(state: TrainState) -> None:
    """Write the weights that validation uses to checkpoint_{model}_best.pt; every process has to call it."""
    checkpoint = _for_inference(state) | {"best": state.progress.best._asdict()}
    if state.progress.best.by == "loss":
        checkpoint["val_loss"] = state.progress.best.loss
    if state.setup.dist.is_main:
        files.save_checkpoint(files.best_path(state.setup.options.run.output, state.setup.spec.name), checkpoint)


def save_final_weights(state: TrainState) -> None:
    """Write the weights that inference uses to checkpoint_{model}_{epoch}.safetensors; every process has to call it."""
    checkpoint, output = _for_inference(state), state.setup.options.run.output
    if state.setup.dist.is_main:
        files.save_copy(files.final_weights_path(output, state.setup.spec.name, state.progress.epoch), checkpoint)


def _for_inference(state: TrainState) -> dict[str, Any]:
    return _describe(state) | {"state_dict": sharding.gather_full(state.eval_weights.state_dict())}


def _describe(state: TrainState) -> dict[str, Any]:
    """Return the weights and the entries that describe them."""
    options = state.setup.options
    return {
        "version": __version__,
        "epoch": state.progress.epoch,
        "iteration": state.progress.iteration,
        "config": config_of(state.model),
        "data": data_to_store(options.model, state.setup.spec),
        "seed": options.run.seed,
        "state_dict": sharding.gather_full(state.model.state_dict()),
    }


def find(options: TrainOptions, spec: ModelSpec, dist: Dist) -> Start:
    """Load the checkpoint that the flags select, on every process; the file must be readable by all.

    --resume-from-last takes precedence over a start given by another flag. A launch that torchrun has restarted resumes from its
    own newest checkpoint. Raises UsageError for one with other options of text or audio.
    """
    start = _newest(options) if dist.is_main else Start(None, {})
    path = distributed.broadcast(start.path, dist)
    if path is None:
        return start
    if not dist.is_main:
        start = Start(path, files.load_checkpoint(path, resuming=True))
    check_data_options(start.checkpoint, path, options.model, spec)
    if spent := start.checkpoint.get(SHARPENED):
        raise UsageError(f"{path}: {spent}; --warm-start takes its weights, and learns it anew")
    return start


def _newest(options: TrainOptions) -> Start:
    model_name, output, named = options.model_name, options.run.output, options.checkpoints.checkpoint_path
    if options.checkpoints.resume_from_last:
        if found := _newest_that_loads(output, model_name):
            return found
        start = named or options.start.warm_start or "epoch 0"
        print(printable(f"no checkpoint of {model_name} in {output} yet: starting at {start}"))
    elif launch := distributed.launch_id():
        for path in files.find_all(output, model_name):
            with suppress(DataError):  # incomplete: the launch's first attempt ended while it wrote the file
                checkpoint = files.load_checkpoint(path, resuming=True)
                if checkpoint.get("launch") == launch:
                    return Start(path, checkpoint)
                break
    return Start(named, files.load_checkpoint(named, resuming=True)) if named else Start(None, {})


def _newest_that_loads(folder: Path, model_name: str) -> Start | None:
    """Load the newest readable checkpoint, and warn of unreadable newer ones. Raises DataError if none is readable."""
    faults: list[str] = []
    for path in files.find_all(folder, model_name):
        try:
            checkpoint = files.load_checkpoint(path, resuming=True)
        except DataError as error:
            faults.append(str(error))
            continue
        for fault in faults:
            print(printable(f"warning: {fault}; going on from the one before it, {path}"))
        return Start(path, checkpoint)
    if faults:
        raise DataError("\n".join([*faults, "no other checkpoint to go on from: choose another -o to begin anew"]))
    return None


def check_data_options(checkpoint: dict[str, Any], path: Path, settings: Options, spec: ModelSpec) -> None:
    """Raise UsageError if a resumed run has other text or audio options than its checkpoint."""
    stored, flags = data_of(checkpoint), model_flags([spec])
    other = [flags[name] for name, value in stored.items() if name in settings and settings[name] != value]
    if other and checkpoint.get("optimizer") is not None:
        raise UsageError(
            f"{path}: made with other settings of {', '.join(other)} than the command line's: give the same, "
            f"or begin anew from its weights with --warm-start {path}"
        )


def choose_seed(seed: int | None, checkpoint: dict[str, Any], dist: Dist) -> int:
    """Return the flag's seed, else the checkpoint's, else a random one; the same on every process."""
    if seed is None:
        seed = checkpoint.get("seed")
    return distributed.broadcast(precision.draw_seed() if seed is None else seed, dist)


def load_into(model: nn.Module, spec: ModelSpec, checkpoint: dict[str, Any], path: Path) -> None:
    """Load a checkpoint's weights, of any published layout. Raises DataError that names the settings that differ."""
    try:
        load_weights(model, current_layout(checkpoint, spec.upgrade_state_dict), path, sharding.load)
    except DataError as error:
        raise DataError(f"{error}{config_difference(checkpoint.get('config'), model)}") from None


def restore(state: TrainState, checkpoint: dict[str, Any], path: Path) -> str:
    """Restore the state from a checkpoint of any published layout. Returns a sentence on the restored parts.

    A checkpoint without an optimizer's state is a warm start: weights only, from epoch 0.
    """
    spec, progress = state.setup.spec, state.progress
    load_into(state.model, spec, checkpoint, path)
    if state.average is not None:
        average = checkpoint.get("ema_state_dict") or checkpoint["state_dict"]
        load_into(state.average.module, spec, {**checkpoint, "state_dict": average}, path)
        state.average.n_averaged.fill_(checkpoint.get("ema_updates", 0))
    if checkpoint.get("optimizer") is None:
        return f"{path}: weights only, no optimizer: a warm start at epoch 0"
    anew = _restore_optimizer(state, checkpoint, path)
    totals = _build(EpochTotals, checkpoint, "epoch_totals", path)
    complete = checkpoint.get("epoch_complete", True)
    progress.epoch = int(checkpoint.get("epoch", -1))
    # Files of the published recipe count epochs only.
    done = (progress.epoch + 1) * state.setup.pace.steps_per_epoch
    progress.iteration = int(checkpoint.get("iteration", done))
    progress.best, progress.saved = _build(Best, checkpoint, "best", path), list(checkpoint.get("saved", []))
    progress.plan = _build(TimePlan, checkpoint, "time_plan", path)
    if state.average is None and checkpoint.get("ema_state_dict"):
        anew += " (its moving average ends here: there is no --ema-decay)"
    restored = anew + _restore_rng(state, checkpoint)
    if complete:
        progress.epoch, progress.totals = progress.epoch + 1, EpochTotals()
        return f"{path}: resuming at epoch {progress.epoch}{restored}"
    progress.totals = totals
    return f"{path}: resuming in epoch {progress.epoch} after {totals.iterations} iterations{restored}"


def _build(kind: Callable[..., T], checkpoint: Mapping[str, Any], key: str, path: Path) -> T:
    """Build an object from an entry of a checkpoint, or from its defaults if there is no such entry."""
    try:
        return kind(**checkpoint.get(key, {}))
    except TypeError as error:
        raise DataError(f"{path}: malformed: {key}: {error}") from None


def _restore_optimizer(state: TrainState, checkpoint: dict[str, Any], path: Path) -> str:
    names = [name for name, _ in state.model.named_parameters()]
    try:
        missing = restore_averages(state.optimizer, checkpoint["optimizer"], names)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise DataError(
            f"{path}: its optimizer does not belong to this model ({error}); "
            f"to start from its weights alone: --warm-start {path}"
        ) from None
    if checkpoint.get("scaler"):
        try:
            state.scaler.load_state_dict(checkpoint["scaler"])
        except (RuntimeError, LookupError) as error:
            raise DataError(f"{path}: malformed: scaler: {error}") from None
    elif (scale := precision.apex_loss_scale(checkpoint)) is not None and state.scaler.is_enabled():
        state.scaler = torch.amp.GradScaler(state.setup.dist.device.type, init_scale=scale)
    return f" (Adam starts anew for {missing} weights that were not trained there)" if missing else ""


def _restore_rng(state: TrainState, checkpoint: dict[str, Any]) -> str:
    """Restore this process's random state. Returns a note if the file has none, as after a change of the number of processes."""
    cpu_states = checkpoint.get("random_rng_states_all")
    if cpu_states is None and checkpoint.get("random_rng_state") is not None:
        cpu_states = [checkpoint["random_rng_state"]]
    if cpu_states is None or len(cpu_states) != state.setup.dist.world_size:
        return " (random numbers start anew: the checkpoint has none for this number of processes)"
    gpu_states, rank = checkpoint.get("cuda_rng_state_all"), state.setup.dist.rank
    gpu_state = gpu_states[rank] if gpu_states is not None and len(gpu_states) == state.setup.dist.world_size else None
    try:
        precision.restore_rng_states(state.setup.dist.device, cpu_states[rank], gpu_state)
    except RuntimeError as error:  # states of old PyTorch releases have another size
        return f" (random numbers start anew: {error})"
    return ""


def config_difference(stored: dict[str, Any] | None, model: nn.Module) -> str:
    """List the model settings that differ, as a hint at which flags to change."""
    config: Any = model.config
    current, defaults = asdict(config), asdict(type(config)())
    known = {**defaults, **stored} if stored else {}  # files leave some keys out
    pairs = [
        f"{flag_of_field(field)}: {known[field.name]} in the file, {current[field.name]} now"
        for field in fields(config)
        if field.name in known and current[field.name] != known[field.name]
    ]
    return f"; settings that differ: {'; '.join(pairs)}" if pairs else ""
