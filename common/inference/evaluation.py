"""Evaluation of speech: renditions of held-out lines by each system and its anchors, all measured the same way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.draws import Draws
from common.errors import DataError
from common.inference.stages import MelBatch, mels_from_texts, trim
from common.inference.vocoders import LoadedModel, Vocoder, time_call
from common.quality import MEASURED
from common.quality.attention import furthest, read_attention
from common.quality.evaluators import NoiseScore, OpinionScore
from common.quality.likeness import aligned_likeness, likeness
from common.quality.recogniser import ENGLISH, RecogniserConfig
from common.quality.report import Array, ReportLine, System
from common.quality.words import Errors, character_errors, word_errors

# B batch, S symbols, T frames, M mels, N samples, K decoder steps

BATCH = 8  # lines per batch
# A text counts as read to its end once attention comes this close to it: final punctuation may be skipped.
LAST_SYMBOLS = 4
LONGEST_RATIO = 3  # a clip that never stopped is compared up to this multiple of its recording's length
Count = Callable[[str, str, str], Errors]  # of a text, a transcript and a language
COUNTED: dict[str, Count] = {"wer": word_errors, "cer": character_errors}


class HeldOutLine(NamedTuple):
    """A line to synthesise: its text, its recording (N,) if there is one, and the text as read aloud, if known."""

    text: str
    recording: Tensor | None
    spoken_form: str = ""


class Rendition(NamedTuple):
    """A system's output for a line: audio (N,), the values measured so far, and pictures by name.

    `aligned`: whether it follows the recording sample by sample, which some measures require.
    """

    audio: Tensor
    values: dict[str, float]
    pictures: dict[str, Tensor]
    aligned: bool = False


class Evaluators:
    """A recogniser, a predictor of opinion scores and a comparison with recordings, loaded once.

    Raises DataError naming a missing package and the command that installs it.
    """

    def __init__(self, measures: Sequence[str] = MEASURED, hearing: RecogniserConfig | None = None) -> None:
        hearing = hearing or RecogniserConfig()
        self.language = hearing.code
        self.recognise = hearing.load() if "asr" in measures else None
        self.scores: dict[str, Callable[[Array, int], float]] = {}
        if "mos" in measures:
            self.scores = {"mos": OpinionScore(), "dnsmos": NoiseScore()}
        self.compare = likeness if "likeness" in measures else None

    def __call__(self, rendition: Rendition, item: HeldOutLine, rate: int) -> ReportLine:
        """Measure one line. Audio that is not finite counts as silence."""
        audio = rendition.audio.float().cpu().numpy()
        if not np.isfinite(audio).all():
            audio = audio[:0]
        values, counts, transcript = dict(rendition.values), {}, ""
        if self.recognise is not None:
            transcript = self.recognise(audio, rate)
            counts = {name: fewest_errors(count, item, transcript, self.language) for name, count in COUNTED.items()}
        values |= {name: score(audio, rate) for name, score in self.scores.items()}
        if item.recording is not None:
            recording = item.recording.numpy()
            values["duration_ratio"] = len(audio) / len(recording)
            if self.compare is not None and rendition.audio is not item.recording:
                # warping needs memory proportional to the product of both lengths
                longest = LONGEST_RATIO * len(recording)
                values |= self._compare(audio[:longest], recording, rate)
                values |= aligned_likeness(audio, recording, rate) if rendition.aligned else {}
        pictures = {name: picture.numpy() for name, picture in rendition.pictures.items()}
        return ReportLine(item.text, audio, transcript, values, counts, pictures)

    def _compare(self, audio: Array, recording: Array, rate: int) -> dict[str, float]:
        assert self.compare is not None
        values = self.compare(audio, recording, rate)._asdict()
        return {name: float(value) for name, value in values.items() if not math.isnan(value)}


def fewest_errors(count: Count, item: HeldOutLine, transcript: str, language: str = ENGLISH) -> Errors:
    """Count errors against the text as written and as read aloud and return the lower count, since transcripts' spelling varies."""
    counts = [count(text, transcript, language) for text in (item.text, item.spoken_form) if text]
    return min(counts, key=lambda errors: errors.rate)


def evaluate_system(
    name: str,
    items: Sequence[HeldOutLine],
    renditions: Sequence[Rendition],
    speed: float,
    evaluators: Evaluators,
    rate: int,
) -> System:
    """Measure a system on all lines. Shows a progress bar, because most of an evaluation's time is spent here."""
    pairs = list(zip(renditions, items, strict=True))
    bar = tqdm(pairs, desc=f"evaluate {name}", unit="line", leave=False, disable=None)
    return System(name, [evaluators(rendition, item, rate) for rendition, item in bar], speed)


