"""WaveGlow's entry in the registry."""

from __future__ import annotations

from typing import Any

from common.audio.stft import AudioConfig
from common.options import from_options
from common.spec import ModelSpec, Options, Preview, TrainingDefaults, VocoderInference
from waveglow.advice import advise
from waveglow.arg_parser import add_waveglow_arguments, add_waveglow_training_arguments
from waveglow.data_function import MelAudioDataset
from waveglow.denoiser import Denoiser
from waveglow.fast.table import WAYS
from waveglow.loss_function import LossConfig, WaveGlowLoss
from waveglow.model import WaveGlow
from waveglow.state_dict import upgrade_state_dict
from waveglow.streaming import stream, vocode

FLAGS = {  # config key: flag
    "n_mel_channels": "n_mel_channels",
    "n_flows": "flows",
    "n_group": "groups",
    "n_early_every": "early_every",
    "n_early_size": "early_size",
    "hop_length": "hop_length",
    "upsample_channels": "upsample_channels",
}
WN_FLAGS = {"n_layers": "wn_layers", "kernel_size": "wn_kernel_size", "n_channels": "wn_channels"}


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys whose flags are among the options."""
    config: dict[str, Any] = {key: options[flag] for key, flag in FLAGS.items() if flag in options}
    network = {key: options[flag] for key, flag in WN_FLAGS.items() if flag in options}
    return config | ({"WN_config": network} if network else {})


def make_loss(options: Options) -> WaveGlowLoss:
    """The criterion that the options describe."""
    return WaveGlowLoss(from_options(LossConfig, options).sigma)


def make_denoiser(model: WaveGlow, audio: AudioConfig) -> Denoiser:
    """A denoiser that works on the frames of the model's mels."""
    return Denoiser(model, audio.filter_length, audio.hop_length, audio.win_length)


def preview(*outputs: Any) -> Preview:
    """Preview a validation batch. Imported only here, because inference needs no pictures."""
    from waveglow import preview

    return preview.preview(*outputs)


SPEC = ModelSpec(
    name="WaveGlow",
    build=WaveGlow,
    add_arguments=add_waveglow_arguments,
    add_training_arguments=add_waveglow_training_arguments,
    config_from_options=config_from_options,
    training=TrainingDefaults(
        epochs=1001,
        learning_rate=1e-4,
        batch_size=4,
        batch_size_amp=10,
        weight_decay=0.0,
        grad_clip_thresh=None,
    ),
    make_dataset=MelAudioDataset,
    check_clips=MelAudioDataset.check_clips,
    make_loss=make_loss,
    preview=preview,
    upgrade_state_dict=upgrade_state_dict,
    fast_ways=WAYS,
    advise=advise,
    inference=VocoderInference(denoiser=make_denoiser, vocode=vocode, stream=stream),
)
