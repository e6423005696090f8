"""Upsampling and WN's condition layers as one product: both are linear, and nothing is between them.

The transposed convolution makes hop_length samples of each window of frames that reach them. As a product it has a weight for each
group of a frame, and a condition layer's weight times that one is all that a layer needs to hear mels themselves: of the published
sizes 320 numbers a group instead of 640, for 32 times the weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# B batch, M mels, T frames, U channels of upsampled mels, P groups of a frame, g samples of a group, K frames of a window


class Upsampling(NamedTuple):
    """A transposed convolution as a product: weight (P, U * g, K * M) of a window, the same bias (U * g,) for all groups.

    The weight is in the dtype that it is to be multiplied in, the bias in the convolution's.
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, upsample: nn.ConvTranspose1d, n_group: int, dtype: torch.dtype) -> Upsampling:
        """The product that does what `upsample` does; its stride is a multiple of n_group."""
        assert upsample.bias is not None
        hop_length, n_frames = upsample.stride[0], frames_of(upsample)
        weight = F.pad(upsample.weight, (0, n_frames * hop_length - upsample.weight.shape[2]))
        weight = weight.unflatten(2, (n_frames, -1, n_group)).flip(
            2
        )  # (M, U, K, P, g): the oldest frame has the last taps
        weight = weight.permute(3, 1, 4, 2, 0).flatten(3).flatten(1, 2)
        return cls(weight.to(dtype), upsample.bias.repeat_interleave(n_group))

    def before(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """A condition layer's weight (O, U * g) and bias (O,) -> those of both: (P * O, K * M) and (O,)."""
        composed = (weight.to(self.weight.dtype) @ self.weight).flatten(0, 1)
        return composed.to(weight.dtype), bias + weight @ self.bias


def frames_of(upsample: nn.ConvTranspose1d) -> int:
    """K, how many frames a sample hears at most."""
    return math.ceil(upsample.kernel_size[0] / upsample.stride[0])


def windows(mels: Tensor, n_frames: int) -> Tensor:
    """Mels (B, M, T) -> each frame with the K - 1 before it, which are 0 before the first: (B, T, K * M), the oldest first."""
    return F.pad(mels, (n_frames - 1, 0)).unfold(2, n_frames, 1).permute(0, 2, 3, 1).flatten(2)
