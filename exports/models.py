"""Exported models with the interface a Synthesizer needs, and what each vocoder brings to an export.

Random numbers are drawn as in the plain models, so a seed gives the same speech from any target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.stft import AudioConfig
from common.draws import Draws
from common.inference.vocoders import LoadedModel
from common.spec import ModelSpec, VocoderInference
from exports.parts import ExportPart, waveglow_parts
from exports.pulse_noise import pulse_noise_parts
from exports.random_numbers import Noise, WhiteNoise
from pulse_noise.model import PulseNoiseConfig
from pulse_noise.spec import SPEC as PULSE_NOISE
from tacotron2.config import Tacotron2Config
from tacotron2.decoder import DecoderState, Memory, Prenet
from tacotron2.guard import DecodingGuard, StopRule
from tacotron2.model import Tacotron2Inference
from waveglow.config import WaveGlowConfig
from waveglow.spec import SPEC as WAVEGLOW

# B batch, S symbols, T frames, M mels, K decoder steps, r frames a step, N samples, g samples in a group, G groups

Call = Callable[..., Any]  # an exported part: tensors in the order of its inputs -> a tensor or a tuple of them


def prenet_of(config: Tacotron2Config) -> Prenet:
    """A prenet that only draws masks; on the meta device, so that its initial weights consume no random numbers."""
    with torch.device("meta"):
        return Prenet(1, config.prenet_dim)


class ScriptedTacotron2:
    """exports.torchscript.ScriptedFreeRun as a model."""

    def __init__(self, module: Any, config: Tacotron2Config) -> None:
        self.module, self.config, self.prenet = module, config, prenet_of(config)
        module.threshold, module.early_stopping = config.gate_threshold, not config.decoder_no_early_stopping
        module.max_steps = config.max_decoder_steps

    @torch.no_grad()
    def infer(
        self, text: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> Tacotron2Inference:
        """Tacotron2.infer; the masks of all steps up to the limit are drawn at once."""
        steps = max_steps or self.config.max_decoder_steps
        keep = None if draws is None else self.prenet.keep_masks(draws, steps)
        return Tacotron2Inference(*self.module.infer(text, text_lengths, max_steps, keep))

    def frame_limits(self, text_lengths: Tensor) -> Tensor:
        """Tacotron2.frame_limits."""
        return torch.full_like(text_lengths, self.config.max_decoder_steps * self.config.n_frames_per_step)


class PartwiseTacotron2:
    """The exported encoder, decoder step and postnet in Tacotron2's free run."""

    def __init__(self, parts: Mapping[str, Call], config: Tacotron2Config, guard: DecodingGuard) -> None:
        self.encode, self.step, self.refine = (parts[name] for name in ("encoder", "decoder_step", "postnet"))
        self.config, self.guard, self.prenet = config, guard, prenet_of(config)

    @torch.no_grad()
    def infer(
        self, text: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> Tacotron2Inference:
        """Tacotron2.infer."""
        memory, r = Memory(*self.encode(text, text_lengths)), self.config.n_frames_per_step
        state, frames = self._start(memory)
        limits = self.limits(text_lengths, max_steps)
        attention = self.guard.attention_rule(text_lengths, r)
        stop = StopRule(limits, self.config.gate_threshold, not self.config.decoder_no_early_stopping, attention)
        outputs: list[Tensor] = []
        alignments: list[Tensor] = []
        while not stop.finished:
            inputs = memory._replace(padding=self.guard.mask(memory.padding, state.weights))
            masks = (
                self.prenet.keep_masks(draws, 1) if draws else self.prenet.draw_keep_masks(1, len(text), frames.device)
            )
            *tensors, frames, gate = self.step(frames, masks[0], *state, *inputs)
            state = DecoderState(*tensors)
            outputs.append(frames)
            alignments.append(state.weights)
            stop.update(gate[None], state.weights[None])
        mels = torch.stack(outputs, dim=1).unflatten(2, (r, self.config.n_mel_channels)).flatten(1, 2).transpose(1, 2)
        lengths = torch.minimum(stop.steps + 1, limits) * r  # the postnet's context: see Tacotron2.infer
        return Tacotron2Inference(self.refine(mels, lengths), stop.steps * r, torch.stack(alignments, dim=1))

    def frame_limits(self, text_lengths: Tensor) -> Tensor:
        """Tacotron2.frame_limits."""
        return self.limits(text_lengths) * self.config.n_frames_per_step

    def limits(self, text_lengths: Tensor, max_steps: int | None = None) -> Tensor:
        """Decoder steps (B,) after which texts of these lengths (B,) are cut off."""
        limit = max_steps or self.config.max_decoder_steps
        return self.guard.step_limits(text_lengths, self.config.n_frames_per_step, limit)

    def _start(self, memory: Memory) -> tuple[DecoderState, Tensor]:
        """The state before the first step, and its frames (B, r·M): zeros."""
        batch, symbols, channels = memory.values.shape
        config, zeros = self.config, partial(memory.values.new_zeros, batch)
        attention, decoder, weights = zeros(config.attention_rnn_dim), zeros(config.decoder_rnn_dim), zeros(symbols)
        state = DecoderState(attention, attention, zeros(channels), weights, weights, decoder, decoder)
        return state, zeros(config.n_mel_channels * config.n_frames_per_step)


class ExportedWaveGlow:
    """The exported WaveGlow, vocode(mels, z, sigma), and the exported denoiser, denoiser(audio, strength)."""

    def __init__(self, vocode: Call, denoiser: Call, config: WaveGlowConfig) -> None:
        self.vocode, self.denoiser, self.config = vocode, denoiser, config

    @torch.no_grad()
    def infer(self, mels: Tensor, sigma: float, z: Tensor) -> Tensor:
        """WaveGlow.infer."""
        return self.vocode(mels, z, torch.tensor(float(sigma)))

    def flow_dtype(self) -> torch.dtype:
        """The dtype of the noise."""
        return torch.float32


class ExportedPulseNoise:
    """The exported pulse-noise, vocode(mels, noise), which takes one item."""

    def __init__(self, vocode: Call, config: PulseNoiseConfig) -> None:
        self.vocode, self.config = vocode, config

    @torch.no_grad()
    def infer(self, mels: Tensor, noise: Tensor) -> Tensor:
        """PulseNoise.infer."""
        return torch.cat([self.vocode(mel[None], own[None]) for mel, own in zip(mels, noise, strict=True)])

    def stream(self, mels: Tensor, noise: Tensor) -> Iterator[Tensor]:
        """PulseNoise.stream, with all audio in one part."""
        yield self.infer(mels, noise)


def denoise(model: ExportedWaveGlow, filter_length: int, audio: Tensor, strength: float) -> Tensor:
    """Denoise audio (B, N); clips shorter than the denoiser's window are padded for it."""
    n_samples = audio.shape[1]
    padded = F.pad(audio, (0, max(0, filter_length - n_samples)))
    return model.denoiser(padded, torch.tensor(float(strength)))[:, :n_samples]


def exported_waveglow(parts: Mapping[str, Call], config: Mapping[str, Any], options: dict[str, Any]) -> LoadedModel:
    """An exported WaveGlow for a Synthesizer, with the exported denoiser."""
    stages = WAVEGLOW.inference
    assert isinstance(stages, VocoderInference)
    model = ExportedWaveGlow(parts["waveglow"], parts["denoiser"], WaveGlowConfig.from_dict(dict(config)))
    own = replace(stages, denoiser=lambda model, audio: partial(denoise, model, audio.filter_length))
    return LoadedModel(replace(WAVEGLOW, inference=own), model, options)


def exported_pulse_noise(parts: Mapping[str, Call], config: Mapping[str, Any], options: dict[str, Any]) -> LoadedModel:
    """An exported pulse-noise for a Synthesizer."""
    return LoadedModel(PULSE_NOISE, ExportedPulseNoise(parts["pulse_noise"], PulseNoiseConfig(**config)), options)


@dataclass(frozen=True, kw_only=True)
class VocoderExport:
    """What a vocoder brings. A part reads mels, noise `z`, `audio` of the part before it, and the settings, by these names."""

    spec: ModelSpec
    parts: Callable[[Any, AudioConfig], Iterator[ExportPart]]
    names: tuple[str, ...]  # of the parts
    settings: tuple[str, ...]  # further inputs, sigma and strength
    noise: Callable[[Any], nn.Module]  # config -> a module: mels (B, M, T), seeds (B,) -> z
    load: Callable[[Mapping[str, Call], Mapping[str, Any], dict[str, Any]], LoadedModel]  # open parts, config, options
    more_frames: int = 0  # frames beyond those whose audio is kept
    targets: tuple[str, ...] = ()  # that can hold it; none: all of them


VOCODERS = {
    entry.spec.name: entry
    for entry in (
        VocoderExport(
            spec=WAVEGLOW,
            parts=waveglow_parts,
            names=("waveglow", "denoiser"),
            settings=("sigma", "strength"),
            noise=lambda config: Noise(config.n_group, config.hop_length),
            load=exported_waveglow,
        ),
        VocoderExport(
            spec=PULSE_NOISE,
            parts=pulse_noise_parts,
            names=("pulse_noise",),
            settings=(),
            noise=lambda config: WhiteNoise(config.hop_length),
            load=exported_pulse_noise,
            more_frames=1,
            targets=("onnx", "onnx-int8", "onnx-float16", "triton", "triton-onnx", "web"),
        ),
    )
}
