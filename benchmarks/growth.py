"""Measure how run time grows with a size, plain and ours; each subject becomes a log-log plot with a line of proportional growth.

growth = measure_growth("batch", Setting(CPU, device, amp=False), quick=False)
save_figure(Path("growth_batch.png"), draw(growth))
"""

from __future__ import annotations

import os
import socket
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.multiprocessing

from benchmarks import latency
from benchmarks.cases import AUDIO, TrainingStep, alone, clips, make_ready, segments, synthesis_options
from benchmarks.sizes import CPU, Setting
from common.fast import Request
from common.inference.stages import mels_from_texts
from common.inference.vocoders import NeuralVocoder, time_call
from common.run import distributed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG = 2.0  # seconds; longer calls are not repeated, as their warm-up is negligible
REPEATS = 3
FRAMES = 100  # frames of a training clip
DECODER_FRAMES = 200
SEGMENT = 4000  # samples
GROUP_CLIPS = 4  # clips that several processes share

Pair = tuple[float, float]  # seconds of the plain way, and of ours


class Subject(NamedTuple):
    """A measurement: its title, the name of the size, the sizes, and a function from a size to seconds."""

    title: str
    size_name: str
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    seconds: Callable[[int, Setting], Pair]
    falling: bool = False  # True if time should fall with the size


@dataclass
class Growth:
    """Seconds at each measured size."""

    name: str
    sizes: list[int] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)


def measure_growth(name: str, setting: Setting, quick: bool) -> Iterator[Growth]:
    """Yield the growth after each point."""
    growth, subject = Growth(name), SUBJECTS[name]
    for size in subject.quick_sizes if quick else subject.sizes:
        plain, ours = subject.seconds(size, setting)
        growth.sizes.append(size)
        growth.plain.append(plain)
        growth.ours.append(ours)
        yield growth


def time_both(call: Callable[[bool], Any], device: torch.device) -> Pair:
    """Time call(plain=True) and call(plain=False), in seconds."""
    return seconds_of(lambda: call(True), device), seconds_of(lambda: call(False), device)


def seconds_of(call: Callable[[], Any], device: torch.device) -> float:
    """Seconds of a call: the median of repeats after a first call, or the first if it is long."""
    _, first = time_call(call, device)
    if first > LONG:
        return first
    return statistics.median(time_call(call, device)[1] for _ in range(REPEATS))


def time_batch(batch: int, setting: Setting) -> Pair:
    """Time a training step of Tacotron 2."""
    inputs = clips(batch, setting.sizes.symbols, FRAMES)
    step = TrainingStep("Tacotron2", setting.sizes.tacotron2, inputs, alone(setting.device), setting.amp)
    step(plain=False)  # the first step allocates the optimizer's averages
    return time_both(step, setting.device)


def time_text(symbols: int, setting: Setting) -> Pair:
    """Time Tacotron 2's inference of a fixed number of frames."""
    device, options = setting.device, synthesis_options(setting, DECODER_FRAMES)
    models = {plain: make_ready("acoustic", options, device, request_for(setting, plain)) for plain in (True, False)}
    texts = [latency.sentence(symbols)]
    return time_both(lambda plain: mels_from_texts(texts, models[plain], device, setting.amp), device)


def request_for(setting: Setting, plain: bool) -> Request | None:
    """Request for a fast model in the setting's precision, or None for a plain model."""
    return None if plain else Request(setting.amp)


def time_audio(frames: int, setting: Setting) -> Pair:
    """Time the vocoder on a clip."""
    device, options = setting.device, synthesis_options(setting)
    vocoders = {
        plain: NeuralVocoder(
            make_ready("vocoder", options, device, request_for(setting, plain)), AUDIO, device, setting.amp, 0.9, 0
        )
        for plain in (True, False)
    }
    mels, lengths = torch.randn(1, AUDIO.n_mel_channels, frames, device=device), torch.tensor([frames])
    return time_both(lambda plain: vocoders[plain](mels, lengths), device)


def time_channels(channels: int, setting: Setting) -> Pair:
    """Time a training step of WaveGlow."""
    flags = f"{setting.sizes.waveglow} --wn-channels {channels}"
    step = TrainingStep("WaveGlow", flags, segments(1, SEGMENT), alone(setting.device), setting.amp)
    step(plain=False)
    return time_both(step, setting.device)


def time_processes(processes: int, setting: Setting) -> Pair:
    """Time a training step on clips shared by several single-threaded processes, on the CPU with Gloo."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    flags = f"{setting.sizes.waveglow} --wn-channels {setting.sizes.shared_channels}"
    torch.multiprocessing.spawn(join_group, (processes, port, flags, results), nprocs=processes)
    return results.get()


def join_group(rank: int, processes: int, port: int, flags: str, results: Any) -> None:
    """Run one process of the group; the first one puts the seconds into `results`."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    torch.set_num_threads(1)
    with distributed.session(cpu=True) as dist:
        seconds = time_group_step(dist, flags)
        if dist.is_main:
            results.put(seconds)


def time_group_step(dist: distributed.Dist, flags: str) -> Pair:
    """Time a step on this process's share. The number of repeats is fixed, as all processes must take the same steps."""
    batch = segments(GROUP_CLIPS // dist.world_size, SEGMENT)
    step = TrainingStep("WaveGlow", flags, batch, dist)
    seconds = {
        plain: [time_call(lambda plain=plain: step(plain), dist.device)[1] for _ in range(REPEATS)]
        for plain in (True, False)
    }
    return statistics.median(seconds[True]), statistics.median(seconds[False])


def draw(growth: Growth) -> Figure:
    """Plot all points so far, on logarithmic axes."""
    from matplotlib.figure import Figure  # imported here, as it takes most of a second in every process
    from matplotlib.ticker import LogLocator

    subject = SUBJECTS[growth.name]
    figure = Figure(figsize=(6, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(growth.sizes, growth.plain, "o--", color="0.5", label="plain")
    axes.loglog(growth.sizes, growth.ours, "o-", color="tab:blue", label="ours")
    ratios = [size / growth.sizes[0] for size in growth.sizes]
    straight = [growth.ours[0] * ratio ** (-1 if subject.falling else 1) for ratio in ratios]
    proportion = "in inverse proportion" if subject.falling else "in proportion"
    axes.loglog(growth.sizes, straight, ":", color="tab:blue", linewidth=1, label=proportion)
    axes.set_xticks(growth.sizes, map(str, growth.sizes))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set(title=subject.title, xlabel=subject.size_name, ylabel="seconds")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


SUBJECTS = {
    "batch": Subject(
        f"Tacotron 2, training step of clips of {FRAMES} frames",
        "clips in the batch",
        (1, 2, 4, 8, 16),
        (1, 2),
        time_batch,
    ),
    "text": Subject(
        f"Tacotron 2, inference of {DECODER_FRAMES} frames",
        "symbols of the text",
        (32, 64, 128, 256),
        (4, 8),
        time_text,
    ),
    "audio": Subject(
        f"WaveGlow-{CPU.inference_channels}, inference", "mel frames", (50, 200, 800), (10, 20), time_audio
    ),
    "channels": Subject(
        f"WaveGlow, training step of {SEGMENT} samples", "channels of WN", (64, 128, 256, 512), (8, 16), time_channels
    ),
    "processes": Subject(
        f"WaveGlow-{CPU.shared_channels}, training step of {GROUP_CLIPS} x {SEGMENT} samples",
        "processes of one thread",
        (1, 2),
        (2,),
        time_processes,
        falling=True,
    ),
}
