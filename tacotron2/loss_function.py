"""Tacotron 2's criterion: mel errors before and after the postnet, the stop gate, and optionally guided attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.layers import at_least_float32, length_mask
from common.options import POSITIVE, Check, check_fields, option
from tacotron2.model import Tacotron2Output

# B batch, S symbols, T frames, M mels, K decoder steps


@dataclass(frozen=True, kw_only=True)
class Tacotron2LossConfig:
    """Options of the criterion. Raises UsageError for values out of range, each by its flag."""

    mask_padding: bool = False  # this one and the next are flags of the model
    n_frames_per_step: int = 1
    guided_attention_weight: float = option(
        0.0,
        "weight of the guided attention loss, which penalises attention far from the diagonal; about 100 helps with little "
        "data; 0: off",
        metavar="W",
        check=Check(lambda weight: weight >= 0, "0 or more"),
    )
    guided_attention_sigma: float = option(
        0.4, "width of the diagonal band, as a share of the clip", metavar="S", check=POSITIVE
    )
    guided_attention_decay: float = option(
        1.0,
        "factor on the weight of guided attention after each iteration; 1: constant",
        metavar="D",
        check=Check(lambda decay: 0 < decay <= 1, "a factor in (0, 1]"),
    )

    def __post_init__(self) -> None:
        check_fields(self)


class Tacotron2Targets(NamedTuple):
    """Mels (B, M, T), gates (B, T) and lengths (B,); only masking and guided attention need the lengths."""

    mels: Tensor
    gates: Tensor
    mel_lengths: Tensor | None = None
    text_lengths: Tensor | None = None


def guided_attention(alignments: Tensor, text_lengths: Tensor, step_lengths: Tensor, sigma: float) -> Tensor:
    """Mean of attention off the diagonal: 1 - exp(-(s/S - k/K)² / 2σ²) over each item's own S x K (Tachibana et al. 2018, eq. 8).

    alignments (B, K, S), text_lengths (B,), step_lengths (B,) -> scalar.
    """
    _, steps, symbols = alignments.shape
    step_place = torch.arange(steps, device=alignments.device) / step_lengths[:, None]
    symbol_place = torch.arange(symbols, device=alignments.device) / text_lengths[:, None]
    distance = (step_place[:, :, None] - symbol_place[:, None, :]).square()
    penalty = 1 - torch.exp(-distance / (2 * sigma**2))
    inside = length_mask(step_lengths, steps)[:, :, None] & length_mask(text_lengths, symbols)[:, None, :]
    return (at_least_float32(alignments) * penalty * inside).sum() / inside.sum()


class Tacotron2Loss(nn.Module):
    """Sum of MSE(frames), MSE(frames + postnet) and BCE(gate): means over the padded batch, or with masking over real frames."""

    def __init__(self, config: Tacotron2LossConfig | None = None) -> None:
        super().__init__()
        self.config = config or Tacotron2LossConfig()

    def terms(self, outputs: Tacotron2Output, targets: tuple[Tensor, ...], iteration: int = 0) -> dict[str, Tensor]:
        """Terms of the loss by name. Guided attention is a term of training only; its weight decays each iteration."""
        outputs, target = Tacotron2Output(*outputs), Tacotron2Targets(*targets)
        mask = None
        if self.config.mask_padding and target.mel_lengths is not None:
            mask = length_mask(target.mel_lengths, target.mels.shape[2])
        terms = {
            "mel": _mean_square(outputs.mel_outputs, target.mels, mask),
            "mel_postnet": _mean_square(outputs.mel_outputs_postnet, target.mels, mask),
            "gate": _gate_loss(outputs.gate_outputs, target.gates, mask),
        }
        weight = self.config.guided_attention_weight * self.config.guided_attention_decay**iteration
        if self.training and weight > 0 and target.mel_lengths is not None and target.text_lengths is not None:
            r = self.config.n_frames_per_step
            steps = (target.mel_lengths + r - 1) // r
            penalty = guided_attention(
                outputs.alignments, target.text_lengths, steps, self.config.guided_attention_sigma
            )
            terms["guided_attention"] = weight * penalty
        return terms

    def forward(self, outputs: Tacotron2Output, targets: tuple[Tensor, ...], iteration: int = 0) -> Tensor:
        """The scalar to minimise: outputs of Tacotron2, targets as Tacotron2Targets."""
        return torch.stack(list(self.terms(outputs, targets, iteration).values())).sum()


def _mean_square(mels: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Float32 mean over (B, M, T), or over the frames where mask (B, T) is True."""
    if mask is None:
        return F.mse_loss(at_least_float32(mels), at_least_float32(target))
    error = (at_least_float32(mels) - at_least_float32(target)).square().mean(dim=1)
    return (error * mask).sum() / mask.sum()


def _gate_loss(gates: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return F.binary_cross_entropy_with_logits(at_least_float32(gates), at_least_float32(target))
    error = F.binary_cross_entropy_with_logits(at_least_float32(gates), at_least_float32(target), reduction="none")
    return (error * mask).sum() / mask.sum()
