"""Vocoders: mels to audio, at once or in parts, with timings."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.audio.audio_processing import griffin_lim, griffin_lim_in_parts, predict_peak
from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.draws import Draws
from common.errors import DataError
from common.options import from_options
from common.spec import Denoising, ModelSpec, VocoderInference

# B batch, T frames, M mels, N samples

MIN_FRAMES = 8  # shorter clips are padded with silence so that a transform's window fits
END_FRAMES = 1  # silence appended to each clip, alone or in a batch
GPU_FRAMES = 32  # on a GPU, clips are padded to a multiple so that many share a length

Numbers = dict[str, float]  # rates and seconds by their log keys
AudioAndNumbers = tuple[Tensor, Numbers]


class LoadedModel(NamedTuple):
    """A model ready for inference, the data options of its training, its file, if any, and a note on what it leaves open."""

    spec: ModelSpec
    model: Any  # the spec's class, or one of its fast ways
    options: dict[str, Any]
    path: Path | None = None
    assumed: str = ""


def common_audio(acoustic: LoadedModel, vocoding: LoadedModel | None) -> AudioConfig:
    """Return the audio settings of both models. Raises DataError if they differ."""
    audio = from_options(AudioConfig, acoustic.options)
    others = from_options(AudioConfig, vocoding.options) if vocoding else audio
    differences = [
        f"{field.name} is {ours} and {other}"
        for field in fields(AudioConfig)
        if (ours := getattr(audio, field.name)) != (other := getattr(others, field.name))
    ]
    if differences and vocoding:
        both = " and ".join(str(one.path or "a model without a file") for one in (acoustic, vocoding))
        raise DataError(f"{both}: trained with different audio settings: {', '.join(differences)}")
    return audio


class Vocoder(Protocol):
    """Mels (B, M, T), silent past their lengths (B,) in frames -> audio (B, N), and numbers for the log.

    An item's audio up to its length does not depend on the other items, except for its noise if there are no draws.
    """

    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> AudioAndNumbers: ...

    def stream(
        self, mels: Tensor, lengths: Tensor, draws: Draws | None = None
    ) -> Generator[Tensor, None, AudioAndNumbers]:
        """Yield the audio of one item (1, M, T) in parts (n,), up to its length; return all of it (1, N)."""

    def with_settings(self, seed: int, sigma: float, strength: float) -> Vocoder:
        """Return a vocoder with the same model and another seed, noise deviation and denoiser strength."""


def time_call(call: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """Return a call's result and the seconds it took, including the device's work."""
    precision.synchronize(device)
    start = time.perf_counter()
    result = call()
    precision.synchronize(device)
    return result, time.perf_counter() - start


def timed_parts(
    steps: Iterator[Tensor], samples: int, device: torch.device, half: torch.dtype | None = None
) -> Generator[Tensor, None, tuple[Tensor, float]]:
    """Yield the first `samples` of parts (1, n); return all (1, N), and the seconds they took, computed in `half`.

    Inference mode must not be on while the consumer of the parts runs.
    """

    @torch.inference_mode()
    def advance() -> Tensor | None:
        with precision.autocast(device, half):
            return next(steps, None)

    parts: list[Tensor] = []
    total = 0.0
    while True:
        part, seconds = time_call(advance, device)
        total += seconds
        if part is None:
            return torch.cat(parts, dim=1), total
        yield part[0, : max(0, samples)]
        samples -= part.shape[1]
        parts.append(part)


class NeuralVocoder:
    """A vocoder model with its denoiser; no denoiser if `strength` is 0."""

    def __init__(
        self, loaded: LoadedModel, audio: AudioConfig, device: torch.device, half: bool, sigma: float, strength: float
    ) -> None:
        assert isinstance(loaded.spec.inference, VocoderInference)
        self.stages, self.model = loaded.spec.inference, loaded.model
        self.flag = loaded.spec.flag.replace("-", "_")  # in the log
        self.audio, self.hop_length, self.device = audio, audio.hop_length, device
        self.half = precision.half_dtype(device, half)
        self.sigma, self.strength = sigma, strength
        self.denoiser: Denoising | None = self.stages.denoiser(self.model, audio) if strength > 0 else None

    @torch.inference_mode()
    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> AudioAndNumbers:
        seconds = denoising = 0.0
        sounds: dict[int, Tensor] = {}
        for items, clips in clips_of_one_length(mels, lengths):
            own = draws.take(items) if draws else None
            with precision.autocast(self.device, self.half):
                vocode = partial(self.stages.vocode, self.model, clips, self.sigma, own)
                audio, vocoding = time_call(vocode, self.device)
                audio, subtracting = self._denoise(audio)
            seconds, denoising = seconds + vocoding, denoising + subtracting
            sounds |= zip(items, audio, strict=True)
        padded = nn.utils.rnn.pad_sequence([sounds[item] for item in range(len(mels))], batch_first=True)
        return padded, self._numbers(lengths, seconds, denoising)

    def stream(
        self, mels: Tensor, lengths: Tensor, draws: Draws | None = None
    ) -> Generator[Tensor, None, AudioAndNumbers]:
        """Yield the audio of one item (1, M, T) in parts (n,), up to its length; return all of it (1, N)."""
        denoising = 0.0

        def finish(part: Tensor) -> Tensor:
            nonlocal denoising
            audio, seconds = self._denoise(part)
            denoising += seconds
            return audio

        ((_, clip),) = clips_of_one_length(mels, lengths)
        steps = self.stages.stream(self.model, clip, self.sigma, finish, draws)
        samples = int(lengths[0]) * self.hop_length  # frames to samples
        audio, total = yield from timed_parts(steps, samples, self.device, self.half)
        return audio, self._numbers(lengths, total - denoising, denoising)

    def with_settings(self, seed: int, sigma: float, strength: float) -> NeuralVocoder:
        """Return a vocoder with the same model and other settings; the noise comes from each call's draws, not from the seed."""
        other = copy.copy(self)
        other.sigma, other.strength = sigma, strength
        if strength > 0 and other.denoiser is None:
            with precision.separate_rng(self.device, 0):  # a denoiser runs its model
                other.denoiser = self.stages.denoiser(self.model, self.audio)
        elif strength == 0:
            other.denoiser = None
        return other

    def _denoise(self, audio: Tensor) -> tuple[Tensor, float]:
        if self.denoiser is None:
            return audio.float(), 0.0
        denoiser = self.denoiser
        with precision.autocast(self.device, None):
            return time_call(lambda: denoiser(audio.float(), self.strength), self.device)

    def _numbers(self, lengths: Tensor, seconds: float, denoising: float) -> Numbers:
        rate = int(lengths.sum()) * self.hop_length / seconds
        return {f"{self.flag}_items_per_sec": rate, f"{self.flag}_latency": seconds, "denoiser_latency": denoising}


