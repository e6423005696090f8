"""The stages of inference, each a function over tensors: texts -> mels -> audio, timed and trimmed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.data.reports import attention_focus
from common.engine import precision
from common.sound.audio_processing import griffin_lim
from common.sound.layers import length_mask
from common.sound.stft import SILENCE, AudioConfig, TacotronSTFT
from common.spec import AcousticInference, Denoiser, ModelSpec, VocoderInference

# B batch, S symbols, T frames, M mels, N samples, K decoder steps

MIN_FRAMES = 8  # shorter clips are lengthened with silence: a transform's window has to fit


class Loaded(NamedTuple):
    """A model ready to infer, and the data options it was trained with."""

    spec: ModelSpec
    model: Any  # the spec's class
    options: dict[str, Any]


class Spoken(NamedTuple):
    """Mels (B, M, T) with silence past their lengths (B,); alignments (B, K, S) and how much of them is each item's (B,)."""

    mels: Tensor
    lengths: Tensor
    alignments: Tensor
    steps: Tensor
    text_lengths: Tensor
    finished: list[bool]  # whether each item ended by itself


class Vocoder(Protocol):
    """Mels (B, M, T) and lengths (B,) in frames -> audio (B, N), and the numbers for the log."""

    def __call__(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, dict[str, float]]: ...


def timed(call: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """A call's result and its seconds, with the device's work in them."""
    precision.synchronize(device)
    start = time.perf_counter()
    result = call()
    precision.synchronize(device)
    return result, time.perf_counter() - start


def make_ready(loaded: Loaded, half: bool, plain: bool) -> Loaded:
    """A model made fast for inference, or plain, as the reference of the fast ways; it cannot be trained any more."""
    if plain:
        loaded.spec.use_plain(loaded.model, True)
        return loaded
    return loaded._replace(model=loaded.spec.inference.prepare(loaded.model, half))


@torch.inference_mode()
def speak(texts: list[str], acoustic: Loaded, device: torch.device, half: bool) -> tuple[Spoken, dict[str, float]]:
    """Texts -> mels, as one batch."""
    stages = acoustic.spec.inference
    assert isinstance(stages, AcousticInference)
    ids, text_lengths = stages.encode(texts, acoustic.options)
    ids, text_lengths = ids.to(device), text_lengths.to(device)
    with precision.autocast(device, precision.half_dtype(device, half)):
        (mels, lengths, alignments), seconds = timed(lambda: acoustic.model.infer(ids, text_lengths), device)
    flag = acoustic.spec.flag
    numbers = {f"{flag}_items_per_sec": lengths.sum().item() / seconds, f"{flag}_latency": seconds}
    finished = (lengths < mels.shape[2]).tolist()
    steps, alignments = lengths // (mels.shape[2] // alignments.shape[1]), alignments.float()
    numbers["attention_focus"] = attention_focus(alignments, steps).mean().item()
    mels = _silence_past_end(mels.float(), lengths)
    return Spoken(mels, lengths, alignments, steps, text_lengths, finished), numbers


def _silence_past_end(mels: Tensor, lengths: Tensor) -> Tensor:
    """Mels as a vocoder should hear them: zeros, which would be a loud noise, become silence."""
    mels = F.pad(mels, (0, max(0, MIN_FRAMES - mels.shape[2])), value=SILENCE)
    inside = length_mask(lengths, mels.shape[2])
    return mels.where(inside[:, None], mels.new_tensor(SILENCE))


def neural_vocoder(
    loaded: Loaded, audio: AudioConfig, device: torch.device, half: bool, sigma: float, strength: float
) -> Vocoder:
    """A trained vocoder and its denoiser."""
    stages = loaded.spec.inference
    assert isinstance(stages, VocoderInference)
    model = loaded.model
    denoise: Denoiser | None = stages.denoiser(model, audio) if strength > 0 else None

    @torch.inference_mode()
    def vocode(mels: Tensor, lengths: Tensor) -> tuple[Tensor, dict[str, float]]:
        with precision.autocast(device, precision.half_dtype(device, half)):
            sound, seconds = timed(lambda: model.infer(mels, sigma=sigma), device)
        flag, samples = loaded.spec.flag, lengths.sum().item() * audio.hop_length
        numbers = {f"{flag}_items_per_sec": samples / seconds, f"{flag}_latency": seconds, "denoiser_latency": 0.0}
        if denoise is not None:
            sound, numbers["denoiser_latency"] = timed(lambda: denoise(sound.float(), strength), device)
        return sound.float(), numbers

    return vocode


def griffin_lim_vocoder(audio: AudioConfig, device: torch.device, seed: int) -> Vocoder:
    """No model: phases estimated from the mels alone. The first phases are the same for every clip and batch."""
    stft = TacotronSTFT.from_config(audio).to(device)

    @torch.inference_mode()
    def vocode(mels: Tensor, lengths: Tensor) -> tuple[Tensor, dict[str, float]]:
        def invert() -> Tensor:
            padded = F.pad(mels, (0, 1), value=SILENCE)  # n + 1 frames make n hops of sound
            clips = [mel[None, :, : max(MIN_FRAMES, int(n)) + 1] for mel, n in zip(padded, lengths, strict=True)]
            sounds = [griffin_lim(clip, stft, generator=torch.Generator().manual_seed(seed))[0] for clip in clips]
            sounds = [sound / sound.abs().max().clamp(min=1.0) for sound in sounds]
            return nn.utils.rnn.pad_sequence(sounds, batch_first=True)

        sounds, seconds = timed(invert, device)
        rate = lengths.sum().item() * audio.hop_length / seconds
        return sounds, {"griffin_lim_items_per_sec": rate, "griffin_lim_latency": seconds}

    return vocode


def trim(audio: Tensor, lengths: Tensor, hop_length: int) -> list[Tensor]:
    """Audio (B, N) and lengths (B,) in frames -> each item's own samples."""
    return [
        sound[: int(frames) * hop_length] for sound, frames in zip(audio, lengths, strict=True)
    ]  # frames to samples
