"""Flags of Tacotron 2; their defaults come from its config dataclasses."""

from __future__ import annotations

import argparse

from tacotron2.config import Tacotron2Config as Model
from tacotron2.config import Tacotron2TrainingConfig as Training
from tacotron2.data_function import TEXT_READINGS
from tacotron2.data_function import Tacotron2DataConfig as Data
from tacotron2.guard import SPARE_FRAMES
from tacotron2.guard import DecodingGuard as Guard
from tacotron2.loss_function import Tacotron2LossConfig as Loss
from tacotron2.text.alphabet import BUILT_IN
from tacotron2.text.symbols_file import symbols_file


def add_tacotron2_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model's flags, group by group, in the order of the signal path."""
    _add_text(parser.add_argument_group("Tacotron 2: text"))
    _add_encoder(parser.add_argument_group("Tacotron 2: encoder"))
    _add_decoder(parser.add_argument_group("Tacotron 2: decoder"))
    _add_attention(parser.add_argument_group("Tacotron 2: attention"))
    _add_postnet(parser.add_argument_group("Tacotron 2: postnet"))
    _add_guard(parser.add_argument_group("Tacotron 2: guards of inference, for any checkpoint"))


def add_tacotron2_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for training only."""
    group = parser.add_argument_group("Tacotron 2: data and loss")
    group.add_argument(
        "--load-mel-from-disk",
        action=argparse.BooleanOptionalAction,
        default=Data.load_mel_from_disk,
        help="read precomputed mels: the filelists name .pt files instead of audio",
    )
    group.add_argument(
        "--guided-attention-weight",
        type=float,
        default=Loss.guided_attention_weight,
        metavar="W",
        help="weight of the guided attention loss, which penalises attention far from the diagonal; about 100 helps with little "
        "data; 0: off",
    )
    group.add_argument(
        "--guided-attention-sigma",
        type=float,
        default=Loss.guided_attention_sigma,
        metavar="S",
        help="width of the diagonal band, as a share of the clip",
    )
    group.add_argument(
        "--guided-attention-decay",
        type=float,
        default=Loss.guided_attention_decay,
        metavar="D",
        help="factor on the weight of guided attention after each iteration; 1: constant",
    )
    _add_dropout(group)
    _add_limits(group)
    parser.add_argument_group("Tacotron 2: speed").add_argument(
        "--graphs",
        action="store_true",
        help="run the decoder in chunks of steps, which a GPU records once for each padded size of a batch and replays; on a CPU "
        "the same chunks run without recording, which is slower than the default; its gain has not been measured on a GPU",
    )


def _add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--longest-clip",
        type=float,
        default=Data.longest_clip,
        metavar="SECONDS",
        help="longer clips are an error, found before training: memory grows with the longest one",
    )
    group.add_argument(
        "--symbols-per-second",
        type=float,
        default=Data.symbols_per_second,
        metavar="N",
        help="texts of more symbols for their clip are an error, found before training; fast speech has 25",
    )


def _add_dropout(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--drop-frame-rate",
        type=float,
        default=Training.drop_frame_rate,
        metavar="P",
        help="share of decoder steps whose input frame is replaced by zeros, so that the model relies on the text",
    )
    group.add_argument(
        "--p-convolution-dropout",
        type=float,
        default=Training.p_convolution_dropout,
        metavar="P",
        help="dropout after each convolution of encoder and postnet; lower it if a small model underfits",
    )


def _add_text(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--text-cleaners",
        nargs="+",
        default=list(Data.text_cleaners),
        metavar="NAME",
        help="cleaners to apply in this order: english_cleaners, basic_cleaners or transliteration_cleaners",
    )
    group.add_argument(
        "--text-reading",
        choices=TEXT_READINGS,
        default=Data.text_reading,
        help="of English in inference; spoken: numbers, units, dates and the like in words before the cleaners; "
        "as-published: the cleaners alone, as in training",
    )
    group.add_argument(
        "--symbols-file",
        dest="symbols",
        type=symbols_file,
        default=Data.symbols,
        metavar="PATH",
        help="file with another alphabet, UTF-8, one symbol a line: the padding first, then characters, and ARPAbet as @AA1; for "
        "letters outside ASCII add --text-cleaners basic_cleaners, since english_cleaners remove them "
        f"(default: {len(BUILT_IN.symbols)} built in)",
    )
    group.add_argument("--n-symbols", type=int, default=Model.n_symbols, help="number of symbols in the alphabet")
    group.add_argument(
        "--symbols-embedding-dim", type=int, default=Model.symbols_embedding_dim, help="channels of an embedded symbol"
    )
    group.add_argument(
        "--mask-padding",
        action=argparse.BooleanOptionalAction,
        default=Model.mask_padding,
        help="exclude padding from outputs, loss and BatchNorm statistics",
    )


def _add_encoder(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--encoder-kernel-size", type=int, default=Model.encoder_kernel_size, help="kernel size in symbols, odd"
    )
    group.add_argument(
        "--encoder-n-convolutions", type=int, default=Model.encoder_n_convolutions, help="number of convolution layers"
    )
    group.add_argument("--encoder-embedding-dim", type=int, default=Model.encoder_embedding_dim, help="output channels")


def _add_decoder(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--n-frames-per-step",
        type=int,
        default=Model.n_frames_per_step,
        help="mel frames per decoder step (reduction factor): with 2 or 3, training and inference are faster",
    )
    group.add_argument("--decoder-rnn-dim", type=int, default=Model.decoder_rnn_dim, help="units of the decoder LSTM")
    group.add_argument("--prenet-dim", type=int, default=Model.prenet_dim, help="units of each prenet layer")
    group.add_argument(
        "--max-decoder-steps",
        type=int,
        default=Model.max_decoder_steps,
        help="maximum number of decoder steps in inference",
    )
    group.add_argument(
        "--gate-threshold", type=float, default=Model.gate_threshold, help="stop probability above which a clip ends"
    )
    group.add_argument(
        "--p-attention-dropout", type=float, default=Model.p_attention_dropout, help="dropout on the attention LSTM"
    )
    group.add_argument(
        "--p-decoder-dropout", type=float, default=Model.p_decoder_dropout, help="dropout on the decoder LSTM"
    )
    group.add_argument(
        "--decoder-no-early-stopping",
        action=argparse.BooleanOptionalAction,
        default=Model.decoder_no_early_stopping,
        help="run inference to --max-decoder-steps and ignore the gate",
    )


def _add_attention(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--attention-rnn-dim", type=int, default=Model.attention_rnn_dim, help="units of the attention LSTM"
    )
    group.add_argument(
        "--attention-dim", type=int, default=Model.attention_dim, help="channels of query, keys and energies"
    )
    group.add_argument(
        "--attention-location-n-filters",
        type=int,
        default=Model.attention_location_n_filters,
        help="filters over the previous attention weights",
    )
    group.add_argument(
        "--attention-location-kernel-size",
        type=int,
        default=Model.attention_location_kernel_size,
        help="width of these filters in symbols, odd",
    )


def _add_postnet(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--postnet-embedding-dim", type=int, default=Model.postnet_embedding_dim, help="hidden channels")
    group.add_argument(
        "--postnet-kernel-size", type=int, default=Model.postnet_kernel_size, help="kernel size in frames, odd"
    )
    group.add_argument(
        "--postnet-n-convolutions", type=int, default=Model.postnet_n_convolutions, help="number of convolution layers"
    )


def _add_guard(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--attention-stop",
        type=int,
        default=Guard.attention_stop,
        metavar="N",
        help="also end a clip after attention has stayed at the last symbol for N mel frames, independent of the gate; choose "
        "more than the longest sound, for example 30; 0: off",
    )
    group.add_argument(
        "--attention-window",
        type=int,
        default=Guard.attention_window,
        metavar="W",
        help="limit the movement of attention to W symbols a decoder step, forward or back; 0: off",
    )
    group.add_argument(
        "--max-frames-per-symbol",
        type=float,
        default=Guard.max_frames_per_symbol,
        metavar="X",
        help=f"also end a clip after X mel frames a symbol plus {SPARE_FRAMES}; 0: off",
    )
