"""The stages of inference, each a function over tensors: texts -> mels -> audio, timed, trimmed and joined."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.audio.audio_processing import griffin_lim
from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.data.reports import attention_focus
from common.errors import UsageError
from common.fast import Request, accelerate
from common.layers import length_mask
from common.spec import AcousticInference, Denoiser, ModelSpec, Piece, VocoderInference, from_options

# B batch, S symbols, T frames, M mels, N samples, K decoder steps

PER_SECOND, SECONDS = "_items_per_sec", "_latency"  # endings of the numbers in the log
TEXT_PAUSE = 0.5  # seconds that who hears texts hears nothing after each
BATCH = 16  # pieces that are spoken at once where texts are cut: memory grows with it
SIGMA_INFER = 0.9  # standard deviation of a vocoder's noise, unless told otherwise
DENOISING_STRENGTH = 0.01  # how much of its own hum is taken out, likewise
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


class Speech(NamedTuple):
    """A text as it was spoken: sound (N,) and alignment (K, S), several pieces' one after the other with NaN past each one's S."""

    sound: Tensor
    alignment: Tensor
    finished: bool  # whether every piece ended by itself
    pieces: int


Hear = Callable[[Tensor], None]  # takes the next sound (N,) of a text as soon as it is made


class Vocoder(Protocol):
    """Mels (B, M, T) and lengths (B,) in frames -> audio (B, N), and the numbers for the log.

    With `hear` the batch is one item, whose sound is given to it in parts, up to its length, before all of it is made.
    """

    def __call__(self, mels: Tensor, lengths: Tensor, hear: Hear | None = None) -> tuple[Tensor, dict[str, float]]: ...


def timed(call: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """A call's result and its seconds, with the device's work in them."""
    precision.synchronize(device)
    start = time.perf_counter()
    result = call()
    precision.synchronize(device)
    return result, time.perf_counter() - start


def make_ready(loaded: Loaded, request: Request, plain: bool = False) -> Loaded:
    """Convert a model by its first fast way for inference that applies, or leave it plain, the reference of the fast ways.

    UsageError where the options ask for a decoding that cannot be, and for int8 in a plain model.
    """
    if isinstance(stages := loaded.spec.inference, AcousticInference):
        stages.guard(loaded.model, loaded.options)
    if plain and request.int8:
        raise UsageError("--int8: --plain keeps weights as they are; leave one of them out")
    ways = () if plain else loaded.spec.fast_ways
    return loaded._replace(model=accelerate(loaded.model, ways, "inference", request))


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
    finished = (lengths < stages.frame_limits(acoustic.model, text_lengths).clamp(max=mels.shape[2])).tolist()
    steps, alignments = lengths // (mels.shape[2] // alignments.shape[1]), alignments.float()
    numbers["attention_focus"] = attention_focus(alignments, steps).mean().item()
    mels = _silence_past_end(mels.float(), lengths)
    return Spoken(mels, lengths, alignments, steps, text_lengths, finished), numbers


def say(
    texts: list[str],
    acoustic: Loaded,
    vocoder: Vocoder,
    device: torch.device,
    half: bool,
    longest: int = 0,
    hear: Hear | None = None,
) -> tuple[list[Speech], dict[str, float]]:
    """Texts -> sounds, those of more than `longest` characters (0: none) in pieces with pauses between, and the stages' speeds.

    One batch speaks all texts, unless any is cut: then batches of BATCH pieces do, the longest first. Where someone hears, it is
    one piece after the other, in their order. BadRows as encode has it.
    """
    stages, options = acoustic.spec.inference, acoustic.options
    assert isinstance(stages, AcousticInference)
    audio = from_options(AudioConfig, options)
    cut = [stages.pieces(text, longest, options) for text in texts]
    parts = [piece.text for pieces in cut for piece in pieces]
    if hear is None and len(parts) == len(texts):
        return _say_batch(texts, acoustic, vocoder, audio.hop_length, device, half)
    stages.encode(texts, options)  # mistakes are those of texts, not of pieces
    order = sorted(range(len(parts)), key=lambda part: -len(parts[part]) if hear is None else part)
    size, voice = (BATCH, vocoder) if hear is None else (1, partial(vocoder, hear=hear))
    pauses = [pause for pieces in cut for pause in [*(piece.pause for piece in pieces[:-1]), TEXT_PAUSE]]
    spoken: dict[int, Speech] = {}
    numbers = []
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        of_batch = [parts[part] for part in batch]
        speeches, speeds = _say_batch(of_batch, acoustic, voice, audio.hop_length, device, half)
        spoken |= zip(batch, speeches, strict=True)
        numbers.append((len(batch), speeds))
        if hear is not None:
            hear(torch.zeros(round(pauses[start] * audio.sampling_rate)))
    in_order = (spoken[part] for part in range(len(parts)))
    rate = audio.sampling_rate
    return [_joined(list(islice(in_order, len(pieces))), pieces, rate) for pieces in cut], _in_all(numbers)


def _say_batch(
    texts: list[str], acoustic: Loaded, vocoder: Vocoder, hop_length: int, device: torch.device, half: bool
) -> tuple[list[Speech], dict[str, float]]:
    """Texts -> a speech of one piece each, copied out of the batch, whose padding is not kept."""
    spoken, numbers = speak(texts, acoustic, device, half)
    sounds, vocoder_numbers = vocoder(spoken.mels, spoken.lengths)
    alignments, steps, symbols = spoken.alignments.cpu(), spoken.steps.tolist(), spoken.text_lengths.tolist()
    speeches = [
        Speech(sound.clone(), alignments[i, : max(1, steps[i]), : symbols[i]].clone(), spoken.finished[i], 1)
        for i, sound in enumerate(trim(sounds.cpu(), spoken.lengths.cpu(), hop_length))
    ]
    return speeches, numbers | vocoder_numbers


def _joined(parts: list[Speech], pieces: list[Piece], sampling_rate: int) -> Speech:
    """Pieces as one speech, with silence in place of every pause but the last."""
    if len(parts) == 1:
        return parts[0]
    sounds: list[Tensor] = []
    for part, piece in zip(parts, pieces, strict=True):
        sounds += [part.sound, torch.zeros(round(piece.pause * sampling_rate))]
    symbols = max(part.alignment.shape[1] for part in parts)
    blank = [F.pad(part.alignment, (0, symbols - part.alignment.shape[1]), value=math.nan) for part in parts]
    return Speech(torch.cat(sounds[:-1]), torch.cat(blank), all(part.finished for part in parts), len(parts))


def _in_all(batches: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """The numbers of batches, each with its items, as one: seconds are added, rates are those of all seconds, others are means."""
    total: dict[str, float] = {}
    for name in batches[0][1]:
        values = [numbers[name] for _, numbers in batches]
        if name.endswith(SECONDS):
            total[name] = sum(values)
            continue
        seconds = name.replace(PER_SECOND, SECONDS)
        weights = [numbers[seconds] if name.endswith(PER_SECOND) else items for items, numbers in batches]
        total[name] = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
    return total


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
    def vocode(mels: Tensor, lengths: Tensor, hear: Hear | None = None) -> tuple[Tensor, dict[str, float]]:
        denoising = 0.0

        def finish(sound: Tensor) -> Tensor:
            nonlocal denoising
            if denoise is None:
                return sound.float()
            with precision.autocast(device, None):
                sound, seconds = timed(lambda: denoise(sound.float(), strength), device)
            denoising += seconds
            return sound

        def make() -> Tensor:
            with precision.autocast(device, precision.half_dtype(device, half)):
                if hear is None:
                    return finish(model.infer(mels, sigma=sigma))
                return _heard(stages.stream(model, mels, sigma, finish), samples, hear)

        flag, samples = loaded.spec.flag, int(lengths.sum()) * audio.hop_length
        sound, seconds = timed(make, device)
        seconds -= denoising
        return sound, {
            f"{flag}_items_per_sec": samples / seconds,
            f"{flag}_latency": seconds,
            "denoiser_latency": denoising,
        }

    return vocode


def _heard(parts: Iterator[Tensor], samples: int, hear: Hear) -> Tensor:
    """Parts of a sound (1, n), of which the first `samples` are to be heard -> all of it (1, N)."""
    made = []
    for part in parts:
        hear(part[0, : max(0, samples)])
        samples -= part.shape[1]
        made.append(part)
    return torch.cat(made, dim=1)


def griffin_lim_vocoder(audio: AudioConfig, device: torch.device, seed: int) -> Vocoder:
    """No model: phases estimated from the mels alone. The first phases are the same for every clip and batch."""
    stft = TacotronSTFT.from_config(audio).to(device)

    @torch.inference_mode()
    def vocode(mels: Tensor, lengths: Tensor, hear: Hear | None = None) -> tuple[Tensor, dict[str, float]]:
        def invert() -> Tensor:
            padded = F.pad(mels, (0, 1), value=SILENCE)  # n + 1 frames make n hops of sound
            clips = [mel[None, :, : max(MIN_FRAMES, int(n)) + 1] for mel, n in zip(padded, lengths, strict=True)]
            sounds = [griffin_lim(clip, stft, generator=torch.Generator().manual_seed(seed))[0] for clip in clips]
            sounds = [sound / sound.abs().max().clamp(min=1.0) for sound in sounds]
            return nn.utils.rnn.pad_sequence(sounds, batch_first=True)

        sounds, seconds = timed(invert, device)
        samples = int(lengths.sum()) * audio.hop_length
        if hear is not None:
            _heard(iter([sounds]), samples, hear)
        rate = samples / seconds
        return sounds, {"griffin_lim_items_per_sec": rate, "griffin_lim_latency": seconds}

    return vocode


def trim(audio: Tensor, lengths: Tensor, hop_length: int) -> list[Tensor]:
    """Audio (B, N) and lengths (B,) in frames -> each item's own samples."""
    return [
        sound[: int(frames) * hop_length] for sound, frames in zip(audio, lengths, strict=True)
    ]  # frames to samples
