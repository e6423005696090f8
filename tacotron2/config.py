"""Tacotron 2's dimensions: the config stored in every checkpoint and the defaults of its flags."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from common.errors import UsageError
from common.options import Check, check_fields, option

SHARE = Check(lambda share: 0 <= share < 1, "a share in [0, 1)")
MOST_STEPS = 1_000_000  # decoder steps of a clip; more are a mistake that would fill the memory


@dataclass(frozen=True, kw_only=True)
class Tacotron2Config:
    """Keyword arguments of Tacotron2. Raises UsageError, which names the flag, for impossible values."""

    mask_padding: bool = option(
        False,
        "exclude padding from outputs, loss and BatchNorm statistics",
        action=argparse.BooleanOptionalAction,
    )
    n_mel_channels: int = 80  # a flag of audio
    n_symbols: int = option(148, "number of symbols in the alphabet")
    symbols_embedding_dim: int = option(512, "channels of an embedded symbol")
    encoder_kernel_size: int = option(5, "kernel size in symbols, odd")
    encoder_n_convolutions: int = option(3, "number of convolution layers")
    encoder_embedding_dim: int = option(512, "output channels")
    attention_rnn_dim: int = option(1024, "units of the attention LSTM")
    attention_dim: int = option(128, "channels of query, keys and energies")
    attention_location_n_filters: int = option(32, "filters over the previous attention weights")
    attention_location_kernel_size: int = option(31, "width of these filters in symbols, odd")
    n_frames_per_step: int = option(
        1, "mel frames per decoder step (reduction factor): 2 or 3 make training and inference faster"
    )
    decoder_rnn_dim: int = option(1024, "units of the decoder LSTM")
    prenet_dim: int = option(256, "units of each prenet layer")
    max_decoder_steps: int = option(2000, "maximum number of decoder steps in inference")
    gate_threshold: float = option(0.5, "stop probability above which a clip ends")
    p_attention_dropout: float = option(0.1, "dropout on the attention LSTM")
    p_decoder_dropout: float = option(0.1, "dropout on the decoder LSTM")
    postnet_embedding_dim: int = option(512, "hidden channels")
    postnet_kernel_size: int = option(5, "kernel size in frames, odd")
    postnet_n_convolutions: int = option(5, "number of convolution layers")
    decoder_no_early_stopping: bool = option(
        False,
        "go on to --max-decoder-steps in inference, whatever end of the speech the model predicts",
        action=argparse.BooleanOptionalAction,
    )

    def __post_init__(self) -> None:
        problems = [problem for field in fields(self) if (problem := self._problem(field.name, field.default))]
        if problems:
            raise UsageError("; ".join(problems))

    def _problem(self, name: str, default: object) -> str | None:
        value: Any = getattr(self, name)
        flag = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            return None if isinstance(value, bool) else f"{flag}: {value!r}, expected True or False"
        kind: type[Any] = Real if isinstance(default, float) else Integral
        if isinstance(value, bool) or not isinstance(value, kind):
            return f"{flag}: {value!r}, expected a {'number' if kind is Real else 'whole number'}"
        if name == "gate_threshold":
            return (
                None if 0 <= value <= 1 else f"{flag}: {value}, expected a probability in [0, 1], where 1 never stops"
            )
        if name.startswith("p_"):
            return None if 0 <= value < 1 else f"{flag}: {value}, expected a probability in [0, 1)"
        if value < 1:
            return f"{flag}: {value}, expected at least 1"
        if name == "max_decoder_steps" and value > MOST_STEPS:
            return f"{flag}: {value}, expected at most {MOST_STEPS}"
        if name.endswith("kernel_size") and value % 2 == 0:
            return f"{flag}: {value}, expected an odd size, which keeps the length"
        if name == "encoder_embedding_dim" and value % 2:
            return f"{flag}: {value}, expected an even size: half for each direction of the LSTM"
        return None


@dataclass(frozen=True, kw_only=True)
class Tacotron2TrainingConfig:
    """Dropout rates of training, which no checkpoint stores. Raises UsageError for a value outside [0, 1)."""

    drop_frame_rate: float = option(
        0.0,
        "share of decoder steps whose input frame is replaced by zeros, so that the model relies on the text",
        metavar="P",
        check=SHARE,
    )
    p_convolution_dropout: float = option(
        0.5,
        "dropout after each convolution of encoder and postnet; lower it if a small model underfits",
        metavar="P",
        check=SHARE,
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Tacotron2SpeedConfig:
    """Ways to train faster that are off by default."""

    graphs: bool = option(
        False,
        "run the decoder in chunks of steps, which a GPU records once for each padded batch size and replays; on a CPU "
        "the same chunks run without recording, slower than the default; the gain has not been measured on a GPU",
    )
