"""WaveGlow's entry in the registry."""

from __future__ import annotations

from typing import Any

from common.audio.stft import AudioConfig, TacotronSTFT
from common.options import from_options, given_fields
from common.spec import Advice, ModelSpec, Options, Preview, TrainingDefaults, VocoderInference
from waveglow.arg_parser import add_waveglow_arguments, add_waveglow_training_arguments
from waveglow.config import WaveGlowConfig, WNConfig
from waveglow.data_function import MelAudioDataset, WaveGlowBatch
from waveglow.denoiser import Denoiser
from waveglow.fast.table import WAYS
from waveglow.loss_function import LossConfig, WaveGlowLoss
from waveglow.model import WaveGlow, WaveGlowOutput
from waveglow.state_dict import upgrade_state_dict
from waveglow.streaming import stream, vocode


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys whose flags are among the options."""
    network = given_fields(WNConfig, options)
    return given_fields(WaveGlowConfig, options) | ({"WN_config": network} if network else {})


def make_loss(options: Options) -> WaveGlowLoss:
    """The criterion that the options describe."""
    return WaveGlowLoss(from_options(LossConfig, options).sigma)


def show(model: WaveGlow, batch: WaveGlowBatch, outputs: WaveGlowOutput, stft: TacotronSTFT) -> Preview:
    """Pictures, sounds and numbers of a validation."""
    from waveglow.preview import preview  # a step needs no pictures

    return preview(model, batch, outputs, stft)


def make_denoiser(model: WaveGlow, audio: AudioConfig) -> Denoiser:
    """A denoiser that works on the frames of the model's mels."""
    return Denoiser(model, audio.filter_length, audio.hop_length, audio.win_length)


# The embedded voice's sizes, which train on two cores of a CPU.
SMALL = {"flows": 8, "groups": 32, "early_size": 8, "upsample_channels": 8, "wn_channels": 64, "wn_layers": 5}
FEW_WEIGHTS = 15_000_000  # the published model has 268 million, the embedded voice's 3; small models take higher rates


def advise(minutes: float, weights: int, gpu: bool) -> Advice:
    """Choose settings for fine-tuning or for training from scratch; a vocoder depends little on the minutes of data."""
    if weights:
        options = {
            "batch_size": 8 if gpu else 4,
            "epochs": 100,
            "learning_rate": 1e-3 if weights < FEW_WEIGHTS else 2e-4,
            "warmup_steps": 100,
            "dither": 0.0005,
        }
        return Advice(options, "a vocoder of other speech needs little to follow a new speaker")
    if gpu:
        options = {"batch_size": 10, "epochs": 1000, "learning_rate": 1e-4, "wn_channels": 256}
        return Advice(options, "the published recipe, with the 256 channels of its checkpoints")
    options = {"batch_size": 4, "epochs": 200, "learning_rate": 1.5e-3, "warmup_steps": 300, "dither": 0.0005, **SMALL}
    return Advice(options, "a CPU trains the small model several times faster")


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
    preview=show,
    upgrade_state_dict=upgrade_state_dict,
    fast_ways=WAYS,
    advise=advise,
    inference=VocoderInference(denoiser=make_denoiser, vocode=vocode, stream=stream),
)
