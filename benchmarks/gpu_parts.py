"""Parts of benchmarks.gpu that run our own code; each prints its figures as JSON in the last line of its output.

python -m benchmarks.gpu_parts training --model WaveGlow --numbers float16 --quick --cpu
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as torch_dist
import torch.multiprocessing
from torch.profiler import profile, supported_activities

from benchmarks.cases import LONGEST, clips, segments
from benchmarks.machine import Machine
from benchmarks.sizes import GPU, MARK, PUBLISHED, QUICK
from common import precision
from common.arguments import positive
from common.errors import DataError, exit_on_user_error
from common.inference.vocoders import time_call
from common.options import add_fields, from_options, option
from common.parser import Parser
from common.run.distributed import Dist
from common.run.memory import measure_peak
from common.spec import ModelSpec
from common.training import forecast, snapshot
from common.training.arguments import parse_training_arguments
from common.training.loop import to_device, train_step
from common.training.optimization import Pace
from common.training.state import TrainState
from models import REGISTRY
from train import make_state

NUMBERS = {  # flags of train.py
    "float16": "--amp --amp-dtype float16",
    "bfloat16": "--amp --amp-dtype bfloat16",
    "tf32": "",
    "float32": "--no-tf32",
}
WARM_UP, STEPS = 3, 10
QUICK_LONGEST = 12  # frames


@dataclass(frozen=True, kw_only=True)
class PartOptions:
    """The flags of a part."""

    model: str = option("Tacotron2", "the model", choices=list(REGISTRY))
    numbers: str = option("float16", "number format of the training", choices=list(NUMBERS))
    way: str = option("", "flags of train.py that choose another way, for the part `way`", metavar="FLAGS")
    steps: int = option(STEPS, "steps to time", type=positive)
    quick: bool = option(False, "tiny models: the figures mean nothing")
    cpu: bool = option(False, "use the CPU even if there is a GPU")
    output: Path = option(Path("output/gpu"), "folder of the profiles", "-o")


def build(args: PartOptions, more: str = "", dist: Dist | None = None) -> TrainState:
    """The state of a training with random weights, on the device that the flags choose."""
    sizes = QUICK if args.quick else GPU
    flags = {"Tacotron2": sizes.tacotron2, "WaveGlow": sizes.waveglow}.get(args.model, "")
    words = ["-m", args.model, *flags.split(), *NUMBERS[args.numbers].split(), *more.split()]
    if args.quick and args.model == "WaveGlow":
        words += ["--wn-channels", str(sizes.shared_channels)]
    options, spec = parse_training_arguments(words, REGISTRY, "")
    precision.configure(
        cudnn_enabled=True, cudnn_benchmark=args.model == "WaveGlow", tf32=not options.precision.no_tf32
    )
    precision.seed_everything(0)
    dist = dist or Dist(0, 0, 1, precision.pick_device(cpu=args.cpu))
    state, _ = make_state(spec, options, dist, Pace(1, 1, 1), warm=False)
    state.trained.train()
    state.model.train()
    return state


def batch_size(args: PartOptions, spec: ModelSpec) -> int:
    """The published batch size in this precision; a few clips for tiny models."""
    published = spec.training.batch_size_amp if args.numbers.endswith("16") else spec.training.batch_size
    return 2 if args.quick else published


def make_batch(args: PartOptions, size: int, frames: int | None = None) -> Any:
    """Noise with the lengths of LJSpeech's clips, or all of `frames` frames."""
    sizes = QUICK if args.quick else GPU
    if args.model == "WaveGlow":
        return segments(size, sizes.segment_length)
    return clips(size, sizes.symbols, frames or sizes.frames)


def machine(args: PartOptions) -> dict[str, Any]:
    """The device and the software; float32 products use TF32, as in the other parts."""
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    return Machine(precision.pick_device(cpu=args.cpu), args.quick).describe()


def training(args: PartOptions) -> dict[str, Any]:
    """Rates of plain and fast steps at the published batch size, and peak memory with its forecast."""
    longest = QUICK_LONGEST if args.quick else LONGEST
    figures = _compare({"plain": "--plain", "ours": ""}, lambda flags: _measure(args, flags, longest))
    if published := PUBLISHED.get((args.model, args.numbers)):
        figures["times_published_a100"] = figures["ours_items_per_sec"] / published
    return figures | {"clips": batch_size(args, REGISTRY[args.model])}


