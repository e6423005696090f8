"""Upsampling as a matrix product: oneDNN takes seconds for the first transposed convolution of each length."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from waveglow.model import Upsample

# B batch, M mels, T frames, U channels of upsampled mels, K frames within the kernel's length
# g samples of a group, G groups, s samples of a part, the longest that divides both a group and a frame, P parts of a frame


class UpsampleProduct(nn.Module):
    """A plain Upsample for inference: a frame and the K - 1 before it, times a weight for all samples of the frame.

    The product is computed in the plain module's dtype; the condition is returned in `dtype`.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, upsample: Upsample, dtype: torch.dtype) -> None:
        super().__init__()
        self.n_group, self.dtype = upsample.n_group, dtype
        assert upsample.bias is not None
        self.size = math.gcd(upsample.hop_length, upsample.n_group)
        kernel, hop_length = upsample.weight.detach(), upsample.hop_length  # (M, U, kernel size)
        self.n_channels, self.n_frames = kernel.shape[1], math.ceil(kernel.shape[2] / hop_length)
        taps = F.pad(kernel, (0, self.n_frames * hop_length - kernel.shape[2])).unflatten(
            2, (self.n_frames, -1, self.size)
        )
        # (P * U * s, K * M): the oldest frame first, which meets the last taps
        weight = taps.flip(2).permute(3, 1, 4, 2, 0).flatten(3).flatten(0, 2)
        bias = upsample.bias.detach().repeat_interleave(self.size).repeat(hop_length // self.size)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, mels: Tensor, n_groups: int) -> Tensor:
        """Mels (B, M, T) -> the condition (B, U * g, G), G at most the whole groups of T frames; channels innermost in memory."""
        mels = mels.to(self.weight.dtype)
        windows = F.pad(mels, (self.n_frames - 1, 0)).unfold(2, self.n_frames, 1).permute(0, 2, 3, 1).flatten(2)
        with torch.autocast("cpu", enabled=False):  # half precision is slower here on a CPU
            upsampled = F.linear(windows, self.weight, self.bias)  # (B, T, P * U * s)
        per_group = self.n_group // self.size
        parts = upsampled.view(len(mels), -1, self.n_channels, self.size)[:, : n_groups * per_group]
        groups = parts.to(self.dtype).unflatten(1, (n_groups, per_group))
        return groups.transpose(2, 3).flatten(2).transpose(1, 2)
