"""The stages of inference, pure functions over texts and tensors: lines -> pieces -> mels -> audio -> speech."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from common import precision
from common.audio.stft import SILENCE, AudioConfig
from common.data.filelist import BadRows, NothingToSay
from common.data.languages import notes_on_language
from common.data.lexicon import Lexicon
from common.draws import Draws
from common.errors import DataError, UsageError, listed
from common.fast import Request, accelerate
from common.inference.config import LONG_LIST
from common.inference.vocoders import MIN_FRAMES, LoadedModel, Numbers, time_call
from common.layers import length_mask
from common.quality.attention import attention_focus
from common.spec import AcousticInference, Piece

# B batch, S symbols, T frames, M mels, N samples, K decoder steps

Result = TypeVar("Result")

PER_SECOND, SECONDS = "_items_per_sec", "_latency"  # suffixes of the numbers in the log
TEXT_PAUSE = 0.5  # seconds of silence after each of several lines in a stream


class Line(NamedTuple):
    """A text to synthesise. Its random numbers depend on the seed and its number in a file or call, not on its batch."""

    text: str
    seed: int = 0
    number: int = 0


class MelBatch(NamedTuple):
    """Mels (B, M, T), silent past their lengths (B,), and alignments (B, K, S) with the number of steps (B,) of each item."""

    mels: Tensor
    lengths: Tensor
    alignments: Tensor
    steps: Tensor
    text_lengths: Tensor
    finished: list[bool]  # True for items that ended by themselves

    def item(self, number: int) -> MelBatch:
        """Return one item as a batch of its own, without padding."""
        one = slice(number, number + 1)
        length = max(MIN_FRAMES, int(self.lengths[number]))  # host sync
        steps, symbols = max(1, int(self.steps[number])), int(self.text_lengths[number])
        return MelBatch(
            self.mels[one, :, :length],
            self.lengths[one],
            self.alignments[one, :steps, :symbols],
            self.steps[one],
            self.text_lengths[one],
            self.finished[one],
        )


class Part(NamedTuple):
    """A piece within a speech: the text as read, its steps and frames, and its start and length in seconds."""

    text: str
    steps: int  # of the decoder
    frames: int
    start: float
    seconds: float
    finished: bool  # True if it ended by itself


class Speech(NamedTuple):
    """The speech of one text, on the CPU.

    The pieces of a text that was cut are concatenated: in `audio` with their pauses, in `mel` without, and in `alignment` with NaN
    past the symbols of each piece. A text without words has none of them.
    """

    audio: Tensor  # (N,), float32
    sampling_rate: int  # Hz
    mel: Tensor  # (M, T), log magnitudes
    alignment: Tensor  # (K, S)
    parts: tuple[Part, ...]  # its pieces, in order

    @property
    def finished(self) -> bool:
        """True if every piece ended by itself."""
        return all(part.finished for part in self.parts)

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return len(self.parts)

    def in_parts(self) -> Iterator[tuple[Part, Tensor]]:
        """Yield each piece with its rows of the alignment, (k, S)."""
        first = 0
        for part in self.parts:
            yield part, self.alignment[first : first + part.steps]
            first += part.steps


class Batch(NamedTuple):
    """The outputs of some lines, in order."""

    speeches: list[Speech | None]  # None for a line that does not fit into memory even alone
    numbers: Numbers  # for the log; empty if no line fits
    halved: bool  # True if memory was short and the lines ran in smaller batches


# Yields audio (n,); returns its speech, and numbers for the log.
AudioSteps = Generator[Tensor, None, tuple[Speech, Numbers]]


class PieceStream(NamedTuple):
    """The speech of a piece before its audio, and the steps that compute that."""

    draft: Speech
    steps: AudioSteps


def map_parts(
    steps: Generator[Tensor, None, Result], change: Callable[[Tensor], Tensor]
) -> Generator[Tensor, None, Result]:
    """Yield what `change` makes of each part of some steps, and return their result."""
    while True:
        try:
            part = next(steps)
        except StopIteration as end:
            return end.value
        yield change(part)


def in_memory(call: Callable[[], Result]) -> Result | None:
    """Return a call's result; None if memory is too short for it. By then the error, which keeps tensors alive, is gone."""
    try:
        return call()
    except (RuntimeError, MemoryError) as error:
        if not precision.is_out_of_memory(error):
            raise
    return None


def acoustic_stages(loaded: LoadedModel) -> AcousticInference:
    """Return the stages of an acoustic model's spec."""
    assert isinstance(loaded.spec.inference, AcousticInference)
    return loaded.spec.inference


