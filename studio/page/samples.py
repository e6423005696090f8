"""Samples: texts spoken by a voice or a checkpoint of a project, one at a time and at low priority."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from common import precision
from common.arguments import LARGEST_SEED
from common.checkpoint.files import load_checkpoint
from common.data.filelist import BadRows
from common.errors import DataError, UsageError
from common.inference.config import GRIFFIN_LIM, SynthesisConfig
from common.inference.pictures import LIGHT, Look, Pictures, draw_speech
from common.inference.stages import Speech
from studio.page.choices import OWN, ChosenFiles, VoiceChoice, find_files
from studio.project import Project
from synthesizer import Line, Synthesizer

MOST_CHARACTERS = 1000  # of a text
LARGEST = {"seed": LARGEST_SEED, "sigma": 10.0, "strength": 10.0}
NICE = 10  # a lower priority than a training's, on Linux
ATTEMPTS = 5  # to read checkpoints that a training is replacing

Value = TypeVar("Value")
Stamp = tuple[int, ...]  # identifies a file's contents


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """A text to speak, with keys from choices.py; None means the voice's own setting. Raises UsageError for values out of range."""

    project: Project
    text: str
    voice: str
    vocoder: str = OWN
    seed: int = 0
    sigma: float | None = None
    strength: float | None = None

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError("text: empty, expected a sentence")
        if (found := len(self.text)) > MOST_CHARACTERS:
            raise UsageError(f"text: {found} characters, expected at most {MOST_CHARACTERS}")
        for name, largest in LARGEST.items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= largest:  # NaN fails this as well
                raise UsageError(f"{name}: {value}, expected 0 to {largest:.10g}")


class Sample(NamedTuple):
    """The speech of a request, with the symbols of its pieces; `loading` and `computing` in seconds."""

    speech: Speech
    symbols: list[list[str]]  # of each piece
    name: str
    seed: int
    loading: float
    computing: float

    @property
    def message(self) -> str:
        """A sentence or two about the sample."""
        seconds = len(self.speech.audio) / self.speech.sampling_rate
        loading = f", after {self.loading:.1f} s of loading" if self.loading >= 0.05 else ""
        limit = (
            "" if self.speech.finished else " The decoder reached its frame limit; the end of the text may be missing."
        )
        return f"{self.name}: {seconds:.2f} s of speech, computed in {self.computing:.1f} s{loading}; seed {self.seed}.{limit}"


class SampleSpeaker:
    """Speaks requests one at a time in a low-priority thread, and keeps only the newest request's models in memory.

    Args:
        cpu: compute on the CPU even if there is a GPU.
        is_training: returns True while a training runs, which needs the memory of the GPU: the CPU is used instead.
    """

    def __init__(self, cpu: bool = False, is_training: Callable[[], bool] = lambda: False) -> None:
        self.cpu, self.is_training = cpu, is_training
        self._loaded: tuple[Any, Synthesizer] | None = None  # what the voice was loaded from, and the voice
        self._thread = ThreadPoolExecutor(1, "samples", initializer=lower_priority)

    def speak(self, request: SampleRequest) -> Sample:
        """Wait for the thread and return the sample. Raises DataError and UsageError."""
        return self._thread.submit(self._speak, request).result()

    def draw(self, sample: Sample, look: Look = LIGHT) -> Pictures:
        """Draw the mel of a sample with the words below, and its alignment, in the same thread."""
        return self._thread.submit(draw_speech, sample.speech, sample.symbols, look).result()

    def close(self) -> None:
        """End the thread after its current request."""
        self._thread.shutdown(cancel_futures=True)
        self._loaded = None

    def _speak(self, request: SampleRequest) -> Sample:
        start = time.perf_counter()
        loaded = self._load(request)
        loading = time.perf_counter() - start
        voice = loaded.with_settings(request.seed, request.sigma, request.strength)
        start = time.perf_counter()
        try:
            line = Line(request.text, request.seed)
            voice.check([line])
            (speech,) = voice.speak_batch([line]).speeches
        except BadRows as error:
            raise DataError(f"text: {'; '.join(error.problems.values())}") from None
        if speech is None:
            raise DataError("not enough memory for this text; try a shorter one")
        symbols = [voice.symbols(part.text) for part in speech.parts]
        return Sample(speech, symbols, voice.description, request.seed, loading, time.perf_counter() - start)

    def _load(self, request: SampleRequest) -> Synthesizer:
        """Return the voice of a request, after dropping another one."""
        device = precision.pick_device(cpu=self.cpu or self.is_training())
        files = find_files(request.project, request.voice, request.vocoder)
        if self._loaded and self._loaded[0] == (files, str(device), stamps(files.paths)):
            return self._loaded[1]
        self._loaded = None
        precision.free_cached_memory(device)
        voice, stamp = read_unchanged(files.paths, lambda: load_voice(files, device))
        self._loaded = (files, str(device), stamp), voice
        return voice


def load_voice(files: ChosenFiles, device: torch.device) -> Synthesizer:
    """Load the models of a choice; their names with the epochs are the voice's description."""
    names = [name_with_epoch(files.acoustic), name_with_epoch(files.vocoder) if files.vocoder else GRIFFIN_LIM]
    pair = files.acoustic.checkpoint, files.vocoder.checkpoint if files.vocoder else None
    config = SynthesisConfig(denoising_strength=files.strength)
    return Synthesizer.from_checkpoints(*pair, config=config, device=device, description=" with ".join(names))


def name_with_epoch(choice: VoiceChoice) -> str:
    """Add the epoch of a checkpoint to its label, if it stores one."""
    epoch = load_checkpoint(choice.checkpoint.path).get("epoch")
    return choice.label if epoch is None else f"{choice.label} (epoch {epoch})"


def stamps(paths: Sequence[Path]) -> list[Stamp]:
    """Identify the contents of each file that is there; a training replaces files by renaming, which changes the inode."""
    found: list[Stamp] = []
    for path in paths:
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


def read_unchanged(paths: Sequence[Path], read: Callable[[], Value]) -> tuple[Value, list[Stamp]]:
    """Read files until none has changed meanwhile. Returns the result and the stamps of the files.

    Raises what `read` raises for unchanged files, and DataError if they change on every attempt.
    """
    for _ in range(ATTEMPTS):
        before = stamps(paths)
        try:
            value = read()
        except DataError:
            if stamps(paths) == before:
                raise
            continue
        if stamps(paths) == before:
            return value, before
    raise DataError("the training keeps replacing this checkpoint; try again in a few seconds")


def lower_priority() -> None:
    """Let other threads go first. On Linux each thread has a priority, which PyTorch's threads started from it inherit."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
