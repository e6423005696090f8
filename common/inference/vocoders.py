"""Vocoders: mels to audio, at once or in parts, with the seconds that it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.audio.audio_processing import griffin_lim
from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.spec import Denoiser, ModelSpec, VocoderInference

# B batch, T frames, M mels, N samples

MIN_FRAMES = 8  # shorter clips are lengthened with silence: a transform's window has to fit

Numbers = dict[str, float]  # rates and seconds, by their keys in the log
AudioAndNumbers = tuple[Tensor, Numbers]


class LoadedModel(NamedTuple):
    """A model ready to infer, and the data options it was trained with."""

    spec: ModelSpec
    model: Any  # the spec's class, or a fast way of it
    options: dict[str, Any]


class Vocoder(Protocol):
    """Mels (B, M, T) and lengths (B,) in frames -> audio (B, N), and numbers for the log."""

    def __call__(self, mels: Tensor, lengths: Tensor) -> AudioAndNumbers: ...

    def stream(self, mels: Tensor, lengths: Tensor) -> Generator[Tensor, None, AudioAndNumbers]:
        """Yield the audio of one item (1, M, T) in parts (n,), up to its length; return all of it (1, N)."""


def time_call(call: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """Return a call's result and its seconds, the device's work included."""
    precision.synchronize(device)
    start = time.perf_counter()
    result = call()
    precision.synchronize(device)
    return result, time.perf_counter() - start


class NeuralVocoder:
    """A vocoder model and its denoiser; no denoiser where `strength` is 0."""

    def __init__(
        self, loaded: LoadedModel, audio: AudioConfig, device: torch.device, half: bool, sigma: float, strength: float
    ) -> None:
        assert isinstance(loaded.spec.inference, VocoderInference)
        self.stages, self.model, self.flag = loaded.spec.inference, loaded.model, loaded.spec.flag
        self.hop_length, self.device, self.half = audio.hop_length, device, precision.half_dtype(device, half)
        self.sigma, self.strength = sigma, strength
        self.denoiser: Denoiser | None = self.stages.denoiser(self.model, audio) if strength > 0 else None

    @torch.inference_mode()
    def __call__(self, mels: Tensor, lengths: Tensor) -> AudioAndNumbers:
        with precision.autocast(self.device, self.half):
            audio, seconds = time_call(lambda: self.model.infer(mels, sigma=self.sigma), self.device)
            audio, denoising = self._denoise(audio)
        return audio, self._numbers(lengths, seconds, denoising)

    def stream(self, mels: Tensor, lengths: Tensor) -> Generator[Tensor, None, AudioAndNumbers]:
        """Yield the audio of one item (1, M, T) in parts (n,), up to its length; return all of it (1, N)."""
        denoising = total = 0.0

        def finish(part: Tensor) -> Tensor:
            nonlocal denoising
            audio, seconds = self._denoise(part)
            denoising += seconds
            return audio

        parts: list[Tensor] = []
        remaining = int(lengths[0]) * self.hop_length  # frames to samples
        steps = self.stages.stream(self.model, mels, self.sigma, finish)
        while True:
            part, seconds = time_call(lambda: self._advance(steps), self.device)
            total += seconds
            if part is None:
                break
            yield part[0, : max(0, remaining)]
            remaining -= part.shape[1]
            parts.append(part)
        return torch.cat(parts, dim=1), self._numbers(lengths, total - denoising, denoising)

    @torch.inference_mode()
    def _advance(self, steps: Iterator[Tensor]) -> Tensor | None:
        """The next part, computed in the modes of inference, which the consumer of the parts does not run in."""
        with precision.autocast(self.device, self.half):
            return next(steps, None)

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
    """No model: phases are estimated from the mels alone. The first phases are the same for every clip and batch."""

    def __init__(self, audio: AudioConfig, device: torch.device, seed: int) -> None:
        self.stft, self.device, self.seed = TacotronSTFT.from_config(audio).to(device), device, seed

    @torch.inference_mode()
    def __call__(self, mels: Tensor, lengths: Tensor) -> AudioAndNumbers:
        audio, seconds = time_call(lambda: self._invert(mels, lengths), self.device)
        rate = int(lengths.sum()) * self.stft.config.hop_length / seconds
        return audio, {"griffin_lim_items_per_sec": rate, "griffin_lim_latency": seconds}

    def stream(self, mels: Tensor, lengths: Tensor) -> Generator[Tensor, None, AudioAndNumbers]:
        """Yield the audio of one item (1, M, T) as one part (n,), up to its length; return all of it (1, N)."""
        audio, numbers = self(mels, lengths)
        yield audio[0, : int(lengths[0]) * self.stft.config.hop_length]
        return audio, numbers

    def _invert(self, mels: Tensor, lengths: Tensor) -> Tensor:
        padded = F.pad(mels, (0, 1), value=SILENCE)  # n + 1 frames make n hops of sound
        clips = [mel[None, :, : max(MIN_FRAMES, int(n)) + 1] for mel, n in zip(padded, lengths, strict=True)]
        sounds = [griffin_lim(clip, self.stft, generator=self._generator())[0] for clip in clips]
        sounds = [sound / sound.abs().max().clamp(min=1.0) for sound in sounds]
        return nn.utils.rnn.pad_sequence(sounds, batch_first=True)

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)
