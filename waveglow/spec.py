"""WaveGlow's entry in the registry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from common.audio.parts import parts_in_context, scaled
from common.audio.stft import AudioConfig, TacotronSTFT
from common.draws import Draws
from common.errors import DataError
from common.options import from_options, given_fields
from common.spec import Advice, ModelSpec, Options, Preview, TrainingDefaults, VocoderInference
from waveglow.arg_parser import add_waveglow_arguments, add_waveglow_training_arguments
from waveglow.config import WaveGlowConfig, WNConfig
from waveglow.data_function import PUBLISHED, MelAudioDataset, WaveGlowBatch
from waveglow.denoiser import Denoiser
from waveglow.fast.table import WAYS
from waveglow.loss_function import LossConfig, WaveGlowLoss
from waveglow.model import WaveGlow, WaveGlowOutput

# B batch, M mels, T frames, N samples, g samples in a group, G groups


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys whose flags are among the options."""
    network = given_fields(WNConfig, options)
    return given_fields(WaveGlowConfig, options) | ({"WN_config": network} if network else {})


def make_loss(options: Options) -> WaveGlowLoss:
    """The criterion that the options describe."""
    return WaveGlowLoss(from_options(LossConfig, options).sigma)


SIGMA = 0.9  # of a preview's noise


def preview(model: WaveGlow, batch: WaveGlowBatch, outputs: WaveGlowOutput, stft: TacotronSTFT) -> Preview:
    """A validation's first segment, vocoded from its own mels, and the latent's standard deviation (1 where the fit is good)."""
    from common.data.pictures import plot_mel_pair  # a step needs no pictures

    mel = batch.mels[:1]
    audio = model.infer(mel, sigma=SIGMA)[:, : batch.audio.shape[1]].float().clamp(-1, 1)
    vocoded = stft.to(mel.device).mel_spectrogram(audio)[0]
    hop_length, sampling_rate = stft.config.hop_length, stft.config.sampling_rate
    return Preview(
        figures={"mel": plot_mel_pair(mel[0].cpu(), vocoded.cpu(), hop_length=hop_length, sampling_rate=sampling_rate)},
        sounds={"target": batch.audio[0].cpu(), "vocoded": audio[0].cpu()},
        scalars={"latent_std": outputs.z.float().std().item()},
    )


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


# --- older layouts of the weights: fused cond_layers, folded weights, other names, half precision ---

_FUSED_CONDITION = re.compile(r"(WN\.\d+)\.cond_layer\.(.+)")
_FOLDED_WEIGHT = re.compile(r"(WN\.\d+\.(?:start|(?:in|res_skip|cond)_layers\.\d+))\.weight")
_PARAMETRIZED = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}