def notes_on(loaded: LoadedModel, text: str, language: str | None = None) -> list[str]:
    """List what a text demands of an acoustic model in vain, and its sentences in another than the voice's `language`, if known.

    A text with mistakes has none, since it is refused.
    """
    try:
        notes = acoustic_stages(loaded).notes(text, loaded.options)
        dropped = acoustic_stages(loaded).unspoken(text, loaded.options)
    except DataError:
        return []
    seen = [
        repr(character) for character in dropped if unicodedata.category(character)[0] != "C"
    ]  # others are invisible
    notes += [f"the alphabet has no {listed(seen, LONG_LIST)}: left out"] if seen else []
    return notes + (notes_on_language(text, language) if language else [])


def use_lexicon(loaded: LoadedModel, lexicon: Lexicon) -> LoadedModel:
    """Give an acoustic model a lexicon. Raises DataError for ARPAbet that the model lacks."""
    stages, options = acoustic_stages(loaded), loaded.options
    lexicon.check(lambda spoken: stages.encode(spoken, options), lambda spoken: stages.unspoken(spoken, options))
    return loaded._replace(options=loaded.options | {"lexicon": lexicon})


def prepare_model(loaded: LoadedModel, request: Request, plain: bool = False) -> LoadedModel:
    """Convert a model by the first fast way for inference that applies; `plain` leaves it as it is.

    Prints a note where an edited model has to run as it is.

    Raises UsageError for decoding options that cannot work, and for int8 in a plain model.
    """
    if isinstance(stages := loaded.spec.inference, AcousticInference):
        stages.guard(loaded.model, loaded.options)
    if plain and request.int8:
        raise UsageError("--int8: --plain keeps weights as they are; leave one of them out")
    ways = () if plain else loaded.spec.fast_ways
    model, note = accelerate(loaded.model, ways, "inference", request)
    if note:
        precision.print_once(f"note: {note}")
    return loaded._replace(model=model)


@torch.inference_mode()
def mels_from_texts(
    texts: Sequence[str], acoustic: LoadedModel, device: torch.device, half: bool, draws: Draws | None = None
) -> tuple[MelBatch, Numbers]:
    """Texts -> mels, as one batch, with the numbers for the log. Without draws, random numbers come from PyTorch's generator."""
    stages = acoustic_stages(acoustic)
    ids, text_lengths = stages.encode(list(texts), acoustic.options)
    ids, text_lengths = ids.to(device), text_lengths.to(device)
    with precision.autocast(device, precision.half_dtype(device, half)):
        outputs, seconds = time_call(lambda: stages.infer(acoustic.model, ids, text_lengths, draws), device)
    mels, lengths, alignments = outputs
    flag = acoustic.spec.flag
    numbers = {f"{flag}_items_per_sec": lengths.sum().item() / seconds, f"{flag}_latency": seconds}
    finished = (lengths < stages.frame_limits(acoustic.model, text_lengths).clamp(max=mels.shape[2])).tolist()
    steps, alignments = lengths // (mels.shape[2] // alignments.shape[1]), alignments.float()
    numbers["attention_focus"] = attention_focus(alignments, steps).mean().item()
    mels = _fill_padding_with_silence(mels.float(), lengths)
    return MelBatch(mels, lengths, alignments, steps, text_lengths, finished), numbers


def plan_batches(lines: Sequence[Line | Piece], batch_size: int) -> list[list[int]]:
    """Sort lines by length, the longest first, into batches of at most `batch_size` (0: all), as positions in `lines`."""
    order = sorted(range(len(lines)), key=lambda position: -len(lines[position].text))
    size = batch_size or max(1, len(lines))
    return [order[start : start + size] for start in range(0, len(order), size)]


def check_texts(texts: Sequence[str], acoustic: LoadedModel) -> list[bool]:
    """Return which texts have words. Raises one BadRows for all texts that cannot be read."""
    stages, problems = acoustic_stages(acoustic), {}
    cuts = [[piece.text for piece in stages.pieces(text, 0, acoustic.options)] for text in texts]
    for number, cut in enumerate(cuts):
        try:
            if cut:
                stages.encode(cut, acoustic.options)
        except BadRows as error:
            problems[number] = "; ".join(error.problems.values())
    if problems:
        raise BadRows(problems)
    return [bool(cut) for cut in cuts]


def require_words(texts: Sequence[str], acoustic: LoadedModel) -> None:
    """Raise one BadRows for all texts that cannot be read, and NothingToSay if no text has words."""
    if texts and not any(check_texts(texts, acoustic)):
        try:
            acoustic_stages(acoustic).encode(list(texts), acoustic.options)
        except BadRows as error:
            raise NothingToSay(error.problems) from None


