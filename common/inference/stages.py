"""The stages of inference, each a function over tensors: texts -> mels -> audio, trimmed and joined, with the time of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common import precision
from common.audio.stft import SILENCE, AudioConfig
from common.data.reports import attention_focus
from common.errors import UsageError
from common.fast import Request, accelerate
from common.inference.vocoders import MIN_FRAMES, LoadedModel, Numbers, Vocoder, time_call
from common.layers import length_mask
from common.spec import AcousticInference, Piece

# B batch, S symbols, T frames, M mels, N samples, K decoder steps

PER_SECOND, SECONDS = "_items_per_sec", "_latency"  # endings of the numbers in the log
TEXT_PAUSE = 0.5  # seconds of silence after each of several texts in a stream
BATCH = 16  # pieces of a batch where texts are cut: memory grows with it

OnAudio = Callable[[Tensor], None]  # takes the next audio (n,) as soon as it is ready


class MelBatch(NamedTuple):
    """Mels (B, M, T) with silence past their lengths (B,), and alignments (B, K, S), of which steps (B,) belong to each item."""

    mels: Tensor
    lengths: Tensor
    alignments: Tensor
    steps: Tensor
    text_lengths: Tensor
    finished: list[bool]  # True where an item ended by itself


class Speech(NamedTuple):
    """The speech of one text, on the CPU.

    The parts of a text that was cut follow each other: in `audio` with their pauses, in `mel` without, and in `alignment` with NaN
    past the symbols of each.
    """

    audio: Tensor  # (N,), float32
    sampling_rate: int  # Hz
    mel: Tensor  # (M, T), log magnitudes
    alignment: Tensor  # (K, S)
    finished: bool  # True where every piece ended by itself
    pieces: int


class Pipeline(NamedTuple):
    """The stages of a voice, and the device and precision that they run in."""

    acoustic: LoadedModel
    vocoder: Vocoder
    audio: AudioConfig
    device: torch.device
    half: bool


SpeechesAndNumbers = tuple[list[Speech], Numbers]


def acoustic_stages(loaded: LoadedModel) -> AcousticInference:
    """Return the stages of an acoustic model's spec."""
    assert isinstance(loaded.spec.inference, AcousticInference)
    return loaded.spec.inference


def prepare_model(loaded: LoadedModel, request: Request, plain: bool = False) -> LoadedModel:
    """Convert a model by its first fast way for inference that applies, or leave it plain, the reference of the fast ways.

    Raises UsageError where the options ask for a decoding that cannot be, and for int8 in a plain model.
    """
    if isinstance(stages := loaded.spec.inference, AcousticInference):
        stages.guard(loaded.model, loaded.options)
    if plain and request.int8:
        raise UsageError("--int8: --plain keeps weights as they are; leave one of them out")
    ways = () if plain else loaded.spec.fast_ways
    return loaded._replace(model=accelerate(loaded.model, ways, "inference", request))


@torch.inference_mode()
def mels_from_texts(
    texts: Sequence[str], acoustic: LoadedModel, device: torch.device, half: bool
) -> tuple[MelBatch, Numbers]:
    """Texts -> mels, as one batch, with the numbers for the log."""
    stages = acoustic_stages(acoustic)
    ids, text_lengths = stages.encode(list(texts), acoustic.options)
    ids, text_lengths = ids.to(device), text_lengths.to(device)
    with precision.autocast(device, precision.half_dtype(device, half)):
        (mels, lengths, alignments), seconds = time_call(lambda: acoustic.model.infer(ids, text_lengths), device)
    flag = acoustic.spec.flag
    numbers = {f"{flag}_items_per_sec": lengths.sum().item() / seconds, f"{flag}_latency": seconds}
    finished = (lengths < stages.frame_limits(acoustic.model, text_lengths).clamp(max=mels.shape[2])).tolist()
    steps, alignments = lengths // (mels.shape[2] // alignments.shape[1]), alignments.float()
    numbers["attention_focus"] = attention_focus(alignments, steps).mean().item()
    mels = _fill_padding_with_silence(mels.float(), lengths)
    return MelBatch(mels, lengths, alignments, steps, text_lengths, finished), numbers


def synthesise(texts: Sequence[str], pipeline: Pipeline, longest_piece: int = 0) -> SpeechesAndNumbers:
    """Texts -> speech, a text of more than `longest_piece` characters (0: no limit) in pieces with pauses between.

    All texts are one batch, unless any is cut: then each batch has at most BATCH pieces, the longest first.
    Raises BadRows as the model's encode does.
    """
    cuts = _cut_texts(texts, pipeline.acoustic, longest_piece)
    parts = [piece.text for pieces in cuts for piece in pieces]
    if len(parts) == len(texts):
        return _synthesise_batch(texts, pipeline)
    _check(texts, pipeline.acoustic)
    order = sorted(range(len(parts)), key=lambda part: -len(parts[part]))
    speeches: dict[int, Speech] = {}
    numbers = []
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        outputs, batch_numbers = _synthesise_batch([parts[part] for part in batch], pipeline)
        speeches |= zip(batch, outputs, strict=True)
        numbers.append((len(batch), batch_numbers))
    return _join_texts((speeches[part] for part in range(len(parts))), cuts), _combine_numbers(numbers)


