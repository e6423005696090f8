"""What each vocoder brings to an export: its parts in the order of their calls, its noise, and the model that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from common.audio.stft import AudioConfig
from common.inference.vocoders import LoadedModel
from common.spec import ModelSpec
from exports import parts
from exports.models import Call, ExportedPulseNoise, exported_waveglow
from exports.parts import ExportPart
from exports.pulse_noise import pulse_noise_parts
from exports.random_numbers import Noise, WhiteNoise
from pulse_noise.model import PulseNoiseConfig
from pulse_noise.spec import SPEC as PULSE_NOISE
from waveglow.config import WaveGlowConfig
from waveglow.spec import SPEC as WAVEGLOW


@dataclass(frozen=True, kw_only=True)
class VocoderExport:
    """A vocoder's entry. A part reads mels, noise `z`, `audio` of the part before it, and the settings, by these names."""

    spec: ModelSpec
    parts: Callable[[Any, AudioConfig], Iterator[ExportPart]]
    names: tuple[str, ...]  # of the parts
    settings: tuple[str, ...]  # further inputs, sigma and strength
    noise: Callable[[Any], nn.Module]  # config -> a module: mels (B, M, T), seeds (B,) -> z
    load: Callable[[Mapping[str, Call], Mapping[str, Any], dict[str, Any]], LoadedModel]  # open parts, config, options
    more_frames: int = 0  # frames beyond those whose audio is kept
    targets: tuple[str, ...] = ()  # that can hold it; none: all of them


def _load_waveglow(calls: Mapping[str, Call], config: Mapping[str, Any], options: dict[str, Any]) -> LoadedModel:
    return exported_waveglow(calls["waveglow"], calls["denoiser"], WaveGlowConfig.from_dict(dict(config)), options)


def _load_pulse_noise(calls: Mapping[str, Call], config: Mapping[str, Any], options: dict[str, Any]) -> LoadedModel:
    model = ExportedPulseNoise(calls["pulse_noise"], PulseNoiseConfig(**config))
    return LoadedModel(PULSE_NOISE, model, options)


VOCODERS = {
    entry.spec.name: entry
    for entry in (
        VocoderExport(
            spec=WAVEGLOW,
            parts=parts.waveglow_parts,
            names=("waveglow", "denoiser"),
            settings=("sigma", "strength"),
            noise=lambda config: Noise(config.n_group, config.hop_length),
            load=_load_waveglow,
        ),
        VocoderExport(
            spec=PULSE_NOISE,
            parts=pulse_noise_parts,
            names=("pulse_noise",),
            settings=(),
            noise=lambda config: WhiteNoise(config.hop_length),
            load=_load_pulse_noise,
            more_frames=1,
            targets=("onnx", "onnx-int8", "onnx-float16", "triton", "triton-onnx", "web"),
        ),
    )
}
