"""WaveGlow's loss: the negative log-likelihood of audio under the flow, per sample and without its constant."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common.layers import at_least_float32
from common.options import POSITIVE, check_fields, option
from waveglow.model import WaveGlowOutput


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """Settings of the loss.

    Raises:
        UsageError: a sigma that is not positive.
    """

    sigma: float = option(1.0, "standard deviation of the latent Gaussian", check=POSITIVE)

    def __post_init__(self) -> None:
        check_fields(self)


class WaveGlowLoss(nn.Module):
    """(sum z^2 / (2 sigma^2) - sum log s - sum log|det W|) / numel(z) (Prenger et al., 2018, arXiv:1811.00002, eq. 3).

    Raises:
        UsageError: a sigma that is not positive.
    """

    def __init__(self, sigma: float = LossConfig.sigma) -> None:
        super().__init__()
        self.sigma = LossConfig(sigma=sigma).sigma

    def terms(self, outputs: WaveGlowOutput, audio: Tensor | None = None, iteration: int = 0) -> dict[str, Tensor]:
        """The loss as named terms, scalars, at least float32; it ignores audio and iteration."""
        outputs = WaveGlowOutput(*outputs)
        z = at_least_float32(outputs.z)
        log_s = torch.stack([at_least_float32(log_s).sum() for log_s in outputs.log_s_list]).sum()
        log_det_W = torch.stack([at_least_float32(log_det) for log_det in outputs.log_det_W_list]).sum()
        return {
            "likelihood": z.square().sum() / (2 * self.sigma**2 * z.numel()),
            "log_s": -log_s / z.numel(),
            "log_det_W": -log_det_W / z.numel(),
        }

    def forward(self, outputs: WaveGlowOutput, audio: Tensor | None = None, iteration: int = 0) -> Tensor:
        """The loss, a scalar."""
        return torch.stack(list(self.terms(outputs, audio, iteration).values())).sum()
