"""Precision, seeds and the order of items of vocoders."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from common.audio.audio_processing import griffin_lim
from common.audio.stft import AudioConfig, TacotronSTFT
from common.inference.vocoders import GriffinLimVocoder, LoadedModel, NeuralVocoder, limit, predict_peak
from common.spec import VocoderInference
from tests.common.inference.test_stages import CPU, SILENCE, exhaust


class Product(nn.Module):
    """Samples that are a product of the frame's mels, the same for a hop of 256."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 1.3, 4)[None])

    def infer(self, mels: Tensor, sigma: float) -> Tensor:
        return (self.weight @ mels)[:, 0].repeat_interleave(256, dim=1)


def test_a_model_runs_in_the_precision_of_the_vocoder() -> None:
    spec = argparse.Namespace(flag="product", inference=VocoderInference(denoiser=lambda model, audio: None))
    mels, lengths = torch.randn(1, 4, 9), torch.tensor([8])
    for half in (None, torch.bfloat16):
        vocode = NeuralVocoder(LoadedModel(spec, Product(), {}), AudioConfig(), CPU, False, 1.0, 0.0)  # type: ignore[arg-type]
        vocode.half = half  # --half takes bfloat16 on some CPUs only
        dtype = half or torch.float32
        wanted = (Product().weight.to(dtype) @ mels.to(dtype))[0, 0].repeat_interleave(256).float()
        audio, numbers = vocode(mels, lengths)
        assert numbers["denoiser_latency"] == 0
        parts, _ = exhaust(vocode.stream(mels, lengths))
        assert audio.dtype == parts[0].dtype == torch.float32
        assert torch.equal(audio[0, : 8 * 256], wanted[: 8 * 256])
        assert torch.equal(torch.cat(parts), wanted[: 8 * 256])
    exact = (Product().weight @ mels)[0, 0].repeat_interleave(256)
    assert not torch.equal(wanted, exact)  # the two precisions differ


def test_griffin_lim_begins_with_the_phases_of_its_seed() -> None:
    mels, config = torch.randn(1, 4, 12) - 4, AudioConfig(n_mel_channels=4)
    other = GriffinLimVocoder(config, CPU, seed=3).with_settings(8, 0.5, 0.1)
    stft = TacotronSTFT.from_config(config)
    clip = torch.cat((mels, torch.full((1, 4, 1), SILENCE)), dim=2)  # 13 frames make 12 hops
    for seed in (8, 3):
        wanted = griffin_lim(clip, stft, generator=torch.Generator().manual_seed(seed))[0]
        wanted = limit(wanted, predict_peak(clip, stft))
        assert torch.equal(other(mels, torch.tensor([12]))[0][0], wanted) == (seed == 8)
        parts, _ = exhaust(other.stream(mels, torch.tensor([12])))
        assert torch.allclose(torch.cat(parts), wanted, atol=1e-6) == (seed == 8)
