"""Tacotron 2's data: rows of a filelist to (symbol ids, mel) pairs, and those to padded batches."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.audio.audio_processing import load_audio
from common.audio.stft import AudioConfig, TacotronSTFT
from common.data.filelist import BadRows, Utterance
from common.data.mel_settings import check_settings
from common.data.mels import load_mel
from common.errors import DataError
from common.spec import Key, Options, Piece, from_options
from tacotron2.loss_function import Tacotron2Targets
from tacotron2.text import BUILT_IN, Alphabet, alphabet_of, dropped_symbols, sentences, text_to_sequence
from tacotron2.text.reading.reader import read_english

# B batch, S symbols, T frames, M mels

_read_english = lru_cache(maxsize=256)(read_english)  # a phrase is read to be cut, to be spoken and to be drawn


@dataclass(frozen=True, kw_only=True)
class Tacotron2DataConfig:
    """Options of the dataset and the defaults of their flags."""

    dataset_path: str = "./"
    text_cleaners: Sequence[str] = ("english_cleaners",)
    symbols: Sequence[str] | None = None  # of another alphabet than the built-in one
    load_mel_from_disk: bool = False
    n_frames_per_step: int = 1

    @property
    def alphabet(self) -> Alphabet:
        """What texts are spelled in."""
        return alphabet_of(self.symbols)

    def aloud(self, text: str) -> str:
        """A text for inference as it is read: English in the built-in alphabet in words, anything else as it stands."""
        is_english = "english_cleaners" in self.text_cleaners and self.alphabet == BUILT_IN
        return _read_english(text) if is_english else text


class Item(NamedTuple):
    """A clip: ids (S,), mel (M, T), and the file it came from."""

    ids: Tensor
    mel: Tensor
    name: str


class Tacotron2Batch(NamedTuple):
    """Clips by falling text length: text (B, S), mels (B, M, T) and gates (B, T), zero-padded."""

    text: Tensor
    text_lengths: Tensor
    mels: Tensor
    gates: Tensor
    mel_lengths: Tensor
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.text, self.text_lengths, self.mels, self.mel_lengths

    @property
    def targets(self) -> Tacotron2Targets:
        return Tacotron2Targets(self.mels, self.gates, self.mel_lengths, self.text_lengths)

    @property
    def num_items(self) -> Tensor:
        return self.mel_lengths.sum()


class TextMelDataset:
    """Pairs of symbol ids and log-mels; `lengths` are numbers of symbols. BadRows lists all texts that cannot be read."""

    def __init__(self, options: Options, utterances: list[Utterance]) -> None:
        self.config = from_options(Tacotron2DataConfig, options)
        self.audio = from_options(AudioConfig, options)
        self.utterances = utterances
        self.ids = _read([row.text for row in utterances], self.config)
        self.lengths = [len(ids) for ids in self.ids]
        self.stft = None if self.config.load_mel_from_disk else TacotronSTFT.from_config(self.audio)
        if self.config.load_mel_from_disk:
            check_settings((Path(self.config.dataset_path, row.path).parent for row in utterances), self.audio)

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, key: Key) -> Item:
        path = Path(self.config.dataset_path, self.utterances[key.item].path)
        return Item(torch.tensor(self.ids[key.item]), self._mel(path), str(path))

    def _mel(self, path: Path) -> Tensor:
        if self.stft is None:
            return load_mel(path, self.audio.n_mel_channels)
        return self.stft.mel_spectrogram(load_audio(path, self.audio.sampling_rate)[None])[0]

    def collate(self, items: list[Item]) -> Tacotron2Batch:
        """Pad items to a batch. A gate target is 1 from the first frame of the decoder step that holds the last frame."""
        items = sorted(items, key=lambda item: len(item.ids), reverse=True)
        text_lengths = torch.tensor([len(item.ids) for item in items])
        mel_lengths = torch.tensor([item.mel.shape[1] for item in items])
        frames = int(mel_lengths.max())
        r = self.config.n_frames_per_step
        last_step = (mel_lengths - 1) // r * r
        return Tacotron2Batch(
            text=torch.nn.utils.rnn.pad_sequence([item.ids for item in items], batch_first=True),
            text_lengths=text_lengths,
            mels=torch.stack([F.pad(item.mel, (0, frames - item.mel.shape[1])) for item in items]),
            gates=(torch.arange(frames) >= last_step[:, None]).float(),
            mel_lengths=mel_lengths,
            names=tuple(item.name for item in items),
        )


def encode(texts: list[str], options: Options) -> tuple[Tensor, Tensor]:
    """Texts for inference -> padded symbol ids (B, S) and lengths (B,). BadRows lists all texts that cannot be read."""
    ids = [torch.tensor(sequence) for sequence in _read(texts, from_options(Tacotron2DataConfig, options), aloud=True)]
    lengths = torch.tensor([len(sequence) for sequence in ids])
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths


def spell(text: str, options: Options) -> list[str]:
    """The symbols a text for inference is read as, one for each of its ids."""
    config = from_options(Tacotron2DataConfig, options)
    return [config.alphabet.symbols[i] for i in _sequence(text, config, aloud=True)]


def pieces(text: str, limit: int, options: Options) -> list[Piece]:
    """A text for inference in pieces of at most `limit` characters as read aloud, 0 being no limit, each with its pause.

    A piece that holds nothing to speak is left out. A text that cannot be read stays whole: encode says why.
    """
    config = from_options(Tacotron2DataConfig, options)
    found = sentences.pieces(text, limit, config.aloud)
    if len(found) > 1:
        try:
            _sequence(text, config, aloud=True)
        except DataError:
            return [Piece(text, 0.0)]
        found = [piece for piece in found if _has_words(_sequence(piece.text, config, aloud=True), config.alphabet)]
    return found or [Piece(text, 0.0)]


def unspoken(text: str, options: Options) -> list[str]:
    """The characters of a text for inference that nothing is said for, in their order. DataError as encode has it."""
    config = from_options(Tacotron2DataConfig, options)
    composed = unicodedata.normalize("NFC", text)  # as cleaners have it: no accent is lost that a letter holds
    return dropped_symbols(config.aloud(composed), config.text_cleaners, config.alphabet)


def dropped(text: str, options: Options) -> list[str]:
    """List the characters of a training text that have no symbol, each once, in their order. DataError as encode has it."""
    config = from_options(Tacotron2DataConfig, options)
    return dropped_symbols(unicodedata.normalize("NFC", text), config.text_cleaners, config.alphabet)


def _sequence(text: str, config: Tacotron2DataConfig, aloud: bool) -> list[int]:
    """Symbol ids of a text as it is cleaned; `aloud`, English is read first, which training data never is."""
    ids = text_to_sequence(text, config.text_cleaners, config.alphabet)  # mistakes are named at their places as written
    if aloud and (read := config.aloud(text)) != text:
        return text_to_sequence(read, config.text_cleaners, config.alphabet)
    return ids


def _read(texts: Sequence[str], config: Tacotron2DataConfig, aloud: bool = False) -> list[list[int]]:
    """Symbol ids of each text; one BadRows for all that cannot be read or hold nothing to speak."""
    alphabet = config.alphabet
    sequences: list[list[int]] = []
    problems: dict[int, str] = {}
    for number, text in enumerate(texts):
        try:
            sequences.append(_sequence(text, config, aloud))
        except DataError as error:
            problems[number] = str(error)
        else:
            if _is_silent(sequences[-1], alphabet):
                problems[number] = f"{text!r} holds nothing to speak, expected {_wanted(text, alphabet)}"
    if problems:
        raise BadRows(problems)
    return sequences


def _is_silent(ids: Sequence[int], alphabet: Alphabet) -> bool:
    """Whether ids say nothing. In other alphabets spaces and points alone are nothing: what the wrong cleaners leave."""
    return not ids if alphabet == BUILT_IN else not _has_words(ids, alphabet)


def _has_words(ids: Sequence[int], alphabet: Alphabet) -> bool:
    """Whether ids are more than spaces and points."""
    spoken = (alphabet.symbols[i] for i in ids)
    return any(len(symbol) > 1 or unicodedata.category(symbol)[0] not in "CPZ" for symbol in spoken)


def _wanted(text: str, alphabet: Alphabet) -> str:
    if alphabet == BUILT_IN:
        return "letters or {ARPAbet}"
    kept = not _is_silent(text_to_sequence(text, "basic_cleaners", alphabet), alphabet)
    return "letters of --symbols-file" + ("; --text-cleaners basic_cleaners would keep some" if kept else "")
