"""A small voice of random weights whose every weight matters, its checkpoints, and exports of it."""

from __future__ import annotations

import functools
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from common.inference.config import SynthesisConfig
from common.inference.vocoders import LoadedModel
from exports.targets import Source
from synthesizer import Synthesizer, default_options
from tacotron2.model import Tacotron2
from tacotron2.spec import SPEC as ACOUSTIC
from waveglow.model import WaveGlow
from waveglow.spec import SPEC as VOCODER

TACOTRON2 = {
    "n_mel_channels": 5,
    "symbols_embedding_dim": 6,
    "encoder_kernel_size": 3,
    "encoder_n_convolutions": 2,
    "encoder_embedding_dim": 8,
    "attention_rnn_dim": 7,
    "attention_dim": 4,
    "attention_location_n_filters": 3,
    "attention_location_kernel_size": 5,
    "decoder_rnn_dim": 9,
    "prenet_dim": 6,
    "max_decoder_steps": 40,
    "postnet_embedding_dim": 7,
    "postnet_n_convolutions": 3,
    "n_frames_per_step": 2,
}
WAVEGLOW = {
    "n_mel_channels": 5,
    "n_flows": 4,
    "n_early_every": 2,
    "WN_config": {"n_layers": 2, "kernel_size": 3, "n_channels": 8},
    "hop_length": 64,
    "upsample_kernel_size": 256,
}
AUDIO = {"n_mel_channels": 5, "filter_length": 256, "hop_length": 64, "win_length": 256}
PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def skip_without_packages() -> None:
    """Skip a test if a package of requirements/exports.txt is not installed."""
    for name in PACKAGES:
        if find_spec(name) is None:
            pytest.skip(f"{name}, of requirements/exports.txt, is not installed")


def acoustic_model() -> Tacotron2:
    """A Tacotron 2 whose clips end at different steps."""
    torch.manual_seed(0)
    model = Tacotron2(**TACOTRON2).eval()
    with torch.no_grad():
        for name, parameter in model.decoder.named_parameters():
            if name.startswith(("prenet", "attention")):
                parameter.mul_(1.5)  # far from uniform attention
        model.decoder.gate_layer.linear_layer.weight.mul_(8)
        model.decoder.gate_layer.linear_layer.bias.fill_(-1.63)
        for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm1d)):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(std=0.3)
            norm.running_mean.normal_(std=0.3)  # type: ignore[union-attr]
            norm.running_var.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return model


def vocoder_model(**config) -> WaveGlow:
    """A WaveGlow in which no weight is zero and no mixing matrix a rotation."""
    torch.manual_seed(1)
    model = WaveGlow(**WAVEGLOW | config).eval()
    with torch.no_grad():
        for wn, convinv in zip(model.WN, model.convinv):
            wn.end.weight.normal_(std=0.1)
            wn.end.bias.normal_(std=0.05)
            convinv.conv.weight.add_(0.1 * torch.randn_like(convinv.conv.weight))
    return model


@functools.cache
def small_source() -> Source:
    """A voice to export."""
    options = default_options() | AUDIO
    acoustic, vocoder = acoustic_model(), vocoder_model()
    config = SynthesisConfig(plain=True, denoising_strength=0.05, sigma_infer=0.7)
    loaded = LoadedModel(ACOUSTIC, acoustic, options), LoadedModel(VOCODER, vocoder, options)
    return Source(Synthesizer(*loaded, config, torch.device("cpu"), "small"), acoustic, vocoder)


@pytest.fixture(scope="session")
def export_of(tmp_path_factory):
    """export_of(target) -> the directory of the small voice's export, written once a session."""
    from exports.aotinductor import COMPILERS
    from exports.targets import WITHOUT_PACKAGES, export

    @functools.cache
    def write(target: str) -> Path:
        if target not in WITHOUT_PACKAGES:
            skip_without_packages()
        if target == "aotinductor" and not any(map(shutil.which, COMPILERS)):
            pytest.skip(f"no C++ compiler ({', '.join(COMPILERS)})")
        directory = tmp_path_factory.mktemp("export") / target
        export(target, small_source(), directory, say=lambda line: None)
        return directory

    return write


@pytest.fixture
def source() -> Source:
    return small_source()