def recordings(items: Sequence[HeldOutLine]) -> list[Rendition]:
    """Return the first anchor, the recordings themselves. Raises DataError if a line has none."""
    return [Rendition(recording_of(item), {}, {}) for item in items]


def renditions_from_true_mels(
    items: Sequence[HeldOutLine], vocoder: Vocoder, audio: AudioConfig, device: torch.device, seed: int
) -> tuple[list[Rendition], float]:
    """Vocode the recordings' own mels (copy synthesis). Returns the renditions, and the seconds of audio per second of work."""
    stft = TacotronSTFT.from_config(audio)
    mels = [stft.mel_spectrogram(recording_of(item)[None])[0] for item in items]
    renditions: list[Rendition] = []
    total = 0.0
    for numbers, batch in _batches(mels, "copy-synthesis"):
        lengths = torch.tensor([mel.shape[1] for mel in batch])
        padded = torch.full((len(batch), audio.n_mel_channels, int(lengths.max())), SILENCE)
        for row, mel in zip(padded, batch, strict=True):
            row[:, : mel.shape[1]] = mel
        draws = Draws.of([(seed, number) for number in numbers], "vocoder", device)
        (sounds, _), seconds = time_call(partial(vocoder, padded.to(device), lengths.to(device), draws), device)
        total += seconds
        sounds = trim(sounds, lengths, audio.hop_length)
        pairs = zip(sounds, batch, strict=True)
        renditions += [Rendition(sound.cpu(), {}, {"mel": mel}, aligned=True) for sound, mel in pairs]
    return renditions, _speed(renditions, total, audio)


def renditions_from_texts(
    items: Sequence[HeldOutLine],
    acoustic: LoadedModel,
    vocoders: Mapping[str, Vocoder],
    audio: AudioConfig,
    device: torch.device,
    half: bool,
    seed: int,
) -> dict[str, tuple[list[Rendition], float]]:
    """Synthesise each text once, free running and in one piece, and vocode the mels with each vocoder; returned by vocoder name.

    A line's random numbers depend only on the seed and its place among the items.
    """
    outputs: dict[str, tuple[list[Rendition], float]] = {name: ([], 0.0) for name in vocoders}
    for numbers, batch in _batches([item.text for item in items], "synthesise"):
        keys = [(seed, number) for number in numbers]
        draws = Draws.of(keys, "acoustic", device)
        (mels, _), reading = time_call(partial(mels_from_texts, batch, acoustic, device, half, draws), device)
        descriptions = list(describe_items(mels))
        for name, vocoder in vocoders.items():
            draws = Draws.of(keys, "vocoder", device)
            (sounds, _), vocoding = time_call(partial(vocoder, mels.mels, mels.lengths, draws), device)
            renditions, total = outputs[name]
            for sound, values in zip(trim(sounds, mels.lengths, audio.hop_length), descriptions, strict=True):
                renditions.append(Rendition(sound.cpu(), *values))
            outputs[name] = renditions, total + reading + vocoding
    return {name: (renditions, _speed(renditions, total, audio)) for name, (renditions, total) in outputs.items()}


def describe_items(batch: MelBatch) -> Iterator[tuple[dict[str, float], dict[str, Tensor]]]:
    """Yield each item's measures of attention and of where it stopped, and its mel and alignment."""
    for i, finished in enumerate(batch.finished):
        frames, steps, symbols = int(batch.lengths[i]), max(1, int(batch.steps[i])), int(batch.text_lengths[i])
        alignment = batch.alignments[i, :steps, :symbols].float().cpu()
        values = {name: float(value) for name, value in read_attention(alignment)._asdict().items()}
        values["ran_to_limit"] = float(not finished)
        values["stopped_early"] = float(finished and furthest(alignment) < symbols - LAST_SYMBOLS)
        yield values, {"mel": batch.mels[i, :, :frames].float().cpu(), "alignment": alignment.T}


def recording_of(item: HeldOutLine) -> Tensor:
    """Return the recording (N,) of a line. Raises DataError if it has none."""
    if item.recording is None:
        raise DataError(f"no recording of {item.text!r}, expected one")
    return item.recording


def _batches(items: Sequence[Any], description: str) -> Iterator[tuple[range, list[Any]]]:
    for start in tqdm(range(0, len(items), BATCH), desc=description, unit="batch", leave=False, disable=None):
        batch = list(items[start : start + BATCH])
        yield range(start, start + len(batch)), batch


def _speed(renditions: Sequence[Rendition], seconds: float, audio: AudioConfig) -> float:
    samples = sum(len(one.audio) for one in renditions)
    return samples / audio.sampling_rate / seconds if seconds else math.nan
