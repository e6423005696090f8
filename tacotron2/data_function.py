"""Data of Tacotron 2: convert filelist rows to pairs of symbol ids and mels, and pad them to batches."""

from __future__ import annotations

import argparse
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
from common.data.mels import audio_seconds, check_clips, check_settings, length_problem, load_mel, mel_seconds
from common.data.number_words import numbers_cleaner
from common.data.transliteration import compose
from common.errors import DataError, shorten
from common.options import Check, check_fields, from_options, option
from common.spec import Key, Options, Piece
from tacotron2.loss_function import Tacotron2Targets
from tacotron2.text import BUILT_IN, Alphabet, alphabet_of, dropped_symbols, text_to_sequence
from tacotron2.text.cleaners import get_cleaner
from tacotron2.text.symbols_file import symbols_file

# B batch, S symbols, T frames, M mels

POSITIVE = Check(lambda limit: limit > 0, "more than 0")  # infinity switches a limit off
# English converted to spoken words before the cleaners, or as it stands, as in the published recipe
TEXT_READINGS = ("spoken", "as-published")


class SpokenText(str):
    """A text that has been read aloud. It is not read again: alone, a part of it may read differently."""


@dataclass(frozen=True, kw_only=True)
class Tacotron2DataConfig:
    """Options of the dataset and of text. Raises UsageError for values out of range, each by its flag."""

    dataset_path: str = "./"
    text_cleaners: Sequence[str] = option(
        ["english_cleaners"],
        "cleaners to apply in this order: english_cleaners, basic_cleaners, transliteration_cleaners; before one of the last two "
        "numbers_CODE spells the numbers of another language, such as numbers_de",
        nargs="+",
        metavar="NAME",
    )
    text_reading: str = option(
        TEXT_READINGS[0],
        "how inference reads English; spoken: numbers, units, dates and the like in words before the cleaners; "
        "as-published: the cleaners alone, as in training",
        choices=TEXT_READINGS,
    )
    symbols: Sequence[str] | None = option(
        None,
        "UTF-8 file with another alphabet, one symbol a line: the padding first, then characters, and ARPAbet as @AA1; for "
        "letters outside ASCII add --text-cleaners basic_cleaners, since english_cleaners remove them "
        f"(default: {len(BUILT_IN.symbols)} built in)",
        flag="--symbols-file",
        dest="symbols",
        type=symbols_file,
        metavar="PATH",
    )
    load_mel_from_disk: bool = option(
        False,
        "read precomputed mels: the filelists name .pt files instead of audio",
        action=argparse.BooleanOptionalAction,
    )
    n_frames_per_step: int = 1
    longest_clip: float = option(
        60.0,
        "longest clip allowed; a longer one is an error, found before training, since memory grows with the longest",
        metavar="SECONDS",
        check=POSITIVE,
    )
    symbols_per_second: float = option(
        60.0,
        "most symbols per second of a clip; more are an error, found before training; fast speech has 25",
        metavar="N",
        check=POSITIVE,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def alphabet(self) -> Alphabet:
        """Symbols of the texts."""
        return alphabet_of(self.symbols)

    def read_aloud(self, text: str) -> str:
        """Convert a text for inference to spoken words: English in the built-in alphabet only; other texts stay."""
        return text if isinstance(text, SpokenText) or not self.reads_english else _read_english(text)

    @property
    def reads_english(self) -> bool:
        """True if texts for inference are read aloud as English."""
        is_english = "english_cleaners" in self.text_cleaners and self.alphabet == BUILT_IN
        return is_english and self.text_reading != "as-published"


# Inference converts a phrase three times: to cut, encode and plot it.
@lru_cache(maxsize=256)
def _read_english(text: str) -> str:
    from tacotron2.text.reading.reader import read_english  # training never reads aloud

    return read_english(text)


class Item(NamedTuple):
    """A clip: ids (S,), mel (M, T), and the path of its file."""

    ids: Tensor
    mel: Tensor
    name: str


class Tacotron2Batch(NamedTuple):
    """Clips in order of decreasing text length: text (B, S), mels (B, M, T) and gates (B, T), zero-padded."""

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
    """Pairs of symbol ids and log-mels; `lengths` counts symbols. Raises BadRows, which lists all invalid texts."""

    def __init__(self, options: Options, utterances: list[Utterance]) -> None:
        self.config = from_options(Tacotron2DataConfig, options)
        self.audio = from_options(AudioConfig, options)
        self.utterances = utterances
        self.ids = _encode_all([row.text for row in utterances], self.config)
        self.lengths = [len(ids) for ids in self.ids]
        self.stft = None if self.config.load_mel_from_disk else TacotronSTFT.from_config(self.audio)
        if self.config.load_mel_from_disk:
            check_settings((Path(self.config.dataset_path, row.path).parent for row in utterances), self.audio)

    def check_clips(self) -> None:
        """Raise BadRows, which lists all clips that are too long, too short for a frame, or too short for their text."""
        folder = Path(self.config.dataset_path)
        check_clips((folder / row.path for row in self.utterances), self._problem)

    def _problem(self, item: int, path: Path) -> str | None:
        if self.stft is None:
            seconds = mel_seconds(path, self.audio)
        else:
            seconds = audio_seconds(path, self.audio, shortest=self.audio.filter_length // 2 + 1)
        symbols, most = self.lengths[item], self.config.symbols_per_second * seconds
        if symbols > most:
            return (
                f"{path}: a text of {symbols} symbols for {seconds:.2f} s, expected at most {most:.0f} "
                f"({self.config.symbols_per_second:g} a second, --symbols-per-second): is it the text of this clip?"
            )
        return length_problem(path, seconds, self.config.longest_clip)

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
        """Pad items to a batch. Gate targets are 1 from the decoder step of the last frame onwards."""
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
    """Encode texts for inference as padded symbol ids (B, S) and lengths (B,). Raises BadRows for invalid texts."""
    ids = [
        torch.tensor(sequence)
        for sequence in _encode_all(texts, from_options(Tacotron2DataConfig, options), read_aloud=True)
    ]
    lengths = torch.tensor([len(sequence) for sequence in ids])
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths


def spell(text: str, options: Options) -> list[str]:
    """List the symbols of a text for inference, one for each of its ids."""
    config = from_options(Tacotron2DataConfig, options)
    return [config.alphabet.symbols[i] for i in _encode_one(text, config, read_aloud=True)]


def pieces(text: str, limit: int, options: Options) -> list[Piece]:
    """Cut a text for inference into pieces of at most `limit` spoken characters, each with its pause; 0 is no limit.

    Together the pieces have the words of the whole text. Pieces without words are left out; of a very long text without any, only
    its beginning stays. An invalid text stays whole, since encode reports its error.
    """
    config, whole = from_options(Tacotron2DataConfig, options), [Piece(text, 0.0)]
    if not limit or len(config.read_aloud(text)) <= limit:
        return whole
    try:
        ids = _encode_one(text, config, read_aloud=True)
    except DataError:
        return whole
    if _is_silent(ids, config.alphabet):
        return whole
    from tacotron2.text import sentences
    from tacotron2.text.reading.reader import read_places

    clean = get_cleaner(config.text_cleaners)
    spellers = filter(None, map(numbers_cleaner, config.text_cleaners))
    read = read_places if config.reads_english else next((speller.read_places for speller in spellers), None)
    steps = sentences.Conversion(read, clean) if read else sentences.Conversion(clean=clean)
    parts = [Piece(SpokenText(piece.text), piece.pause) for piece in sentences.cut_text(text, limit, steps)]
    encoded = [(piece, _encode_one(piece.text, config, read_aloud=True)) for piece in parts]
    if with_words := [piece for piece, ids in encoded if _has_words(ids, config.alphabet)]:
        return with_words
    if len(text) > sentences.LONGEST_UNCUT:  # signs alone, or white space, of which cut_text keeps nothing
        return [next((piece for piece, ids in encoded if ids), Piece(" ", 0.0))]
    return whole


def sentence_ends(text: str) -> list[int]:
    """List the places where the sentences of a text end, except for the last."""
    from tacotron2.text import sentences

    return sentences.sentence_ends(text)


def unspoken(text: str, options: Options) -> list[str]:
    """List the characters of a text for inference that produce no sound, in their order. Raises DataError as encode does."""
    config = from_options(Tacotron2DataConfig, options)
    return dropped_symbols(config.read_aloud(compose(text)), config.text_cleaners, config.alphabet)


def find_dropped(text: str, options: Options) -> list[str]:
    """List the characters of a training text that have no symbol, each once, in their order. Raises DataError as encode does."""
    config = from_options(Tacotron2DataConfig, options)
    return dropped_symbols(compose(text), config.text_cleaners, config.alphabet)


def _encode_one(text: str, config: Tacotron2DataConfig, read_aloud: bool) -> list[int]:
    """Clean a text and convert it to symbol ids; with `read_aloud`, for inference only, spell its numbers first."""
    ids = text_to_sequence(text, config.text_cleaners, config.alphabet)  # errors give positions in the original text
    if read_aloud and (spoken := config.read_aloud(text)) != text:
        return text_to_sequence(spoken, config.text_cleaners, config.alphabet)
    return ids


def _encode_all(texts: Sequence[str], config: Tacotron2DataConfig, read_aloud: bool = False) -> list[list[int]]:
    """Convert each text to symbol ids. Raises one BadRows for all texts that are invalid or have no words."""
    alphabet = config.alphabet
    sequences: list[list[int]] = []
    problems: dict[int, str] = {}
    for number, text in enumerate(texts):
        try:
            sequences.append(_encode_one(text, config, read_aloud))
        except DataError as error:
            problems[number] = str(error)
        else:
            if _is_silent(sequences[-1], alphabet):
                problems[number] = (
                    f"{shorten(text)!r} holds nothing to speak, expected {_expected_text(text, alphabet)}"
                )
    if problems:
        raise BadRows(problems)
    return sequences


def _is_silent(ids: Sequence[int], alphabet: Alphabet) -> bool:
    """True if no id has a sound. In other alphabets, spaces and points alone count as silent: wrong cleaners leave only these."""
    return not ids if alphabet == BUILT_IN else not _has_words(ids, alphabet)


def _has_words(ids: Sequence[int], alphabet: Alphabet) -> bool:
    """True if some id is no space and no punctuation."""
    spelling = (alphabet.symbols[i] for i in ids)
    return any(len(symbol) > 1 or unicodedata.category(symbol)[0] not in "CPZ" for symbol in spelling)


def _expected_text(text: str, alphabet: Alphabet) -> str:
    if alphabet == BUILT_IN:
        return "letters or {ARPAbet}"
    has_letters = not _is_silent(text_to_sequence(text, "basic_cleaners", alphabet), alphabet)
    return "letters of --symbols-file" + ("; --text-cleaners basic_cleaners would keep some" if has_letters else "")
