"""Data of Tacotron 2: convert filelist rows to pairs of symbol ids and mels, and pad them to batches."""

from __future__ import annotations

import argparse
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.audio.audio_processing import load_audio
from common.data.filelist import BadRows, Utterance, read_filelist
from common.data.lexicon import Lexicon
from common.data.mels import ClipDataset, audio_seconds, check_settings, length_problem, load_mel, mel_seconds
from common.data.transliteration import compose
from common.errors import DataError, shorten
from common.options import POSITIVE, check_fields, from_options, option
from common.reading.multilingual import numbers_cleaner
from common.spec import SENTENCE_PAUSE, Key, Options, Piece, Published
from common.utils import to_gpu
from tacotron2.loss_function import Tacotron2Targets
from tacotron2.text import BUILT_IN, Alphabet, alphabet_of, dropped_symbols, text_to_sequence
from tacotron2.text.alphabet import symbols_file
from tacotron2.text.cleaners import get_cleaner
from tacotron2.text.markup import ENGLISH, Block, Form, join_blocks, name_letter, read_form

# B batch, S symbols, T frames, M mels

# English converted to spoken words before the cleaners, or as it stands, as in the published recipe
TEXT_READINGS = ("spoken", "as-published")


_LETTER = re.compile("[A-Za-z]")


class WrittenText(str):
    """A text without markup, its words replaced as the lexicon says. Neither is done again: &amp;lt; is &lt; and no tag."""


class SpokenText(WrittenText):
    """A text that has been read aloud. It is not read again: alone, a part of it may read differently."""