def optional_way(args: PartOptions) -> dict[str, Any]:
    """Rates, peak memory and seconds of the first step, for the default way and for one that is off by default."""
    return _compare({"default": "", "way": args.way}, lambda flags: _measure_steps(args, flags))


def _compare(ways: Mapping[str, str], measure: Callable[[str], dict[str, float | None]]) -> dict[str, Any]:
    """Figures of two ways, by name and flags of train.py, and how many times as fast the second one is."""
    figures: dict[str, Any] = {}
    for name, flags in ways.items():
        figures |= {f"{name}_{figure}": value for figure, value in measure(flags).items()}
        gc.collect()  # a state kept alive by a cycle would count in the next peak
    base, own = (figures[f"{name}_items_per_sec"] for name in ways)
    return figures | {f"times_{next(iter(ways))}": own / base}


def _measure(args: PartOptions, flags: str, longest: int) -> dict[str, float | None]:
    """Items per second of one way, and in bytes the peak of a step with the longest clips and its forecast."""
    state = build(args, flags)
    device, size = state.setup.dist.device, batch_size(args, state.setup.spec)
    expected = forecast.forecast(state, lambda count: make_batch(args, count, longest), size)
    batch = to_device(make_batch(args, size), device)
    seconds = _time_steps(state, batch, WARM_UP + args.steps)
    return {
        "items_per_sec": float(batch.num_items) / statistics.median(seconds[WARM_UP:]),
        "forecast_bytes": expected.peak,
        "peak_bytes": _peak(state, make_batch(args, size, longest), expected.always),
    }


def _measure_steps(args: PartOptions, flags: str) -> dict[str, float | None]:
    state = build(args, flags)
    device = state.setup.dist.device
    batch = to_device(make_batch(args, batch_size(args, state.setup.spec)), device)
    warm_up = _time_steps(state, batch, WARM_UP)
    precision.free_cached_memory(device)  # searching for algorithms in the first step takes much more than a step
    seconds = _time_steps(state, batch, args.steps)
    return {
        "items_per_sec": float(batch.num_items) / statistics.median(seconds),
        "first_seconds": warm_up[0],
        # Includes the memory of recorded graphs, which allocate nothing when replayed.
        "peak_bytes": precision.reserved_memory(device),
    }


def _time_steps(state: TrainState, batch: Any, steps: int) -> list[float]:
    """Seconds of each step."""
    return [time_call(lambda: train_step(state, [batch]), state.setup.dist.device)[1] for _ in range(steps)]


def _peak(state: TrainState, batch: Any, always: int) -> int:
    """Peak bytes of a step, including weights and averages."""
    device = state.setup.dist.device
    moved = to_device(batch, device)
    before = precision.allocated_memory(device)
    peak = measure_peak(device, lambda: train_step(state, [moved]))
    return peak + (always if before is None else before)


def profile_step(args: PartOptions) -> dict[str, Any]:
    """The share of a step during which the GPU is idle, and the number of kernels."""
    state = build(args)
    device = state.setup.dist.device
    batch = to_device(make_batch(args, batch_size(args, state.setup.spec)), device)
    for _ in range(WARM_UP):
        train_step(state, [batch])
    on_gpu = device.type != "cpu"
    # Timed before profiling, as the profiler stays in the driver.
    _, undisturbed = time_call(lambda: train_step(state, [batch]), device)
    with profile(activities=supported_activities()) as profiler:
        _, seconds = time_call(lambda: train_step(state, [batch]), device)
    kernels = _spans_on_gpu(profiler.events())
    busy = _union(kernels) / 1e6
    order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    rows = profiler.key_averages().table(sort_by=order, row_limit=15)
    (args.output / f"profile_{args.model}_{args.numbers}.txt").write_text(rows, encoding="utf-8")
    figures = {"step_seconds": undisturbed, "profiled_seconds": seconds}
    return figures | (
        {"busy_seconds": busy, "idle_share": max(0.0, 1 - busy / undisturbed), "kernels": len(kernels)}
        if on_gpu
        else {}
    )


