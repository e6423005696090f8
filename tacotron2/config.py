"""Tacotron 2's dimensions: the config stored in every checkpoint and the defaults of its flags."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from common.options import COUNT, TRUTH, Check, check_fields, is_number, option

SHARE = Check(lambda share: 0 <= share < 1, "a share in [0, 1)")
DROPOUT = Check(lambda p: is_number(p) and 0 <= p < 1, "a probability in [0, 1)")
PROBABILITY = Check(lambda p: is_number(p) and 0 <= p <= 1, "a probability in [0, 1], where 1 never stops")
ODD = Check(lambda size: COUNT.holds(size) and size % 2, "an odd size, which keeps the length")
EVEN = Check(lambda size: COUNT.holds(size) and not size % 2, "an even size: half for each direction of the LSTM")
MOST_STEPS = 1_000_000  # decoder steps of a clip; more are a mistake that would fill the memory
STEPS = Check(lambda steps: COUNT.holds(steps) and steps <= MOST_STEPS, f"a whole number from 1 to {MOST_STEPS}")


@dataclass(frozen=True, kw_only=True)
class Tacotron2Config:
    """Keyword arguments of Tacotron2. Raises UsageError, which names the flag, for impossible values."""

    mask_padding: bool = option(
        False,
        "exclude padding from outputs, loss and BatchNorm statistics",
        action=argparse.BooleanOptionalAction,
        check=TRUTH,
    )
    n_mel_channels: int = field(default=80, metadata={"check": COUNT})  # a flag of audio
    n_symbols: int = option(148, "number of symbols in the alphabet", check=COUNT)
    symbols_embedding_dim: int = option(512, "channels of an embedded symbol", check=COUNT)
    encoder_kernel_size: int = option(5, "kernel size in symbols, odd", check=ODD)
    encoder_n_convolutions: int = option(3, "number of convolution layers", check=COUNT)
    encoder_embedding_dim: int = option(512, "output channels", check=EVEN)
    attention_rnn_dim: int = option(1024, "units of the attention LSTM", check=COUNT)
    attention_dim: int = option(128, "channels of query, keys and energies", check=COUNT)
    attention_location_n_filters: int = option(32, "filters over the previous attention weights", check=COUNT)
    attention_location_kernel_size: int = option(31, "width of these filters in symbols, odd", check=ODD)
    n_frames_per_step: int = option(
        1, "mel frames per decoder step (reduction factor): 2 or 3 make training and inference faster", check=COUNT
    )
    decoder_rnn_dim: int = option(1024, "units of the decoder LSTM", check=COUNT)
    prenet_dim: int = option(256, "units of each prenet layer", check=COUNT)
    max_decoder_steps: int = option(2000, "maximum number of decoder steps in inference", check=STEPS)
    gate_threshold: float = option(0.5, "stop probability above which a clip ends", check=PROBABILITY)
    p_attention_dropout: float = option(0.1, "dropout on the attention LSTM", check=DROPOUT)
    p_decoder_dropout: float = option(0.1, "dropout on the decoder LSTM", check=DROPOUT)
    postnet_embedding_dim: int = option(512, "hidden channels", check=COUNT)
    postnet_kernel_size: int = option(5, "kernel size in frames, odd", check=ODD)
    postnet_n_convolutions: int = option(5, "number of convolution layers", check=COUNT)
    decoder_no_early_stopping: bool = option(
        False,
        "go on to --max-decoder-steps in inference, whatever end of the speech the model predicts",
        action=argparse.BooleanOptionalAction,
        check=TRUTH,
    )

    def __post_init__(self) -> None:
        check_fields(self)


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
