"""How seconds grow with a size, plain and ours: points for one log-log picture each, with a line of proportional growth.

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
from benchmarks.cases import AUDIO, TrainingStep, alone, clips, make_ready, segments, synthesis_arguments
from benchmarks.sizes import CPU, Setting
from common.fast import Request
from common.inference.stages import mels_from_texts
from common.inference.vocoders import NeuralVocoder, time_call
from common.training import distributed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG = 2.0  # seconds of a call that is not repeated: what warms up does not weigh in it
REPEATS = 3
FRAMES = 100  # of a training clip
DECODER_FRAMES = 200
SEGMENT = 4000  # samples
GROUP_CLIPS = 4  # that several processes share

Pair = tuple[float, float]  # seconds of the plain way, and of ours


class Subject(NamedTuple):
    """What is measured, by what it grows, where, and how."""

    what: str
    by: str
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    seconds: Callable[[int, Setting], Pair]
    falling: bool = False  # seconds that are to fall as the size grows


@dataclass
class Growth:
    """Seconds at each size so far."""

    name: str
    sizes: list[int] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)


def measure_growth(name: str, setting: Setting, quick: bool) -> Iterator[Growth]:
    """The growth after each of its points."""
    growth, subject = Growth(name), SUBJECTS[name]
    for size in subject.quick_sizes if quick else subject.sizes:
        plain, ours = subject.seconds(size, setting)
        growth.sizes.append(size)
        growth.plain.append(plain)
        growth.ours.append(ours)
        yield growth


def both(call: Callable[[bool], Any], device: torch.device) -> Pair:
    """Seconds of call(plain=True) and call(plain=False)."""
    return seconds_of(lambda: call(True), device), seconds_of(lambda: call(False), device)


def seconds_of(call: Callable[[], Any], device: torch.device) -> float:
    """A call's seconds: the median of some after the first, or the first where that is long."""
    _, first = time_call(call, device)
    if first > LONG:
        return first
    return statistics.median(time_call(call, device)[1] for _ in range(REPEATS))


def with_batch(batch: int, setting: Setting) -> Pair:
    """A training step of Tacotron 2."""
    inputs = clips(batch, setting.sizes.symbols, FRAMES)
    step = TrainingStep("Tacotron2", setting.sizes.tacotron2, inputs, alone(setting.device), setting.amp)
    step(plain=False)  # the first one makes the optimizer's averages
    return both(step, setting.device)


def with_text(symbols: int, setting: Setting) -> Pair:
    """Speaking a text into a fixed number of frames."""
    device, args = setting.device, synthesis_arguments(setting, DECODER_FRAMES)
    models = {plain: make_ready("acoustic", args, device, wanted(setting, plain)) for plain in (True, False)}
    texts = [latency.sentence(symbols)]
    return both(lambda plain: mels_from_texts(texts, models[plain], device, setting.amp), device)


def wanted(setting: Setting, plain: bool) -> Request | None:
    """How a model is made ready: plain, or fast in the setting's precision."""
    return None if plain else Request(setting.amp)


def with_audio(frames: int, setting: Setting) -> Pair:
    """Vocoding a clip."""
    device, args = setting.device, synthesis_arguments(setting)
    vocoders = {
        plain: NeuralVocoder(
            make_ready("vocoder", args, device, wanted(setting, plain)), AUDIO, device, setting.amp, 0.9, 0
        )
        for plain in (True, False)
    }
    mels, lengths = torch.randn(1, AUDIO.n_mel_channels, frames, device=device), torch.tensor([frames])
    return both(lambda plain: vocoders[plain](mels, lengths), device)


def with_channels(channels: int, setting: Setting) -> Pair:
    """A training step of WaveGlow."""
    flags = f"{setting.sizes.waveglow} --wn-channels {channels}"
    step = TrainingStep("WaveGlow", flags, segments(1, SEGMENT), alone(setting.device), setting.amp)
    step(plain=False)
    return both(step, setting.device)


def with_processes(processes: int, setting: Setting) -> Pair:
    """A training step of the same clips by so many processes of one thread, on the CPU, joined by Gloo."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    flags = f"{setting.sizes.waveglow} --wn-channels {setting.sizes.shared_channels}"
    torch.multiprocessing.spawn(join_group, (processes, port, flags, results), nprocs=processes)
    return results.get()


def join_group(rank: int, processes: int, port: int, flags: str, results: Any) -> None:
    """What each of the processes does; the first one tells the seconds."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    torch.set_num_threads(1)
    with distributed.session(cpu=True) as dist:
        seconds = in_group(dist, flags)
        if dist.is_main:
            results.put(seconds)


def in_group(dist: distributed.Dist, flags: str) -> Pair:
    """Seconds of a step of this process's share; repeats are a fixed number, since all processes have to take the same steps."""
    batch = segments(GROUP_CLIPS // dist.world_size, SEGMENT)
    step = TrainingStep("WaveGlow", flags, batch, dist)
    taken = {
        plain: [time_call(lambda plain=plain: step(plain), dist.device)[1] for _ in range(REPEATS)]
        for plain in (True, False)
    }
    return statistics.median(taken[True]), statistics.median(taken[False])


def draw(growth: Growth) -> Figure:
    """A picture of all points so far, both axes logarithmic."""
    from matplotlib.figure import Figure  # takes most of a second, in every process that imports this file
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
    axes.set(title=subject.what, xlabel=subject.by, ylabel="seconds")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


SUBJECTS = {
    "batch": Subject(
        f"Tacotron 2, training step of clips of {FRAMES} frames",
        "clips in the batch",
        (1, 2, 4, 8, 16),
        (1, 2),
        with_batch,
    ),
    "text": Subject(
        f"Tacotron 2, inference of {DECODER_FRAMES} frames",
        "symbols of the text",
        (32, 64, 128, 256),
        (4, 8),
        with_text,
    ),
    "audio": Subject(
        f"WaveGlow-{CPU.inference_channels}, inference", "mel frames", (50, 200, 800), (10, 20), with_audio
    ),
    "channels": Subject(
        f"WaveGlow, training step of {SEGMENT} samples", "channels of WN", (64, 128, 256, 512), (8, 16), with_channels
    ),
    "processes": Subject(
        f"WaveGlow-{CPU.shared_channels}, training step of {GROUP_CLIPS} x {SEGMENT} samples",
        "processes of one thread",
        (1, 2),
        (2,),
        with_processes,
        falling=True,
    ),
}