class GriffinLimVocoder:
    """Griffin-Lim, without a model: estimates phases from the mels. Initial phases are the same for every clip and batch."""

    def __init__(self, audio: AudioConfig, device: torch.device, seed: int) -> None:
        self.stft, self.device, self.seed = TacotronSTFT.from_config(audio).to(device), device, seed

    @torch.inference_mode()
    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> AudioAndNumbers:
        audio, seconds = time_call(lambda: self._invert(mels, lengths), self.device)
        return audio, self._numbers(lengths, seconds)

    def stream(
        self, mels: Tensor, lengths: Tensor, draws: Draws | None = None
    ) -> Generator[Tensor, None, AudioAndNumbers]:
        """Yield the audio of one item (1, M, T) in parts (n,), up to its length; return all of it (1, N)."""
        (clip,) = self._clips(mels, lengths)
        peak = predict_peak(clip, self.stft)
        steps = (limit(part, peak) for part in griffin_lim_in_parts(clip, self.stft, self._generator()))
        samples = int(lengths[0]) * self.stft.config.hop_length  # frames to samples
        audio, total = yield from timed_parts(steps, samples, self.device)
        return audio, self._numbers(lengths, total)

    def with_settings(self, seed: int, sigma: float, strength: float) -> GriffinLimVocoder:
        """Return the same transform with initial phases of another seed; there is no noise and no denoiser to set."""
        other = copy.copy(self)
        other.seed = seed
        return other

    def _invert(self, mels: Tensor, lengths: Tensor) -> Tensor:
        sounds = []
        for clip in self._clips(mels, lengths):
            whole = griffin_lim(clip, self.stft, generator=self._generator())[0]
            sounds.append(limit(whole, predict_peak(clip, self.stft)))
        return nn.utils.rnn.pad_sequence(sounds, batch_first=True)

    def _clips(self, mels: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return each item's mels (1, M, t), with n + 1 frames for n hops of sound."""
        padded = F.pad(mels, (0, 1), value=SILENCE)
        return [mel[None, :, : max(MIN_FRAMES, int(n)) + 1] for mel, n in zip(padded, lengths, strict=True)]

    def _numbers(self, lengths: Tensor, seconds: float) -> Numbers:
        rate = int(lengths.sum()) * self.stft.config.hop_length / seconds
        return {"griffin_lim_items_per_sec": rate, "griffin_lim_latency": seconds}

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


def limit(audio: Tensor, peak: Tensor) -> Tensor:
    """Divide audio by its predicted peak if that exceeds 1, and clip to [-1, 1]. A stream's true peak is unknown until its end."""
    return (audio / peak.clamp(min=1)).clamp(-1, 1)


def clips_of_one_length(mels: Tensor, lengths: Tensor) -> Iterator[tuple[list[int], Tensor]]:
    """Yield groups of clips of one length from mels (B, M, T) with lengths (B,): item numbers and mels (b, M, t).

    A model's receptive field reaches past a clip's end, so padding to a longer neighbour would change the clip. On a CPU, where
    batching gains nothing, clips run one by one; on a GPU, clips whose length rounds up to the same multiple run together.
    """
    on_cpu = mels.device.type == "cpu"
    multiple = 1 if on_cpu else GPU_FRAMES
    frames = [max(MIN_FRAMES, length + END_FRAMES) for length in lengths.tolist()]  # host sync, once per batch
    frames = [count + -count % multiple for count in frames]
    padded = F.pad(mels, (0, max(0, max(frames) - mels.shape[2])), value=SILENCE)
    groups: dict[int, list[int]] = {}
    for item, count in enumerate(frames):
        groups.setdefault(item if on_cpu else count, []).append(item)
    for items in groups.values():
        yield items, padded[items, :, : frames[items[0]]]
