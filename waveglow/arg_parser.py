"""WaveGlow's own flags; their defaults are those of its config dataclasses."""

from __future__ import annotations

import argparse

from waveglow.config import WaveGlowConfig as Model
from waveglow.config import WNConfig as WN
from waveglow.data_function import WaveGlowDataConfig as Data
from waveglow.loss_function import LossConfig as Loss


def add_waveglow_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model's flags: the flow, then the network inside each of its couplings."""
    flow = parser.add_argument_group("WaveGlow: flow")
    flow.add_argument("--flows", type=int, default=Model.n_flows, help="steps of flow")
    flow.add_argument("--groups", type=int, default=Model.n_group, help="samples a group, the flow's channels; even")
    flow.add_argument("--early-every", type=int, default=Model.n_early_every, help="flows between early outputs")
    flow.add_argument("--early-size", type=int, default=Model.n_early_size, help="channels that leave there")
    flow.add_argument(
        "--upsample-channels",
        type=int,
        default=Model.upsample_channels,
        help="channels of the upsampled mels; default: as many as the mels'. A few, with larger --groups, train far faster",
    )
    wn = parser.add_argument_group("WaveGlow: network of a coupling (WN)")
    wn.add_argument("--wn-kernel-size", type=int, default=WN.kernel_size, help="width of its convolutions, odd")
    wn.add_argument("--wn-channels", type=int, default=WN.n_channels, help="channels; 256 is twice as fast")
    wn.add_argument("--wn-layers", type=int, default=WN.n_layers, help="layers, the dilation doubling at each")


def add_waveglow_training_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only training reads."""
    group = parser.add_argument_group("WaveGlow: data and loss")
    group.add_argument(
        "--segment-length", type=int, default=Data.segment_length, help="samples of each clip that an epoch takes"
    )
    group.add_argument(
        "--longest-clip",
        type=float,
        default=Data.longest_clip,
        metavar="SECONDS",
        help="longer clips are an error, found before training: each is read whole for a segment",
    )
    group.add_argument(
        "--load-mel-from-disk",
        action=argparse.BooleanOptionalAction,
        default=Data.load_mel_from_disk,
        help="cut mels from those of scripts/prepare_mels.sh, FOLDER/wavs/ID.wav's from FOLDER/mels/ID.pt",
    )
    group.add_argument(
        "--dither",
        type=float,
        default=Data.dither,
        help="standard deviation of white noise added to the audio, not to its mel; 0.0005 spares a small model, or clean audio, "
        "the modelling of inaudible noise",
    )
    group.add_argument("--sigma", type=float, default=Loss.sigma, help="standard deviation of the latent Gaussian")
    memory = parser.add_argument_group("WaveGlow: memory")
    memory.add_argument(
        "--recompute",
        action="store_true",
        help="compute the flows' inner tensors again in backward instead of storing them: a fraction of the memory, "
        "a step about a third longer",
    )