def cut_line(line: Line, acoustic: LoadedModel, longest_piece: int) -> list[Piece]:
    """Cut a line into pieces, each with its own key."""
    pieces = acoustic_stages(acoustic).pieces(line.text, longest_piece, acoustic.options)
    return [piece._replace(key=(line.seed, line.number, i)) for i, piece in enumerate(pieces)]


def check_finite(values: Tensor, pieces: Sequence[Piece], name: str, path: Path | None) -> None:
    """Raise BadRows for lines with NaN or infinite values (B, …): finite weights can overflow with some texts."""
    finite = values.isfinite().flatten(1).all(dim=1).tolist()  # host sync, once a batch
    owner = path or "this model"
    problem = f"NaN or infinite {name}: the weights of {owner} overflow with this text; take another checkpoint"
    if bad := {piece.key[1]: problem for piece, good in zip(pieces, finite, strict=True) if not good}:
        raise BadRows(bad)


def make_speeches(batch: MelBatch, audio: Tensor, pieces: Sequence[Piece], config: AudioConfig) -> list[Speech]:
    """Copy each piece out of a batch, without padding."""
    mels, alignments, lengths = batch.mels.cpu(), batch.alignments.cpu(), batch.lengths.tolist()
    steps, symbols = batch.steps.tolist(), batch.text_lengths.tolist()
    seconds = config.hop_length / config.sampling_rate  # of a frame
    return [
        Speech(
            sound.clone(),
            config.sampling_rate,
            mels[i, :, : lengths[i]].clone(),
            alignments[i, : max(1, steps[i]), : symbols[i]].clone(),
            (Part(pieces[i].text, max(1, steps[i]), lengths[i], 0.0, lengths[i] * seconds, batch.finished[i]),),
        )
        for i, sound in enumerate(trim(audio.cpu(), batch.lengths.cpu(), config.hop_length))
    ]


def join_pieces(speeches: Sequence[Speech | None], pieces: Sequence[Piece], audio: AudioConfig) -> Speech | None:
    """Join the pieces of a line with their pauses; None if a piece is missing."""
    whole = [speech for speech in speeches if speech is not None]
    if len(whole) < len(speeches):
        return None
    rate = audio.sampling_rate
    if not whole:
        return Speech(torch.zeros(0), rate, torch.zeros(audio.n_mel_channels, 0), torch.zeros(0, 0), ())
    sounds: list[Tensor] = []
    parts: list[Part] = []
    for speech, piece in zip(whole, pieces, strict=True):
        sounds.append(torch.zeros(round(piece.lead * rate)))
        start = sum(map(len, sounds)) / rate
        parts += [part._replace(start=start + part.start) for part in speech.parts]
        sounds += [speech.audio, torch.zeros(round(piece.pause * rate))]
    symbols = max(speech.alignment.shape[1] for speech in whole)
    alignments = [F.pad(speech.alignment, (0, symbols - speech.alignment.shape[1]), value=math.nan) for speech in whole]
    return Speech(
        torch.cat(sounds), rate, torch.cat([speech.mel for speech in whole], dim=1), torch.cat(alignments), tuple(parts)
    )


def combine_numbers(batches: Sequence[tuple[int, Numbers]], at_once: bool = False) -> Numbers:
    """Combine the numbers of batches, each with its item count: seconds add up, rates are over all seconds, others are averaged.

    `at_once` is for processes that run side by side: their rates add up, and the slowest one's seconds count.
    """
    total: Numbers = {}
    for name in batches[0][1] if batches else ():
        values = [numbers[name] for _, numbers in batches]
        if name.endswith(SECONDS):
            total[name] = max(values) if at_once else sum(values)
            continue
        if at_once and name.endswith(PER_SECOND):
            total[name] = sum(values)
            continue
        seconds = name.replace(PER_SECOND, SECONDS)
        weights = [numbers[seconds] if name.endswith(PER_SECOND) else items for items, numbers in batches]
        total[name] = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
    return total


def _fill_padding_with_silence(mels: Tensor, lengths: Tensor) -> Tensor:
    """Replace zeros in padding, which a vocoder would turn into loud noise, by silence; lengthen very short mels."""
    mels = F.pad(mels, (0, max(0, MIN_FRAMES - mels.shape[2])), value=SILENCE)
    inside = length_mask(lengths, mels.shape[2])
    return mels.where(inside[:, None], mels.new_tensor(SILENCE))


def trim(audio: Tensor, lengths: Tensor, hop_length: int) -> list[Tensor]:
    """Audio (B, N) and lengths (B,) in frames -> the samples of each item, without padding."""
    n_samples = (lengths * hop_length).tolist()  # frames to samples
    return [sound[:count] for sound, count in zip(audio, n_samples, strict=True)]
