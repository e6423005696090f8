"""Vocoders: mels to audio, at once or in parts, with timings."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.audio.audio_processing import griffin_lim, griffin_lim_in_parts, predict_peak
from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.draws import Draws
from common.errors import DataError
from common.inference.config import GRIFFIN_LIM, SIGMA
from common.options import flag_of_field, from_options
from common.spec import Denoising, SpeechStage, VocoderInference

# B batch, T frames, M mels, N samples

MIN_FRAMES = 8  # shorter clips are padded with silence so that a transform's window fits
END_FRAMES = 1  # silence appended to each clip, alone or in a batch
GPU_FRAMES = 32  # on a GPU, clips are padded to a multiple so that many share a length

Numbers = dict[str, float]  # rates and seconds by their log keys
AudioAndNumbers = tuple[Tensor, Numbers]


class LoadedModel(NamedTuple):
    """A model ready for inference, the data options of its training, its file, if any, and a note on what it leaves open."""

    spec: SpeechStage
    model: Any  # the spec's class, or one of its fast ways
    options: dict[str, Any]
    path: Path | None = None
    assumed: str = ""


def common_audio(acoustic: LoadedModel, vocoding: LoadedModel) -> AudioConfig:
    """Return the audio settings of both models. Raises DataError if they differ."""
    audio, others = (from_options(AudioConfig, loaded.options) for loaded in (acoustic, vocoding))
    differences = [
        f"{flag_of_field(field)} {ours} and {other}"
        for field in fields(AudioConfig)
        if (ours := getattr(audio, field.name)) != (other := getattr(others, field.name))
    ]
    if differences:
        both = " and ".join(str(one.path or "a model without a file") for one in (acoustic, vocoding))
        raise DataError(f"{both}: trained with different audio settings: {', '.join(differences)}")
    return audio


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


class Vocoder:
    """Mels (B, M, T), silent past their lengths (B,) in frames -> audio (B, N), and numbers for the log.

    An item's audio up to its length does not depend on the other items, except for its noise if there are no draws. There is no
    denoiser if `strength` is 0.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        audio: AudioConfig,
        device: torch.device,
        half: bool = False,
        sigma: float = SIGMA,
        strength: float = 0.0,
    ) -> None:
        assert isinstance(loaded.spec.inference, VocoderInference)
        self.stages, self.model = loaded.spec.inference, loaded.model
        self.flag = loaded.spec.flag.replace("-", "_")  # in the log
        self.audio, self.hop_length, self.device = audio, audio.hop_length, device
        self.half = precision.half_dtype(device, half)
        self.sigma, self.strength = sigma, strength
        _ = self.denoiser  # before the first audio

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
            seconds += vocoding
            denoising += subtracting
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

    def with_settings(self, sigma: float, strength: float) -> Vocoder:
        """Return a vocoder with the same model, another deviation of the noise and another strength of the denoiser."""
        other = copy.copy(self)
        other.sigma, other.strength = sigma, strength
        if strength == 0 or self.denoiser is None:
            vars(other).pop("denoiser", None)
        return other

    @cached_property
    def denoiser(self) -> Denoising | None:
        """The denoiser, made where it is first needed: it runs the model, which serves one thread at a time."""
        make = self.stages.denoiser
        with precision.separate_rng(self.device, 0):
            return make(self.model, self.audio) if make and self.strength > 0 else None

    def _denoise(self, audio: Tensor) -> tuple[Tensor, float]:
        with precision.autocast(self.device, None):
            if (denoiser := self.denoiser) is None:
                return audio.float(), 0.0
            return time_call(lambda: denoiser(audio.float(), self.strength), self.device)

    def _numbers(self, lengths: Tensor, seconds: float, denoising: float) -> Numbers:
        rate = int(lengths.sum()) * self.hop_length / seconds
        numbers = {f"{self.flag}_items_per_sec": rate, f"{self.flag}_latency": seconds}
        return numbers | ({"denoiser_latency": denoising} if self.stages.denoiser else {})


def invert_mels(stft: TacotronSTFT, mels: Tensor, sigma: float, draws: Draws | None) -> Tensor:
    """Vocode mels (B, M, T) by Griffin-Lim, which estimates phases; `sigma` has no effect."""
    return limit(griffin_lim(mels, stft, generator=draws), predict_peak(mels, stft))


def invert_in_parts(
    stft: TacotronSTFT, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor], draws: Draws | None
) -> Iterator[Tensor]:
    """Yield the audio of invert_mels for one item in parts (1, n)."""
    peak = predict_peak(mels, stft)
    return (finish(limit(part, peak)) for part in griffin_lim_in_parts(mels, stft, draws))


# The vocoder without weights; its model is the transform that made the mels.
WITHOUT_WEIGHTS = SpeechStage(
    name=GRIFFIN_LIM, inference=VocoderInference(has_noise=False, vocode=invert_mels, stream=invert_in_parts)
)


def griffin_lim_of(acoustic: LoadedModel, device: torch.device) -> LoadedModel:
    """Return Griffin-Lim for the mels of an acoustic model."""
    audio = from_options(AudioConfig, acoustic.options)
    return LoadedModel(WITHOUT_WEIGHTS, TacotronSTFT.from_config(audio).to(device), asdict(audio))


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
