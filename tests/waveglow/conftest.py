"""A small WaveGlow whose every weight matters: nothing is zero, and no mixing matrix is a rotation."""

import pytest
import torch

from waveglow.model import WaveGlow

SMALL = {
    "n_mel_channels": 3, "n_flows": 5, "n_group": 8, "n_early_every": 2, "n_early_size": 2, "hop_length": 16,
    "upsample_kernel_size": 64, "WN_config": {"n_layers": 3, "kernel_size": 3, "n_channels": 6},
}  # fmt: skip


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