@dataclass(frozen=True, kw_only=True)
class Tacotron2DataConfig:
    """Options of the dataset and of text. Raises UsageError for values out of range, each by its flag."""

    text_cleaners: Sequence[str] = option(
        ["english_cleaners"],
        "cleaners to apply in this order: english_cleaners, basic_cleaners, transliteration_cleaners; before one of the last two "
        "numbers_CODE reads the numbers and abbreviations of another language, such as numbers_de",
        nargs="+",
        metavar="NAME",
    )
    text_reading: str = option(
        TEXT_READINGS[0],
        "reading of English in inference; spoken: numbers, units and dates become words, and markup and pauses work; "
        "as-published: only the text cleaners, as in training",
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
    lexicon: Lexicon | None = None  # of inference
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

    def form(self, text: str, needs_words: bool = True) -> Form:
        """Divide a text for inference into blocks, and replace the words in its lexicon.

        If they need words, the pauses of the others follow the block before them. Raises DataError as read_form does.
        """
        if isinstance(text, WrittenText):
            return Form([Block(text)])
        as_published = self.text_reading == TEXT_READINGS[1]
        form = Form([Block(text)]) if as_published else read_form(text, self.alphabet, self._language)
        blocks, lead = [], form.lead
        for block in form.blocks:
            written = WrittenText(self.lexicon(block.text) if self.lexicon else block.text)
            if self.reads_english:
                written = WrittenText(name_letter(written))
            if as_published or not needs_words or self._has_words(written):
                blocks.append(Block(written, block.pause))
            elif blocks and block.pause is not None:
                blocks[-1] = Block(blocks[-1].text, (blocks[-1].pause or 0.0) + block.pause)
            else:
                lead += block.pause or 0.0
        return form._replace(blocks=blocks, lead=lead)

    def _has_words(self, text: WrittenText) -> bool:
        is_plain = self.alphabet == BUILT_IN and _LETTER.search(text) is not None  # most are, and encoding takes time
        return is_plain or _has_words(self.encode(text), self.alphabet)

    def read_aloud(self, text: str) -> str:
        """Convert a text for inference to spoken words: English in the built-in alphabet only; other texts stay."""
        if isinstance(text, SpokenText):
            return text
        blocks = self.form(text).blocks
        spoken = [_read_english(block.text) if self.reads_english else block.text for block in blocks]
        return join_blocks([Block(words, block.pause) for words, block in zip(spoken, blocks, strict=True)])

    def encode(self, text: str) -> list[int]:
        """Convert a text for inference to symbol ids. Raises DataError for braces with mistakes and pauses out of range."""
        return text_to_sequence(self.read_aloud(text), self.text_cleaners, self.alphabet)

    @property
    def _language(self) -> str:
        """Code of the language of texts for inference; "" where the cleaners don't tell it."""
        readers = filter(None, map(numbers_cleaner, self.text_cleaners))
        return ENGLISH if self.reads_english else next((reader.code for reader in readers), "")

    @property
    def reads_english(self) -> bool:
        """True if texts for inference are read aloud as English."""
        is_english = "english_cleaners" in self.text_cleaners and self.alphabet == BUILT_IN
        return is_english and self.text_reading != TEXT_READINGS[1]


# Inference converts a phrase several times: to check, cut, encode and plot it.
@lru_cache(maxsize=256)
def _read_english(text: str) -> str:
    from common.reading.reader import read_english  # training never reads aloud

    return read_english(text)


class TextMelItem(NamedTuple):
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


class TextMelDataset(ClipDataset):
    """Pairs of symbol ids and log-mels; `lengths` counts symbols. Raises BadRows, which lists all invalid texts."""

    def __init__(self, options: Options, utterances: list[Utterance]) -> None:
        super().__init__(options, utterances)
        self.config = from_options(Tacotron2DataConfig, options)
        self.ids = _encode_all([row.text for row in utterances], self.config, self._encode)
        self.lengths = [len(ids) for ids in self.ids]
        self.symbols = sum(self.lengths)
        if self.config.load_mel_from_disk:
            check_settings(((self.folder / row.path).parent for row in utterances), self.audio)

    def problem_of(self, item: int, samples: int | None) -> str | None:
        """A clip may be too long, too short for a frame, or too short for its text."""
        path = self.path(item)
        if self.config.load_mel_from_disk:
            seconds = mel_seconds(path, self.audio)
        elif path.suffix == ".pt":
            return f"{path}: a stored mel, expected a recording: add --load-mel-from-disk, or list recordings"
        else:
            seconds = audio_seconds(path, self.audio, self.audio.filter_length // 2 + 1, samples)
        symbols, most = self.lengths[item], self.config.symbols_per_second * seconds
        if symbols > most:
            return (
                f"{path}: a text of {symbols} symbols for {seconds:.2f} s, expected at most {most:.0f} "
                f"({self.config.symbols_per_second:g} a second, --symbols-per-second): is it the text of this clip?"
            )
        return length_problem(path, seconds, self.config.longest_clip)

    def mel_paths(self) -> list[Path]:
        """List the stored mels, if the rows name them."""
        return [self.path(item) for item in range(len(self))] if self.config.load_mel_from_disk else []

    def _encode(self, text: str) -> list[int]:
        return text_to_sequence(text, self.config.text_cleaners, self.config.alphabet)

    def __getitem__(self, key: Key) -> TextMelItem:
        path = self.path(key.item)
        return TextMelItem(torch.tensor(self.ids[key.item]), self._mel(path), str(path))

    def _mel(self, path: Path) -> Tensor:
        if self.config.load_mel_from_disk:
            return load_mel(path, self.audio.n_mel_channels)
        return self.stft.mel_spectrogram(load_audio(path, self.audio.sampling_rate)[None])[0]

    def collate(self, items: list[TextMelItem]) -> Tacotron2Batch:
        """Pad items to a batch."""
        return collate(items, self.config.n_frames_per_step)


def collate(items: list[TextMelItem], r: int) -> Tacotron2Batch:
    """Pad items to a batch. Gate targets are 1 from the decoder step of r frames, the one of the last frame, onwards."""
    items = sorted(items, key=lambda item: len(item.ids), reverse=True)
    text_lengths = torch.tensor([len(item.ids) for item in items])
    mel_lengths = torch.tensor([item.mel.shape[1] for item in items])
    frames = int(mel_lengths.max())
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
    config = from_options(Tacotron2DataConfig, options)
    ids = [torch.tensor(sequence) for sequence in _encode_all(texts, config, config.encode)]
    lengths = torch.tensor([len(sequence) for sequence in ids])
    return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), lengths


def spell(text: str, options: Options) -> list[str]:
    """List the symbols of a text for inference, one for each of its ids."""
    config = from_options(Tacotron2DataConfig, options)
    return [config.alphabet.symbols[i] for i in config.encode(text)]


def pieces(text: str, limit: int, options: Options) -> list[Piece]:
    """Cut a text for inference into its blocks, and those into pieces of at most `limit` spoken characters; 0 is no limit.

    Together the pieces have the words of the whole text. Pieces without words are left out, so a text without words has none. An
    invalid text stays whole, since encode reports its error.
    """
    config = from_options(Tacotron2DataConfig, options)
    try:
        form = config.form(text)
        cuts = [_cut_block(block, limit, config) for block in form.blocks]
    except DataError:
        return [Piece(text, 0.0)]
    parts = [piece for cut in cuts for piece in cut]
    if parts:
        parts[0] = parts[0]._replace(lead=form.lead)
        parts[-1] = parts[-1]._replace(pause=form.blocks[-1].pause or 0.0)
    return parts


def _cut_block(block: Block, limit: int, config: Tacotron2DataConfig) -> list[Piece]:
    pause = SENTENCE_PAUSE if block.pause is None else block.pause
    whole = [Piece(block.text, pause)]
    if (
        not limit
        or len(config.read_aloud(block.text)) <= limit
        or _is_silent(config.encode(block.text), config.alphabet)
    ):
        return whole
    from common.reading.reader import read_places
    from tacotron2.text import sentences

    clean = get_cleaner(config.text_cleaners)
    readers = filter(None, map(numbers_cleaner, config.text_cleaners))
    read = read_places if config.reads_english else next((reader.read_places for reader in readers), None)
    steps = sentences.Conversion(read, clean) if read else sentences.Conversion(clean=clean)
    parts = [Piece(SpokenText(text), own) for text, own, *_ in sentences.cut_text(block.text, limit, steps)]
    encoded = [(piece, config.encode(piece.text)) for piece in parts]
    if with_words := [piece for piece, ids in encoded if _has_words(ids, config.alphabet)]:
        return [*with_words[:-1], with_words[-1]._replace(pause=pause)]
    if (
        len(block.text) > sentences.LONGEST_UNCUT
    ):  # as published: signs alone, or spaces, of which cut_text keeps nothing
        return [Piece(next((piece.text for piece, ids in encoded if ids), SpokenText(" ")), pause)]
    return whole


def unspoken(text: str, options: Options) -> list[str]:
    """List the characters of a text for inference that produce no sound, in their order. Raises DataError as encode does."""
    config = from_options(Tacotron2DataConfig, options)
    form = config.form(compose(text), needs_words=False)
    dropped = [
        dropped_symbols(config.read_aloud(block.text), config.text_cleaners, config.alphabet) for block in form.blocks
    ]
    return list(dict.fromkeys([*form.left_out, *(character for some in dropped for character in some)]))


def written(text: str, options: Options) -> str:
    """Return the words of a text as written, without markup. A text with mistakes stays."""
    config = from_options(Tacotron2DataConfig, options)
    if config.text_reading == TEXT_READINGS[1]:
        return text
    try:
        return " ".join(block.text for block in read_form(text, config.alphabet).blocks)
    except DataError:
        return text


def notes(text: str, options: Options) -> list[str]:
    """List what a text for inference demands in vain. Raises DataError as encode does."""
    return list(from_options(Tacotron2DataConfig, options).form(text, needs_words=False).notes)


def find_dropped(text: str, options: Options) -> list[str]:
    """List the characters of a training text that have no symbol, each once, in their order. Raises DataError as encode does."""
    config = from_options(Tacotron2DataConfig, options)
    return dropped_symbols(compose(text), config.text_cleaners, config.alphabet)


def _encode_all(
    texts: Sequence[str], config: Tacotron2DataConfig, encode_one: Callable[[str], list[int]]
) -> list[list[int]]:
    """Convert each text to symbol ids. Raises one BadRows for all texts that are invalid or have no words."""
    alphabet = config.alphabet
    sequences: list[list[int]] = []
    problems: dict[int, str] = {}
    for number, text in enumerate(texts):
        try:
            sequences.append(encode_one(text))
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


# --- scripts written for the published recipe ---


class TextMelLoader(TextMelDataset):
    """Clips (ids (S,), mel (M, T), characters of the text), in the order of the filelist; the options are attributes of `args`."""

    def __init__(self, dataset_path: str, audiopaths_and_text: str, args: argparse.Namespace) -> None:
        super().__init__({**vars(args), "dataset_path": dataset_path}, read_filelist(audiopaths_and_text))

    def __getitem__(self, index: Any) -> Any:
        """Read a clip. Raises DataError for a bad file."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        clip = super().__getitem__(Key(0, index))
        return clip.ids, clip.mel, len(self.utterances[index].text)


class TextMelCollate:
    """Pads clips of a TextMelLoader; their frames become a multiple of n_frames_per_step."""

    def __init__(self, n_frames_per_step: int) -> None:
        self.n_frames_per_step = n_frames_per_step

    def __call__(self, batch: list[tuple[Tensor, Tensor, int]]) -> tuple[Tensor, ...]:
        """Return text (B, S), its lengths, mels (B, M, T), gates (B, T), lengths of mels, and the texts' characters."""
        padded = collate([TextMelItem(ids, mel, "") for ids, mel, _ in batch], self.n_frames_per_step)
        missing = -padded.mels.shape[2] % self.n_frames_per_step
        mels, gates = F.pad(padded.mels, (0, missing)), F.pad(padded.gates, (0, missing), value=1.0)
        characters = padded.text_lengths.new_tensor([clip[2] for clip in batch]).float()
        return padded.text, padded.text_lengths, mels, gates, padded.mel_lengths, characters


def batch_to_gpu(batch: tuple[Tensor, ...]) -> tuple[tuple[Any, ...], tuple[Tensor, Tensor], Tensor]:
    """Return a batch on the GPU, or the CPU without one: inputs of the model, targets (mels, gates), and the number of frames."""
    text, text_lengths, mels, gates, mel_lengths, _ = map(to_gpu, batch)
    return (text, text_lengths, mels, int(text_lengths.max()), mel_lengths), (mels, gates), mel_lengths.sum()


def arguments_of(inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Return the model's arguments: batch_to_gpu's inputs without the longest text's length."""
    text, text_lengths, mels, _, mel_lengths = inputs
    return text, text_lengths, mels, mel_lengths


PUBLISHED = Published(
    loader=TextMelLoader, collate=TextMelCollate, batch_to_gpu=batch_to_gpu, arguments_of=arguments_of
)
