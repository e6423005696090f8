"""Speed at the same pitch, and sampling rate, by FFmpeg's filters through PyAV, an optional package."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import av
import numpy as np
import torch
from av.audio.frame import AudioFrame
from av.filter import Graph
from torch import Tensor

# n samples of a part

SLOWEST_FILTER = 0.5  # of FFmpeg's atempo; slower speeds need several of them


class Filter:
    """FFmpeg's filters for speed and sampling rate: audio in parts (n,), float32."""

    def __init__(self, rate: int, speed: float, output_rate: int) -> None:
        self.rate, self.position = rate, 0
        self.graph = Graph()
        nodes = [self.graph.add_abuffer(sample_rate=rate, format="flt", layout="mono", time_base=Fraction(1, rate))]
        nodes += [self.graph.add("atempo", f"{factor:.6f}") for factor in tempo_factors(speed)]
        nodes += [self.graph.add("aresample", str(output_rate)), self.graph.add("aformat", "sample_fmts=flt")]
        nodes.append(self.graph.add("abuffersink"))
        for node, following in pairwise(nodes):
            node.link_to(following)
        self.graph.configure()
        self.source, self.sink = nodes[0], nodes[-1]

    def process(self, audio: Tensor) -> Tensor:
        """Return the samples that are ready."""
        if len(audio):
            self.source.push(make_frame(audio.numpy(), "flt", self.rate, self.position))
            self.position += len(audio)
        return self._pull()

    def finish(self) -> Tensor:
        """Return the last samples."""
        self.source.push(None)
        return self._pull()

    def _pull(self) -> Tensor:
        parts = [np.zeros(0, np.float32)]
        while True:
            try:
                frame = self.sink.pull()
            except (av.error.BlockingIOError, av.error.EOFError):  # no more for now, no more at all
                break
            assert isinstance(frame, AudioFrame)
            parts.append(frame.to_ndarray()[0])
        return torch.from_numpy(np.concatenate(parts))


def change_speed(audio: Tensor, rate: int, speed: float) -> Tensor:
    """Return audio (N,) at another speed: about N / speed samples."""
    tempo = Filter(rate, speed, rate)
    return torch.cat((tempo.process(audio), tempo.finish()))


def make_frame(samples: np.ndarray, sample_format: str, rate: int, position: int) -> AudioFrame:
    """Make FFmpeg's frame of samples (n,) that start at a position of the stream."""
    frame = AudioFrame.from_ndarray(np.ascontiguousarray(samples[None]), format=sample_format, layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = rate, position, Fraction(1, rate)
    return frame


def tempo_factors(speed: float) -> Iterator[float]:
    """Split a speed into factors within the range of FFmpeg's atempo."""
    while speed < SLOWEST_FILTER:
        yield SLOWEST_FILTER
        speed /= SLOWEST_FILTER
    if speed != 1.0:
        yield speed
