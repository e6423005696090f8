"""What hubconf.py offers to torch.hub, under the names of NVIDIA's published entries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import build_model, restore_model
from common.errors import DataError, UsageError
from common.inference.arguments import vocoder_names
from common.inference.config import SynthesisConfig
from compat.inference import prepare_input_sequence
from models import REGISTRY, default_options
from synthesizer import EMBEDDED, Synthesizer

MODEL_MATH = {"fp32": torch.float32, "fp16": torch.float16}
TACOTRON2: Any = REGISTRY["Tacotron2"].build
WAVEGLOW: Any = REGISTRY["WaveGlow"].build


class HubTacotron2(TACOTRON2):
    """Tacotron 2 as the published entry calls it: texts may lie on another device."""

    def infer(self, text: Tensor, text_lengths: Tensor, *rest: Any, **options: Any) -> Any:
        """As Tacotron2.infer."""
        device = self.embedding.weight.device
        return super().infer(text.to(device), text_lengths.to(device), *rest, **options)


class HubWaveGlow(WAVEGLOW):
    """WaveGlow as the published entry calls it, with noise of standard deviation 1 by default."""

    def infer(self, mels: Tensor, sigma: float = 1.0, z: Tensor | None = None) -> Tensor:
        """As WaveGlow.infer."""
        audio: Tensor = super().infer(mels, sigma, z)
        return audio


def nvidia_tacotron2(pretrained: bool = True, **options: Any) -> nn.Module:
    """Tacotron 2: infer(ids (B, S), lengths (B,)) gives mels (B, M, T), mel_lengths (B,) and alignments (B, K, S).

    Args:
        pretrained: load weights; False draws new ones for the model described by `config` (default: the published one).
        checkpoint: a file to load instead of the embedded voice's; published checkpoints work too.
        model_math: "fp32", or "fp16" for half-precision weights, which need a GPU.
        force_reload: no effect, as nothing is downloaded.
        map_location: the model's device.
        options: these, each of which may be left out, and with pretrained=False the keyword arguments of Tacotron2Config.

    Raises:
        UsageError: arguments that contradict each other.
        DataError: a file that is missing or holds another model.
    """
    return _model(HubTacotron2, "Tacotron2", pretrained, **options)


def nvidia_waveglow(pretrained: bool = True, **options: Any) -> nn.Module:
    """WaveGlow: infer(mels (B, M, T), sigma=1.0) gives audio (B, N). Arguments and errors are those of nvidia_tacotron2.

    As published, n_layers, kernel_size and n_channels of WN may stand beside the other keyword arguments, and
    `waveglow.remove_weightnorm(waveglow)` may be called, but changes nothing. A model takes the mels of its own voice.
    """
    if inner := {name: options.pop(name) for name in ("n_layers", "kernel_size", "n_channels") if name in options}:
        options["WN_config"] = options.get("WN_config", {}) | inner
    return _model(HubWaveGlow, "WaveGlow", pretrained, **options)


def nvidia_tts_utils() -> TextUtils:
    """The text front end: prepare_input_sequence(["A text."]) gives ids (B, S) and lengths (B,) for Tacotron 2's infer."""
    return TextUtils()


def embedded_voice(vocoder: str | None = None, **options: Any) -> Synthesizer:
    """The embedded voice: speak("A text.") gives a list of Speech, each with `audio` (N,) and `sampling_rate`.

    Args:
        vocoder: "pulse-noise" (the default), "griffin-lim" or "waveglow".
        options: fields of SynthesisConfig, such as seed=1.

    Raises:
        UsageError: an unknown vocoder, or options out of range.
    """
    known = vocoder_names(REGISTRY.values())
    if vocoder not in (None, *known):
        raise UsageError(f"vocoder: {vocoder!r}, expected one of {', '.join(known)}")
    return Synthesizer.embedded(config=SynthesisConfig(vocoder=vocoder, **options))


class TextUtils:
    """The functions of the published nvidia_tts_utils that inference needs."""

    prepare_input_sequence = staticmethod(prepare_input_sequence)


def _model(
    build: type[nn.Module],
    name: str,
    pretrained: bool,
    checkpoint: str | None = None,
    model_math: str = "fp32",
    force_reload: bool = False,
    map_location: str | torch.device | None = None,
    **config: Any,
) -> nn.Module:
    spec = replace(REGISTRY[name], build=build)
    if model_math not in MODEL_MATH:
        raise UsageError(f"model_math: {model_math!r}, expected one of {', '.join(MODEL_MATH)}")
    if not pretrained:
        if checkpoint is not None:
            raise UsageError(f"checkpoint: {checkpoint!r} with pretrained=False; leave one of them out")
        return build_model(spec, config).eval().to(map_location, MODEL_MATH[model_math])
    if config:
        names = ", ".join(config)
        if unknown := [key for key in config if key not in spec.config_from_options(default_options())]:
            raise UsageError(f"{', '.join(unknown)}: no argument of this entry, and no key of {name}'s config")
        raise UsageError(f"{names}: weights have their own config; leave these out, or set pretrained=False")
    path = Path(checkpoint) if checkpoint else EMBEDDED / f"{spec.flag}.safetensors"
    if not path.is_file():
        raise DataError(f"{path}: no such file, expected a checkpoint of {name}")
    return restore_model(spec, load_checkpoint(path), path).eval().to(map_location, MODEL_MATH[model_math])
