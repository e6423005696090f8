"""What training and inference know of a model package, so that neither names a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from common.draws import Draws
from common.fast import FastWay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from common.audio.stft import AudioConfig, TacotronSTFT
    from common.data.filelist import Utterance

Options = Mapping[str, Any]  # parsed flags by name
SENTENCE_PAUSE = 0.35  # seconds of silence after a sentence


class Key(NamedTuple):
    """An item in an epoch; both alone determine the item's random choices."""

    epoch: int
    item: int


class ModelBatch(Protocol):
    """A NamedTuple of tensors; `names` are the files it came from."""

    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The model's positional arguments."""

    @property
    def targets(self) -> Any:
        """The tensors that the criterion compares the outputs with."""

    @property
    def num_items(self) -> Tensor:
        """Scalar: unpadded mel frames or audio samples, the unit of items_per_sec."""


class SpeechDataset(Protocol):
    """Map-style dataset, usually a common.data.mels.ClipDataset; `lengths` orders items for length bucketing.

    One with `keeps_clips = True` reads them once.
    """

    lengths: list[int]

    def check_clips(self, samples: Sequence[int | None] | None = None) -> None: ...

    def __len__(self) -> int: ...
    def __getitem__(self, key: Key) -> Any: ...
    def collate(self, items: list[Any]) -> Any: ...


class Criterion(Protocol):
    """The loss as named terms; their sum is the scalar to minimise."""

    def terms(self, outputs: Any, targets: Any, iteration: int = 0) -> dict[str, Tensor]: ...
    def __call__(self, outputs: Any, targets: Any, iteration: int = 0) -> Tensor: ...
    def train(self, mode: bool = True) -> Any: ...
    def to(self, device: torch.device) -> Any: ...


class Preview(NamedTuple):
    """Outputs of a validation: pictures, sounds (N,) in [-1, 1], and numbers, by name."""

    figures: dict[str, Figure]
    sounds: dict[str, Tensor]
    scalars: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TrainingDefaults:
    """Defaults of train.py's flags that differ between models."""

    epochs: int
    learning_rate: float
    batch_size: int
    batch_size_amp: int
    weight_decay: float
    grad_clip_thresh: float | None
    anneal_steps: tuple[int, ...] = ()

    def usual_batch(self, amp: bool) -> int:
        """The clips of a batch, for which the learning rate was chosen."""
        return self.batch_size_amp if amp else self.batch_size


class Piece(NamedTuple):
    """A piece of a text that is spoken in one go, the seconds of silence after and before it, and the key of its random numbers."""

    text: str
    pause: float
    key: tuple[int, int, int] = (0, 0, 0)  # seed, number of the line, number of the piece
    lead: float = 0.0


class WordSpan(NamedTuple):
    """A word, and the decoder steps attending to it: from `start` up to but not including `end`."""

    word: str
    start: int
    end: int


def _line_ends(text: str, column: int, is_whole: bool) -> list[int]:
    return [place + 1 for place, character in enumerate(text) if character == "\n"]


@dataclass(frozen=True, kw_only=True)
class AcousticInference:
    """Text to mels. `infer` returns (mels (B, M, T), lengths (B,), alignments (B, K, S)); padding has no effect on an item."""

    # model, ids (B, S), lengths (B,), random numbers by item (None: PyTorch's generator) -> see above
    infer: Callable[[Any, Tensor, Tensor, Draws | None], Any] = field(
        default=lambda model, ids, lengths, draws: model.infer(ids, lengths)
    )
    encode: Callable[[list[str], Options], tuple[Tensor, Tensor]]  # texts -> padded ids (B, S), lengths (B,)
    spell: Callable[[str, Options], list[str]]  # a text -> the symbols its ids stand for
    # a text, the longest piece in characters (0: no limit) -> its pieces, none for a text without words; a text with mistakes
    # stays whole, for encode to refuse
    pieces: Callable[[str, int, Options], list[Piece]] = field(default=lambda text, limit, options: [Piece(text, 0.0)])
    # what has arrived of a text, the characters of its line before it, whether it is whole -> the places where sentences end
    sentence_ends: Callable[[str, int, bool], list[int]] = field(default=_line_ends)
    # a text -> its characters that are not spoken
    unspoken: Callable[[str, Options], list[str]] = field(default=lambda text, options: [])
    # a text -> its words as written, without markup
    written: Callable[[str, Options], str] = field(default=lambda text, options: text)
    # a text -> sentences on what it demands in vain
    notes: Callable[[str, Options], list[str]] = field(default=lambda text, options: [])
    # a text of training data -> its characters that have no symbol
    dropped: Callable[[str, Options], list[str]] = field(default=lambda text, options: [])
    guard: Callable[[Any, Options], None] = field(default=lambda model, options: None)  # sets how to decode; no config
    # model, text lengths (B,) -> frames (B,) at which infer cuts items that do not end by themselves
    frame_limits: Callable[[Any, Tensor], Tensor] = field(
        default=lambda model, text_lengths: torch.full_like(text_lengths, torch.iinfo(text_lengths.dtype).max)
    )


class Denoising(Protocol):
    """Subtracts the share `strength` of a vocoder's own noise from its audio (B, N)."""

    def __call__(self, audio: Tensor, strength: float, /) -> Tensor: ...


def _vocode(model: Any, mels: Tensor, sigma: float, draws: Draws | None) -> Tensor:
    return model.infer(mels, sigma=sigma)


def _all_at_once(
    model: Any, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor], draws: Draws | None
) -> Iterator[Tensor]:
    yield finish(model.infer(mels, sigma=sigma))


