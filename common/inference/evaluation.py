"""How well models speak: texts and recordings through each stage and its anchors, all of them judged alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from common import precision
from common.audio.stft import SILENCE, AudioConfig, TacotronSTFT
from common.errors import DataError
from common.inference.stages import Loaded, Spoken, Vocoder, speak, timed, trim
from common.quality.attention import furthest, read_attention
from common.quality.likeness import likeness
from common.quality.opinion import OpinionScore
from common.quality.recogniser import Recogniser
from common.quality.report import Array, Line, System
from common.quality.words import Errors, character_errors, word_errors

# B batch, S symbols, T frames, M mels, N samples, K decoder steps

MEASURED = ("asr", "mos", "likeness")  # what can be left out, as it wants packages or time
BATCH = 8  # lines that are spoken at once
# A text was read to its end when attention came within so many symbols of it: final points are skipped over.
LAST_SYMBOLS = 4
LONGEST_RATIO = 3  # a clip that never stopped is compared so many times as far as its recording goes
COUNTED: dict[str, Callable[[str, str], Errors]] = {"wer": word_errors, "cer": character_errors}


class HeldOut(NamedTuple):
    """A line to speak: its text, the recording (N,) of it if there is one, and the text as it is read aloud if that is known."""

    text: str
    recording: Tensor | None
    aloud: str = ""


class Made(NamedTuple):
    """A line as a system made it: sound (N,), what is known beside it, and pictures of it by name."""

    sound: Tensor
    values: dict[str, float]
    pictures: dict[str, Tensor]


class Judges:
    """The evaluators, loaded once. DataError names what is not installed and how to install it."""

    def __init__(self, measured: Sequence[str] = MEASURED) -> None:
        self.recognise = Recogniser() if "asr" in measured else None
        self.score = OpinionScore() if "mos" in measured else None
        self.compare = likeness if "likeness" in measured else None

    def __call__(self, made: Made, item: HeldOut, rate: int) -> Line:
        """What is to be said of a line. A system that made no sound is heard as silence."""
        sound = made.sound.float().cpu().numpy()
        if not np.isfinite(sound).all():
            sound = sound[:0]  # what is no number is no sound
        values, counts, heard = dict(made.values), {}, ""
        if self.recognise is not None:
            heard = self.recognise(sound, rate)
            counts = {name: fewest(count, item, heard) for name, count in COUNTED.items()}
        if self.score is not None:
            values["mos"] = self.score(sound, rate)
        if item.recording is not None:
            recording = item.recording.numpy()
            values["duration_ratio"] = len(sound) / len(recording)
            if self.compare is not None and made.sound is not item.recording:
                longest = LONGEST_RATIO * len(recording)  # warping takes memory by the product of both
                values |= self._against(sound[:longest], recording, rate)
        return Line(item.text, sound, heard, values, counts, {k: p.numpy() for k, p in made.pictures.items()})

    def _against(self, sound: Array, recording: Array, rate: int) -> dict[str, float]:
        assert self.compare is not None
        found = self.compare(sound, recording, rate)._asdict()
        return {name: float(value) for name, value in found.items() if not math.isnan(value)}


def fewest(count: Callable[[str, str], Errors], item: HeldOut, heard: str) -> Errors:
    """Errors against the text as it is written or as it is read aloud, whichever the recogniser's spelling is closer to."""
    return min((count(text, heard) for text in (item.text, item.aloud) if text), key=lambda errors: errors.rate)


def judged(
    name: str, items: Sequence[HeldOut], made: Sequence[Made], speed: float, judges: Judges, rate: int
) -> System:
    """A system on all lines, with a progress bar: this is what takes the time."""
    pairs = tqdm(list(zip(made, items, strict=True)), desc=f"judge {name}", unit="line", leave=False, disable=None)
    return System(name, [judges(one, item, rate) for one, item in pairs], speed)


def recordings(items: Sequence[HeldOut]) -> list[Made]:
    """The first anchor: what was recorded. DataError where a line has no recording."""
    return [Made(recording_of(item), {}, {}) for item in items]