def stream(
    texts: Sequence[str], pipeline: Pipeline, longest_piece: int = 0, text_pause: float = TEXT_PAUSE
) -> Generator[Tensor, None, SpeechesAndNumbers]:
    """Yield the audio (n,) of texts in parts, in their order, as soon as each is ready; return what `synthesise` returns.

    One piece is synthesised after the other. Pauses are yielded too, `text_pause` seconds after each text.
    """
    _check(texts, pipeline.acoustic)
    cuts = _cut_texts(texts, pipeline.acoustic, longest_piece)
    speeches, numbers = [], []
    for pieces in cuts:
        for piece in pieces:
            mels, mel_numbers = mels_from_texts([piece.text], pipeline.acoustic, pipeline.device, pipeline.half)
            audio, vocoder_numbers = yield from pipeline.vocoder.stream(mels.mels, mels.lengths)
            speeches += _speeches(mels, audio, pipeline.audio)
            numbers.append((1, mel_numbers | vocoder_numbers))
            pause = text_pause if piece is pieces[-1] else piece.pause
            yield torch.zeros(round(pause * pipeline.audio.sampling_rate))
    return _join_texts(iter(speeches), cuts), _combine_numbers(numbers)


def _cut_texts(texts: Sequence[str], acoustic: LoadedModel, longest_piece: int) -> list[list[Piece]]:
    """Cut each text into pieces; a text with a mistake stays whole."""
    return [acoustic_stages(acoustic).pieces(text, longest_piece, acoustic.options) for text in texts]


def _check(texts: Sequence[str], acoustic: LoadedModel) -> None:
    """Raise BadRows for all texts that cannot be read, by their numbers and not by those of pieces."""
    acoustic_stages(acoustic).encode(list(texts), acoustic.options)


def _synthesise_batch(texts: Sequence[str], pipeline: Pipeline) -> SpeechesAndNumbers:
    """Texts -> a speech of one piece each."""
    mels, numbers = mels_from_texts(texts, pipeline.acoustic, pipeline.device, pipeline.half)
    audio, vocoder_numbers = pipeline.vocoder(mels.mels, mels.lengths)
    return _speeches(mels, audio, pipeline.audio), numbers | vocoder_numbers


def _speeches(batch: MelBatch, audio: Tensor, config: AudioConfig) -> list[Speech]:
    """Copy each item out of a batch, without its padding."""
    mels, alignments, lengths = batch.mels.cpu(), batch.alignments.cpu(), batch.lengths.tolist()
    steps, symbols = batch.steps.tolist(), batch.text_lengths.tolist()
    return [
        Speech(
            sound.clone(),
            config.sampling_rate,
            mels[i, :, : lengths[i]].clone(),
            alignments[i, : max(1, steps[i]), : symbols[i]].clone(),
            batch.finished[i],
            pieces=1,
        )
        for i, sound in enumerate(trim(audio.cpu(), batch.lengths.cpu(), config.hop_length))
    ]


def _join_texts(speeches: Iterator[Speech], cuts: list[list[Piece]]) -> list[Speech]:
    """Join the speeches of pieces, in their order, to one speech a text."""
    return [_join_pieces(list(islice(speeches, len(pieces))), pieces) for pieces in cuts]


def _join_pieces(parts: list[Speech], pieces: list[Piece]) -> Speech:
    """Join pieces to one speech, with silence in place of every pause but the last."""
    if len(parts) == 1:
        return parts[0]
    rate = parts[0].sampling_rate
    sounds: list[Tensor] = []
    for part, piece in zip(parts, pieces, strict=True):
        sounds += [part.audio, torch.zeros(round(piece.pause * rate))]
    symbols = max(part.alignment.shape[1] for part in parts)
    alignments = [F.pad(part.alignment, (0, symbols - part.alignment.shape[1]), value=math.nan) for part in parts]
    return Speech(
        torch.cat(sounds[:-1]),
        rate,
        torch.cat([part.mel for part in parts], dim=1),
        torch.cat(alignments),
        all(part.finished for part in parts),
        len(parts),
    )


def _combine_numbers(batches: list[tuple[int, Numbers]]) -> Numbers:
    """Combine the numbers of batches, each with its items: seconds add up, rates are over all seconds, others are means."""
    total: Numbers = {}
    for name in batches[0][1]:
        values = [numbers[name] for _, numbers in batches]
        if name.endswith(SECONDS):
            total[name] = sum(values)
            continue
        seconds = name.replace(PER_SECOND, SECONDS)
        weights = [numbers[seconds] if name.endswith(PER_SECOND) else items for items, numbers in batches]
        total[name] = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
    return total


def _fill_padding_with_silence(mels: Tensor, lengths: Tensor) -> Tensor:
    """Replace zeros in padding, which a vocoder would turn into a loud noise, by silence; lengthen very short mels."""
    mels = F.pad(mels, (0, max(0, MIN_FRAMES - mels.shape[2])), value=SILENCE)
    inside = length_mask(lengths, mels.shape[2])
    return mels.where(inside[:, None], mels.new_tensor(SILENCE))


def trim(audio: Tensor, lengths: Tensor, hop_length: int) -> list[Tensor]:
    """Audio (B, N) and lengths (B,) in frames -> each item's own samples."""
    return [
        sound[: int(frames) * hop_length] for sound, frames in zip(audio, lengths, strict=True)
    ]  # frames to samples
