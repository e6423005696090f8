"""What a run will need: the plan and the measurements of --dry-run, and advice on flags where memory does not suffice."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor
from torch.utils.data import DataLoader

from common import precision
from common.audio.stft import TacotronSTFT
from common.files import atomic_write, writing
from common.progress import counted, size
from common.run import memory
from common.run.interrupt import StopRequest
from common.run.nvlog import Log
from common.spec import ModelBatch
from common.training.loop import to_device, train_step
from common.training.optimization import last_rate, rate_at
from common.training.options import DataConfig, small_step_note
from common.training.sampler import load_batch, readable_steps, sampler_of
from common.training.state import TrainState
from common.training.validation import validate

if TYPE_CHECKING:
    from common.training.checkup import Checkup

UNTIMED, TIMED = 2, 10  # steps; the first ones load code and fill caches
LONGEST = 120.0  # seconds after which no further step is measured


def describe_plan(state: TrainState) -> list[str]:
    """List the steps, shapes of the longest batch, and memory of a step: estimated, and on a GPU measured too.

    Runs forward and backward on the longest clips without changing weights; every process has to call it.
    """
    pace, dist, options = state.setup.pace, state.setup.dist, state.setup.options
    data, epochs, count = options.data, options.run.epochs, pace.steps_per_epoch
    trained = sum(weight.numel() for weight in state.model.parameters() if weight.requires_grad)
    lines = [
        f"a step: {_step(pace.global_batch, dist.world_size, data)}; {_traffic(state, trained)}",
        f"an epoch: {counted(count, 'step')}; {counted(epochs, 'epoch')}: {counted(count * epochs, 'step')}",
        f"learning rate: {rate_at(options.optimization, pace, 0, 0):.3g} in the first step, "
        f"{last_rate(options.optimization, pace):.3g} in the last",
    ]
    longest: Any = longest_batch(state.loaders.training, data.batch_size)
    tensors = {name: value for name, value in longest._asdict().items() if isinstance(value, Tensor)}
    lines.append(f"the longest clips' batch: {', '.join(f'{n} {tuple(value.shape)}' for n, value in tensors.items())}")
    return lines + _memory(state, longest, data.batch_size)


def _step(global_batch: int, processes: int, data: DataConfig) -> str:
    batches = counted(data.grad_accumulation_steps, "batch", "es")
    named = f"{counted(data.batch_size, 'clip')} x {counted(processes, 'process', 'es')} x {batches}"
    return small_step_note(global_batch, processes, data) or f"{named} = {counted(global_batch, 'clip')}"


def longest_batch(loader: DataLoader, size: int) -> ModelBatch:
    """Load a batch of the longest clips by the dataset's lengths. Raises the DataError of a clip that cannot be read."""
    lengths = sampler_of(loader).lengths
    return load_batch(loader, sorted(range(len(lengths)), key=lambda index: lengths[index])[-size:])


class Forecast(NamedTuple):
    """Bytes of a process: weights and averages, which are always there; activations of a clip; the peak of a step."""

    always: int
    activations: int
    peak: int


def forecast(state: TrainState, batch_size: int) -> Forecast:
    """Estimate a step's memory from forward and backward of the longest clip, and of the two longest."""
    state_size = memory.state_bytes(state.model)
    average = 0 if state.average is None else memory.state_bytes(state.average).weights
    one, two = (_peak(state, longest_batch(state.loaders.training, clips)) for clips in (1, 2))
    activations = two - one  # of a clip; the rest, gradients too, is there once
    always = state_size.weights + state_size.optimizer + average
    return Forecast(always, activations, always + one + (batch_size - 1) * activations)


def _memory(state: TrainState, longest: ModelBatch, batch_size: int) -> list[str]:
    device = state.setup.dist.device
    state_size = memory.state_bytes(state.model)
    expected = forecast(state, batch_size)
    average = 0 if state.average is None else memory.state_bytes(state.average).weights
    moving = f", moving average {size(average)}" if average else ""
    lines = [
        f"memory of a process: weights {size(state_size.weights)}, gradients {size(state_size.gradients)}, "
        f"Adam's averages {size(state_size.optimizer)}{moving}; activations of the longest clip {size(expected.activations)}",
        f"estimated peak: {size(expected.peak)}, with {batch_size} such clips; "
        f"there are {size(memory.available_memory(device))}",
    ]
    if precision.allocated_memory(device) is not None:
        peak = _peak(state, longest)
        lines.append(f"measured peak: {size(peak + expected.always)}, with the longest clips' batch")
    return lines


