"""A small WaveGlow whose every weight matters: nothing is zero, and no mixing matrix is a rotation."""

import pytest
import torch
from torch import Tensor

from waveglow.model import WaveGlow

SMALL = {
    "n_mel_channels": 3, "n_flows": 5, "n_group": 8, "n_early_every": 2, "n_early_size": 2, "hop_length": 16,
    "upsample_kernel_size": 64, "WN_config": {"n_layers": 3, "kernel_size": 3, "n_channels": 6},
}  # fmt: skip


def speech(
    n_frames: int, batch: int = 2, dtype: torch.dtype = torch.float64, n_mels: int = 3, hop: int = 16
) -> tuple[Tensor, Tensor]:
    """Mels and as much audio, by default for the small model; the same at every call."""
    generator = torch.Generator().manual_seed(1)
    mels = torch.randn(batch, n_mels, n_frames, generator=generator, dtype=torch.float64)
    audio = 0.3 * torch.randn(batch, hop * n_frames, generator=generator, dtype=torch.float64)
    return mels.to(dtype), audio.to(dtype)


@pytest.fixture
def small_model():
    """small_model(dtype, seed, **config) -> WaveGlow in evaluation mode."""

    def build(dtype: torch.dtype = torch.float64, seed: int = 0, **config) -> WaveGlow:
        torch.manual_seed(seed)
        model = WaveGlow(**{**SMALL, **config})
        with torch.no_grad():
            for wn, convinv in zip(model.WN, model.convinv):
                wn.end.weight.normal_(std=0.2)
                wn.end.bias.normal_(std=0.1)
                convinv.conv.weight.add_(0.2 * torch.randn_like(convinv.conv.weight))
        return model.to(dtype).eval()

    return build
