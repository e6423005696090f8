"""Flags of Tacotron 2, from its configs, in the order of the signal path."""

from __future__ import annotations

import argparse

from common.options import add_fields
from common.parser import Parser
from tacotron2.config import Tacotron2Config, Tacotron2TrainingConfig
from tacotron2.data_function import Tacotron2DataConfig
from tacotron2.guard import DecodingGuard
from tacotron2.loss_function import Tacotron2LossConfig

# The names of fields, group by group: the help follows the path of the signal, while the configs have the order of the published
# ones, which older checkpoints and programs rely on.
TEXT = ("text_cleaners", "text_reading", "symbols")
ATTENTION = ("attention_rnn_dim", "attention_dim", "attention_location_n_filters", "attention_location_kernel_size")
DECODER = (
    *("n_frames_per_step", "decoder_rnn_dim", "prenet_dim", "max_decoder_steps", "gate_threshold"),
    *("p_attention_dropout", "p_decoder_dropout", "decoder_no_early_stopping"),
)


def add_tacotron2_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model's flags, for training and inference."""
    text = parser.add_argument_group("Tacotron 2: text")
    add_fields(text, Tacotron2DataConfig, *TEXT)
    add_fields(text, Tacotron2Config, "n_symbols", "symbols_embedding_dim")
    add_fields(text, Tacotron2Config, "mask_padding")
    encoder = ("encoder_kernel_size", "encoder_n_convolutions", "encoder_embedding_dim")
    postnet = ("postnet_embedding_dim", "postnet_kernel_size", "postnet_n_convolutions")
    for part, names in {"encoder": encoder, "decoder": DECODER, "attention": ATTENTION, "postnet": postnet}.items():
        add_fields(parser.add_argument_group(f"Tacotron 2: {part}"), Tacotron2Config, *names)
    add_fields(parser.add_argument_group("Tacotron 2: guards of inference, for any checkpoint"), DecodingGuard)


def add_tacotron2_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for training only."""
    group = parser.add_argument_group("Tacotron 2: data and loss")
    add_fields(group, Tacotron2DataConfig, "load_mel_from_disk")
    add_fields(group, Tacotron2LossConfig)
    add_fields(group, Tacotron2TrainingConfig)
    add_fields(group, Tacotron2DataConfig, "longest_clip", "symbols_per_second")


def parse_tacotron2_args(parent: argparse.ArgumentParser, add_help: bool = False) -> argparse.ArgumentParser:
    """A parser with the flags of `parent` and the model's, as scripts written for the published recipe build it."""
    parser = Parser(parents=[parent], add_help=add_help, conflict_handler="resolve")
    add_tacotron2_arguments(parser)
    return parser