def _peak(state: TrainState, batch: ModelBatch) -> int:
    """Measure the peak bytes of a forward and backward above those of weights and averages."""
    device = state.setup.dist.device
    moved = to_device(batch, device)

    def forward_and_backward() -> None:
        with precision.autocast(device, state.setup.half):
            loss = state.setup.criterion(state.trained(*moved.inputs), moved.targets)
        loss.backward()
        state.optimizer.zero_grad()

    return memory.measure_peak(device, forward_and_backward)


def _traffic(state: TrainState, trained: int) -> str:
    """Describe the bytes of gradients that each process sends in a step."""
    if state.setup.dist.world_size == 1:
        return "one process, nothing is sent"
    # A ring all-reduce sends 2 (n - 1) / n times the gradients: Patarasuk and Yuan 2009.
    ring = 2 * (state.setup.dist.world_size - 1) / state.setup.dist.world_size * 4 * trained
    return f"each process sends {size(ring)} of float32 gradients"


def memory_advice(state: TrainState) -> str:
    """Name a smaller --batch-size after a batch that did not fit: at most half, and small enough beside the state."""
    device, data = state.setup.dist.device, state.setup.options.data
    state_size, room = memory.state_bytes(state.model).total, memory.available_memory(device)
    used = max(precision.peak_memory(device) or 0, room)  # the failed request exceeds the memory there is
    fitting = min(memory.smaller_batch(data.batch_size, state_size, used, room), data.batch_size // 2)
    hint = "" if state.setup.options.precision.amp else "add --amp"
    advice = memory.advice(data.batch_size, data.grad_accumulation_steps, fitting, hint)
    return f"{advice}; the same command with --dry-run prints the needs of a step"


def measure_run(state: TrainState, checkup: Checkup | None) -> dict[str, Any]:
    """Measure the memory of a clip and, if the batch fits, the seconds of ten steps. Changes the weights.

    Bytes are those of one process: `always` without any clip, `clip` for each of the longest, `available` in all. began: seconds
    since 1970, after all has been loaded. first_seconds: what the first epoch takes beyond the others. report_seconds: of a
    validation (validation_seconds) with its checkup; 0 without --evaluate-every.
    """
    began, device, batch_size = time.time(), state.setup.dist.device, state.setup.options.data.batch_size
    training, expected = state.loaders.training, forecast(state, batch_size)
    available = memory.available_memory(device)
    fits = 100 * expected.peak <= memory.USABLE * available
    step_seconds = time_steps(state) if fits else []
    slow = step_seconds if getattr(training.dataset, "keeps_clips", False) else []
    step_seconds = time_steps(state) if slow else step_seconds  # the same clips again, which are kept now
    first = statistics.median(slow) - statistics.median(step_seconds) if slow else 0.0
    validating, checking = time_report(state, checkup) if fits and checkup else (0.0, 0.0)
    return {
        "model": state.setup.spec.name,
        "parameters": sum(weight.numel() for weight in state.model.parameters()),
        "device": precision.device_name(device),
        "clips": len(sampler_of(training).lengths),
        "batch_size": batch_size,
        "clips_per_step": state.setup.pace.global_batch,
        "steps_per_epoch": state.setup.pace.steps_per_epoch,
        "always": max(expected.always, expected.peak - batch_size * expected.activations),
        "clip": expected.activations,
        "available": available,
        "began": began,
        "step_seconds": step_seconds,
        "first_seconds": max(0.0, first) * state.setup.pace.steps_per_epoch,
        "validation_seconds": validating,
        "report_seconds": validating + checking,
    }


def time_steps(state: TrainState) -> list[float]:
    """Train for twelve steps and return the seconds of the last ten, loading included; of fewer if they take minutes."""
    loader, seconds = state.loaders.training, list[float]()
    began = clock = time.perf_counter()
    for epoch in range(UNTIMED + TIMED):
        sampler_of(loader).start_at(epoch)
        for batches in readable_steps(loader):
            state.progress.epoch = epoch
            train_step(state, [to_device(batch, state.setup.dist.device) for batch in batches])
            seconds.append(time.perf_counter() - clock)
            clock = time.perf_counter()
            if len(seconds) == UNTIMED + TIMED or (len(seconds) > UNTIMED and clock - began > LONGEST):
                return seconds[UNTIMED:]
    return seconds[UNTIMED:]


def time_report(state: TrainState, checkup: Checkup) -> tuple[float, float]:
    """Return the seconds of a validation with its pictures, and those of its checkup."""
    clock = time.perf_counter()
    validate(state, state.loaders.validation, TacotronSTFT.from_config(checkup.audio), Log())
    middle = time.perf_counter()
    checkup(state, Log(), StopRequest())
    return middle - clock, time.perf_counter() - middle


def write_figures(path: Path, figures: dict[str, Any]) -> None:
    """Write figures as JSON. Raises DataError if the system refuses."""
    with writing(path), atomic_write(path) as file:
        file.write(f"{json.dumps(figures, indent=1)}\n".encode())