def from_true_mels(
    items: Sequence[HeldOut], vocoder: Vocoder, audio: AudioConfig, device: torch.device, seed: int
) -> tuple[list[Made], float]:
    """Copy-synthesis: the recordings' own mels through a vocoder; and seconds of sound per second of its work."""
    stft = TacotronSTFT.from_config(audio)
    mels = [stft.mel_spectrogram(recording_of(item)[None])[0] for item in items]
    made: list[Made] = []
    spent = 0.0
    for number, batch in enumerate(_batches(mels, "copy-synthesis")):
        lengths = torch.tensor([mel.shape[1] for mel in batch])
        padded = torch.full((len(batch), audio.n_mel_channels, int(lengths.max())), SILENCE)
        for row, mel in zip(padded, batch, strict=True):
            row[:, : mel.shape[1]] = mel
        with precision.separate_rng(device, seed + number):
            (sounds, _), seconds = timed(partial(vocoder, padded.to(device), lengths.to(device)), device)
        spent += seconds
        trimmed = trim(sounds, lengths, audio.hop_length)
        made += [Made(sound.cpu(), {}, {"mel": mel}) for sound, mel in zip(trimmed, batch, strict=True)]
    return made, _speed(made, spent, audio)


def from_texts(
    items: Sequence[HeldOut],
    acoustic: Loaded,
    vocoders: dict[str, Vocoder],
    audio: AudioConfig,
    device: torch.device,
    half: bool,
    seed: int,
) -> dict[str, tuple[list[Made], float]]:
    """The texts spoken free running, once, each in one piece, and the mels through each vocoder; by the vocoders' names.

    A batch's dropout depends on the seed and the batch alone, not on what vocoders draw.
    """
    found: dict[str, tuple[list[Made], float]] = {name: ([], 0.0) for name in vocoders}
    for number, batch in enumerate(_batches([item.text for item in items], "speak")):
        with precision.separate_rng(device, seed + number):
            (spoken, _), reading = timed(partial(speak, batch, acoustic, device, half), device)
        known = list(describe(spoken))
        for name, vocoder in vocoders.items():
            with precision.separate_rng(device, seed + number):
                (sounds, _), vocoding = timed(partial(vocoder, spoken.mels, spoken.lengths), device)
            trimmed = trim(sounds, spoken.lengths, audio.hop_length)
            made, spent = found[name]
            made += [Made(sound.cpu(), *rest) for sound, rest in zip(trimmed, known, strict=True)]
            found[name] = made, spent + reading + vocoding
    return {name: (made, _speed(made, spent, audio)) for name, (made, spent) in found.items()}


def describe(spoken: Spoken) -> Iterator[tuple[dict[str, float], dict[str, Tensor]]]:
    """Of each item that was spoken: how it read its text and whether it stopped where it should, and its mel and alignment."""
    for i, finished in enumerate(spoken.finished):
        frames, steps, symbols = int(spoken.lengths[i]), max(1, int(spoken.steps[i])), int(spoken.text_lengths[i])
        alignment = spoken.alignments[i, :steps, :symbols].float().cpu()
        values = {name: float(value) for name, value in read_attention(alignment)._asdict().items()}
        values["ran_to_limit"] = float(not finished)
        values["stopped_early"] = float(finished and furthest(alignment) < symbols - LAST_SYMBOLS)
        yield values, {"mel": spoken.mels[i, :, :frames].float().cpu(), "alignment": alignment.T}


def recording_of(item: HeldOut) -> Tensor:
    """The recording (N,) of a line; DataError where it has none."""
    if item.recording is None:
        raise DataError(f"no recording of {item.text!r}, expected one")
    return item.recording


def _batches(items: Sequence[Any], what: str) -> Iterator[list[Any]]:
    for start in tqdm(range(0, len(items), BATCH), desc=what, unit="batch", leave=False, disable=None):
        yield list(items[start : start + BATCH])


def _speed(made: Sequence[Made], seconds: float, audio: AudioConfig) -> float:
    samples = sum(len(one.sound) for one in made)
    return samples / audio.sampling_rate / seconds if seconds else math.nan
