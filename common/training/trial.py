"""Measurements before a run, for --dry-run --measure: the memory and the time of its steps, as numbers for other programs."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from common import precision
from common.audio.stft import TacotronSTFT
from common.errors import DataError
from common.files import atomic_write
from common.run import memory
from common.run.nvlog import NullLog
from common.training.checkup import Checkup
from common.training.loop import TrainState, to_device, train_step
from common.training.plan import forecast, longest_batch
from common.training.sampler import sampler_of
from common.training.steps import steps
from common.training.validation import validate

UNTIMED, TIMED = 2, 10  # steps; the first ones load code and fill caches
LONGEST = 120.0  # seconds after which no further step is measured


def measure_run(
    state: TrainState, training: DataLoader, validation: DataLoader, args: argparse.Namespace, checkup: Checkup
) -> dict[str, Any]:
    """Measure the memory of a clip and, where the batch fits, the seconds of ten steps; changes the weights.

    Bytes are those of one process: `always` without any clip, `clip` for each of the longest, `available` in all. began: seconds
    since 1970, after all has been loaded. report_seconds: of a validation with its checkup; 0 without --evaluate-every.
    """
    began, device = time.time(), state.dist.device
    expected = forecast(state, lambda clips: longest_batch(training, clips), args.batch_size)
    available = memory.available_memory(device)
    fits = 100 * expected.peak <= memory.USABLE * available
    step_seconds = time_steps(state, training) if fits else []
    report_seconds = time_report(state, validation, args, checkup) if fits and args.evaluate_every else 0.0
    return {
        "model": state.spec.name,
        "parameters": sum(weight.numel() for weight in state.model.parameters()),
        "device": precision.device_name(device),
        "clips": len(sampler_of(training).lengths),
        "batch_size": args.batch_size,
        "clips_per_step": state.pace.global_batch,
        "steps_per_epoch": state.pace.steps_per_epoch,
        "always": max(expected.always, expected.peak - args.batch_size * expected.activations),
        "clip": expected.activations,
        "available": available,
        "began": began,
        "step_seconds": step_seconds,
        "report_seconds": report_seconds,
    }


def time_steps(state: TrainState, loader: DataLoader) -> list[float]:
    """Train for twelve steps and return the seconds of the last ten, loading included; of fewer if they take minutes."""
    sampler, seconds = sampler_of(loader), list[float]()
    began = clock = time.perf_counter()
    for epoch in range(UNTIMED + TIMED):
        sampler.start_at(epoch)
        for batches, _, fault in steps(loader, sampler.accumulation):
            if not batches:
                raise fault or DataError("no clip can be read")
            state.epoch = epoch
            train_step(state, [to_device(batch, state.dist.device) for batch in batches])
            seconds.append(time.perf_counter() - clock)
            clock = time.perf_counter()
            if len(seconds) == UNTIMED + TIMED or (len(seconds) > UNTIMED and clock - began > LONGEST):
                return seconds[UNTIMED:]
    return seconds[UNTIMED:]


def time_report(state: TrainState, loader: DataLoader, args: argparse.Namespace, checkup: Checkup) -> float:
    """Return the seconds of a validation with its pictures, and of its checkup."""
    clock = time.perf_counter()
    validate(state, loader, TacotronSTFT.from_config(checkup.audio), NullLog())
    checkup(state, args, NullLog())
    return time.perf_counter() - clock


def write_figures(path: Path, figures: dict[str, Any]) -> None:
    """Write figures as JSON. Raises DataError where the system refuses."""
    try:
        with atomic_write(path) as file:
            file.write(f"{json.dumps(figures, indent=1)}\n".encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