def _spans_on_gpu(events: Iterable[Any]) -> list[tuple[float, float]]:
    """Start and end of each kernel and copy; not of named regions such as the optimizer's, which span the gaps between them."""
    on_gpu = (event for event in events if "CPU" not in str(event.device_type) and not event.is_user_annotation)
    return [(event.time_range.start, event.time_range.end) for event in on_gpu]


def _union(spans: list[tuple[float, float]]) -> float:
    """The length of the union of possibly overlapping spans."""
    total, last = 0.0, -1.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, last))
        last = max(last, end)
    return total


def resume(args: PartOptions) -> dict[str, Any]:
    """Compare a run of four steps with one saved and restored after two, with deterministic operators."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    with tempfile.TemporaryDirectory() as folder:
        more = f"-o {folder} --seed 1 --ema-decay 0.9"
        state = build(args, more)
        batch = to_device(make_batch(args, 2), state.setup.dist.device)
        for _ in range(2):
            train_step(state, [batch])
        path = snapshot.save(state)
        wanted = [train_step(state, [batch]).loss for _ in range(2)]
        later = build(args, more)
        precision.seed_everything(99)
        checkpoint = snapshot.load_checkpoint(path)
        snapshot.restore(later, checkpoint, path)
        later.epoch = state.progress.epoch
        got = [train_step(later, [batch]).loss for _ in range(2)]
    pairs = zip(state.model.parameters(), later.model.parameters(), strict=True)
    difference = max(float((a - b).detach().abs().max()) for a, b in pairs)
    exact = got == wanted and difference == 0
    return {"exact": exact, "difference": difference}


def two_processes(args: PartOptions) -> dict[str, Any]:
    """Compare two processes over Gloo on one device with one process that accumulates the same two batches."""
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        processes = [context.Process(target=_one_of_two, args=(rank, folder, args)) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise DataError(f"two processes ended with codes {[process.exitcode for process in processes]}")
        together = [torch.load(Path(folder, f"{rank}.pt"), map_location="cpu", weights_only=True) for rank in range(2)]
    state = build(args, "--grad-accumulation-steps 2")
    batches = [to_device(_batch_of(args, rank), state.setup.dist.device) for rank in range(2)]
    for _ in range(2):
        train_step(state, batches)
    alone = [weight.detach().cpu() for weight in state.model.parameters()]
    between = max(float((a - b).abs().max()) for a, b in zip(*together, strict=True))
    apart = max(float((a - b).abs().max()) for a, b in zip(together[0], alone, strict=True))
    return {"between_processes": between, "from_one_process": apart}


def _batch_of(args: PartOptions, rank: int) -> Any:
    precision.seed_everything(10 + rank)
    return make_batch(args, 2)


def _one_of_two(rank: int, folder: str, args: PartOptions) -> None:
    device = precision.pick_device(cpu=args.cpu)  # the same for both, which NCCL refuses
    torch.set_num_threads(1)
    torch_dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(_weights_after_two_steps(args, Dist(rank, rank, 2, device)), Path(folder, f"{rank}.pt"))
    gc.collect()  # as in common.run.distributed: DistributedDataParallel must not be the last to hold the group
    torch_dist.destroy_process_group()


def _weights_after_two_steps(args: PartOptions, dist: Dist) -> list[torch.Tensor]:
    state = build(args, dist=dist)
    batch = to_device(_batch_of(args, dist.rank), dist.device)
    for _ in range(2):
        train_step(state, [batch])
    return [weight.detach().cpu() for weight in state.model.parameters()]


PARTS: dict[str, Callable[[PartOptions], dict[str, Any]]] = {
    "machine": machine,
    "training": training,
    "way": optional_way,
    "profile": profile_step,
    "resume": resume,
    "two-processes": two_processes,
}


def main(argv: list[str] | None = None) -> None:
    """Run one part."""
    parser = Parser(prog="python -m benchmarks.gpu_parts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=list(PARTS), help="what to measure")
    add_fields(parser, PartOptions)
    args = parser.parse_args(argv)
    options = from_options(PartOptions, vars(args))
    options.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler writes to stderr
    start = time.perf_counter()
    figures = PARTS[args.part](options)
    print(MARK + json.dumps(figures | {"part_seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
