"""Tacotron 2's dimensions: the config stored in every checkpoint and the defaults of its flags."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from common.errors import UsageError

MOST_STEPS = 1_000_000  # decoder steps of a clip; more are a mistake that would fill the memory


@dataclass(frozen=True, kw_only=True)
class Tacotron2Config:
    """Keyword arguments of Tacotron2. Raises UsageError, which names the flag, for impossible values."""

    mask_padding: bool = False
    n_mel_channels: int = 80
    n_symbols: int = 148
    symbols_embedding_dim: int = 512
    encoder_kernel_size: int = 5
    encoder_n_convolutions: int = 3
    encoder_embedding_dim: int = 512
    attention_rnn_dim: int = 1024
    attention_dim: int = 128
    attention_location_n_filters: int = 32
    attention_location_kernel_size: int = 31
    n_frames_per_step: int = 1
    decoder_rnn_dim: int = 1024
    prenet_dim: int = 256
    max_decoder_steps: int = 2000
    gate_threshold: float = 0.5
    p_attention_dropout: float = 0.1
    p_decoder_dropout: float = 0.1
    postnet_embedding_dim: int = 512
    postnet_kernel_size: int = 5
    postnet_n_convolutions: int = 5
    decoder_no_early_stopping: bool = False

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

    drop_frame_rate: float = 0.0  # share of decoder steps whose input frame is zero
    p_convolution_dropout: float = 0.5  # after each convolution of the encoder and the postnet

    def __post_init__(self) -> None:
        shares = {"--" + field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        wrong = {flag: share for flag, share in shares.items() if not 0 <= share < 1}  # NaN fails this as well
        if wrong:
            raise UsageError("; ".join(f"{flag}: {share}, expected a share in [0, 1)" for flag, share in wrong.items()))