def upgrade_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert WaveGlow's state dict to today's layout and float32, from any mixture of these layouts:

    - one cond_layer for each WN, with the rows of all cond_layers one after the other;
    - weight normalisation folded into `weight`;
    - weight normalisation under the names of torch.nn.utils.parametrizations.

    Raises:
        DataError: a fused cond_layer whose rows do not divide by the number of layers.
    """
    upgraded: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        for old, new in _PARAMETRIZED.items():
            name = name.replace(old, new)
        upgraded.update(_split_condition(name, tensor.float(), state_dict))
    return {name: tensor for old, value in upgraded.items() for name, tensor in _unfold(old, value).items()}


def _split_condition(name: str, tensor: Tensor, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """WN.k.cond_layer.* as WN.k.cond_layers.i.*, any other tensor as it is."""
    match = _FUSED_CONDITION.fullmatch(name)
    if not match:
        return {name: tensor}
    flow, parameter = match.groups()
    n_layers = len({key.split(".")[3] for key in state_dict if key.startswith(f"{flow}.in_layers.")})
    if n_layers == 0 or len(tensor) % n_layers:
        raise DataError(f"{name}: {len(tensor)} rows, expected a multiple of the {n_layers} {flow}.in_layers")
    parts = tensor.chunk(n_layers)
    return {f"{flow}.cond_layers.{i}.{parameter}": part.clone() for i, part in enumerate(parts)}


def _unfold(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """A folded `weight` as weight_g and weight_v, any other tensor as it is."""
    match = _FOLDED_WEIGHT.fullmatch(name)
    if not match:
        return {name: tensor}
    norm = tensor.norm(dim=(1, 2), keepdim=True)
    direction = tensor.masked_fill(norm == 0, 1.0)  # zeros have no direction, and with g = 0 any will do
    return {f"{match[1]}.weight_g": norm, f"{match[1]}.weight_v": direction}


# Frames of the first part; lengths double from part to part, so that a smaller share of frames is computed twice.
FIRST_FRAMES = 8
MOST_FRAMES = 256
N_REACHES = 2  # context around a part, in half receptive fields of one flow; that of all flows together is larger


def draw_noise(model: WaveGlow, mels: Tensor, draws: Draws | None) -> Tensor:
    """Draw the noise z (B, g, G) for mels (B, M, T), item by item; without draws from PyTorch's generator."""
    config = model.config
    n_groups = mels.shape[2] * config.hop_length // config.n_group
    if draws is None:
        return torch.randn(len(mels), config.n_group, n_groups, dtype=model.flow_dtype(), device=mels.device)
    return draws.normal(n_groups, config.n_group).transpose(1, 2).to(model.flow_dtype())


def vocode(model: WaveGlow, mels: Tensor, sigma: float, draws: Draws | None) -> Tensor:
    """Vocode mels (B, M, T) into audio (B, N); the model is plain or prepared."""
    return model.infer(mels, sigma, draw_noise(model, mels, draws))


def stream(
    model: WaveGlow, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor], draws: Draws | None = None
) -> Iterator[Tensor]:
    """Vocode mels (1, M, T) into parts that join to nearly the audio (1, N) of `vocode` with the same draws.

    The first part comes soon. Each is vocoded together with the neighbouring frames that affect it.

    Args:
        model: plain or prepared.
        mels: log-mel frames.
        sigma: standard deviation of the noise.
        finish: postprocesses a part (1, n) together with the audio around it and keeps its length.
        draws: random numbers of the item, or None for PyTorch's generator.
    """
    config, frames = model.config, mels.shape[2]
    unit = config.n_group // math.gcd(config.hop_length, config.n_group)  # fewest frames that are whole groups
    around = _round_up(N_REACHES * config.reach + math.ceil(config.upsample_kernel_size / config.hop_length), unit)
    z = draw_noise(model, mels, draws)
    first, most = _round_up(FIRST_FRAMES, unit), _round_up(MOST_FRAMES, unit)
    for near, own in parts_in_context(frames, around, first, most, growth=2):
        groups = slice(*(frame * config.hop_length // config.n_group for frame in (near.start, near.stop)))
        yield finish(model.infer(mels[:, :, near], sigma, z[:, :, groups]))[:, scaled(own, config.hop_length)]


def _round_up(number: int, unit: int) -> int:
    return math.ceil(number / unit) * unit


def make_denoiser(model: WaveGlow, audio: AudioConfig) -> Denoiser:
    """A denoiser that works on the frames of the model's mels."""
    return Denoiser(model, audio.filter_length, win_length=audio.win_length, hop_length=audio.hop_length)


SPEC = ModelSpec(
    name="WaveGlow",
    build=WaveGlow,
    add_arguments=add_waveglow_arguments,
    add_training_arguments=add_waveglow_training_arguments,
    config_from_options=config_from_options,
    training=TrainingDefaults(
        epochs=1001, learning_rate=1e-4, batch_size=4, batch_size_amp=10, weight_decay=0.0, grad_clip_thresh=None
    ),
    make_dataset=MelAudioDataset,
    make_loss=make_loss,
    preview=preview,
    upgrade_state_dict=upgrade_state_dict,
    fast_ways=WAYS,
    advise=advise,
    published=PUBLISHED,
    inference=VocoderInference(denoiser=make_denoiser, vocode=vocode, stream=stream),
)