@dataclass(frozen=True, kw_only=True)
class VocoderInference:
    """Mels to sound: audio (B, N) in [-1, 1] from mels (B, M, T) without padding."""

    denoiser: Callable[[Any, AudioConfig], Denoising] | None = None
    has_noise: bool = True  # False: sigma and the denoiser have no effect
    # model, mels, sigma, random numbers by item (None: PyTorch's generator) -> audio
    vocode: Callable[[Any, Tensor, float, Draws | None], Tensor] = field(default=_vocode)
    # model, mels (1, M, T), sigma, a function over a part and the sound around it, random numbers as above -> the audio of
    # `vocode` in parts, the first of them early
    stream: Callable[[Any, Tensor, float, Callable[[Tensor], Tensor], Draws | None], Iterator[Tensor]] = field(
        default=_all_at_once
    )


class WarmStart(NamedTuple):
    """Weights to start a new run from, in the current layout, with the options of their run and of this one."""

    weights: dict[str, Tensor]
    stored: Options  # the checkpoint's `data`: flags of the run that made it
    options: Options  # flags of this run
    model: nn.Module  # this run's, with fresh weights


# Fits the weights of a model with other data options, such as another alphabet, to this run's. Returns a phrase on that too.
Transfer = Callable[[WarmStart], tuple[dict[str, Tensor], str]]


class Advice(NamedTuple):
    """Settings of a training run, by the names of train.py's options, and the reason for them."""

    options: dict[str, Any]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Published:
    """What scripts written for the published recipe call, by its names and with its forms of a batch."""

    loader: Callable[[Any, Any, Any], Any]  # the folder, the filelist, the options -> a dataset
    collate: Callable[[int], Callable[[list[Any]], Any]]  # frames of a step -> clips to batch
    batch_to_gpu: Callable[[Any], tuple[Any, Any, Tensor]]  # batch -> inputs, targets, items
    arguments_of: Callable[[Any], tuple[Tensor, ...]]  # inputs -> the arguments of the model


@dataclass(frozen=True, kw_only=True)
class SpeechStage:
    """What inference knows of a model, or of Griffin-Lim, which has no weights."""

    name: str  # the argument of -m, and part of checkpoints' names
    flag: str = ""  # of its checkpoint in inference.py, and of its rates in the log; default: the name in small letters
    inference: AcousticInference | VocoderInference
    fast_ways: tuple[FastWay, ...] = ()  # the first that applies is taken; --plain skips them
    stored_options: tuple[str, ...] = ()  # flags that inference has to repeat, kept in checkpoints beside AudioConfig's
    run_options: tuple[str, ...] = ()  # flags of decoding, which neither the config nor a checkpoint stores

    def __post_init__(self) -> None:
        object.__setattr__(self, "flag", self.flag or self.name.lower())

    @property
    def role(self) -> Literal["acoustic", "vocoder"]:
        """The part of text -> mel -> audio: "acoustic" makes mels, "vocoder" audio."""
        return "acoustic" if isinstance(self.inference, AcousticInference) else "vocoder"


@dataclass(frozen=True, kw_only=True)
class ModelSpec(SpeechStage):
    """One entry of models.REGISTRY."""

    file_stem: str = ""  # of its file in a voice's folder; default: the flag
    train_command: str = ""  # for messages; default: the script of that flag
    build: Callable[..., nn.Module]  # build(**config); the model's attribute `config` is a dataclass of the same
    add_arguments: Callable[[argparse.ArgumentParser], None]  # flags of the model, for training and inference
    add_training_arguments: Callable[[argparse.ArgumentParser], None]  # flags that only training reads
    config_from_options: Callable[[Options], dict[str, Any]]  # flags that are present -> config keys
    training: TrainingDefaults
    # may raise common.data.filelist.BadRows, as encode may
    make_dataset: Callable[[Options, list[Utterance]], SpeechDataset]
    row_options: tuple[str, ...] = ()  # flags that decide which clips and texts training accepts
    make_loss: Callable[[Options], Criterion]
    preview: Callable[[Any, Any, Any, TacotronSTFT], Preview]  # model, validation batch, its outputs
    upgrade_state_dict: Callable[[dict[str, Tensor]], dict[str, Tensor]] = field(default=lambda state_dict: state_dict)
    # sets what training reads beside the config
    prepare_training: Callable[[Any, Options], None] = field(default=lambda model, options: None)
    transfer: Transfer = field(default=lambda start: (start.weights, ""))
    # a checkpoint's data and config -> a note on what is assumed, since the file leaves it open, or ""
    assumed: Callable[[Options, Options], str] = field(default=lambda data, config: "")
    # minutes of data, number of weights of the warm start or 0, True on a GPU -> the settings that are not defaults
    advise: Callable[[float, int, bool], Advice] = field(
        default=lambda minutes, weights, gpu: Advice({}, "the defaults of the model")
    )
    takes_minutes: bool = False  # trains in minutes, on a CPU too; the studio then trains it before the others
    training_packages: tuple[str, ...] = ()  # modules that training needs beside those of requirements.txt
    free_at_inference: frozenset[str] = frozenset()  # config keys that a flag may override without new training
    published: Published | None = None  # of a model that the published recipe has

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "file_stem", self.file_stem or self.flag)
        object.__setattr__(self, "train_command", self.train_command or f"bash scripts/train_{self.flag}.sh")


def config_of(model: nn.Module) -> dict[str, Any]:
    """The keyword arguments that build a model again, `config` in its checkpoints; the config's own to_dict may leave some out."""
    config = cast(Any, model).config
    return config.to_dict() if hasattr(config, "to_dict") else asdict(config)
