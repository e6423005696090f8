"""The loss of the pitch network: cross entropy of the pitch in voiced frames, and of voicing in all."""

# B batch, P pitches, T frames

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 0.8  # standard deviation of the target around the true pitch, in pitches


class PitchTargets(NamedTuple):
    """The true pitch as a place among the network's pitches, and voicing (True where there is a pitch), (B, T) each."""

    places: Tensor
    voiced: Tensor


class PitchLoss(nn.Module):
    """Cross entropy with a Gaussian around the true pitch, and binary cross entropy of voicing; each a mean over its frames."""

    def terms(self, outputs: Tensor, targets: PitchTargets, iteration: int = 0) -> dict[str, Tensor]:
        """The loss as named terms, scalars, of logits (B, P + 1, T)."""
        logits = outputs.float()
        order = torch.arange(logits.shape[1] - 1, device=logits.device)[:, None]
        wanted = torch.softmax(-0.5 * ((order - targets.places[:, None]) / WIDTH).square(), dim=1)
        entropy = -(wanted * logits[:, :-1].log_softmax(1)).sum(1)
        pitch = (entropy * targets.voiced).sum() / targets.voiced.sum().clamp(min=1)
        return {"pitch": pitch, "voicing": F.binary_cross_entropy_with_logits(logits[:, -1], targets.voiced.float())}

    def forward(self, outputs: Tensor, targets: PitchTargets, iteration: int = 0) -> Tensor:
        """The loss, a scalar."""
        return torch.stack(list(self.terms(outputs, targets, iteration).values())).sum()
