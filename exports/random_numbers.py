"""Random numbers that a graph computes from a seed with integer arithmetic, identically in every runtime.

ONNX's own random operators take their seed when the graph is built. Here each number is a hash of its seed and its position, so the
numbers of an item do not depend on other items. The hash multiplies and folds 32 bits, as in M. O'Neill, "PCG", 2014, and in
C. Wellons's search for integer hashes, "hash-prospector", 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# B batch, P prenet size, T frames, N samples, g samples in a group, G groups

BITS = 2**32
MULTIPLIERS = 0x7FEB352D, 0x45D9F3B  # below 2^31, so that products of 32 bits stay within int64
DROPOUT, RADIUS, ANGLE = 1, 2, 3  # streams of a seed


def mix(x: Tensor) -> Tensor:
    """Hash 32-bit integers, stored as int64; a permutation."""
    for multiplier in MULTIPLIERS:
        x = x ^ (x >> 16)
        x = (x * multiplier).remainder(BITS)
    return x ^ (x >> 15)


def uniform(seeds: Tensor, stream: int, places: Tensor) -> Tensor:
    """float32 numbers in (0, 1] of a stream, for seeds and places: int64, of shapes that broadcast."""
    key = mix(mix(seeds.remainder(BITS)) ^ stream)
    return (mix(mix(places) ^ key).double() + 0.5).div(BITS).float()


def normal(seeds: Tensor, places: Tensor) -> Tensor:
    """Gaussian numbers at places (Box and Muller 1958), float32."""
    radius = (-2 * uniform(seeds, RADIUS, places).log()).sqrt()
    return radius * (2 * torch.pi * uniform(seeds, ANGLE, places)).cos()


class KeepMasks(nn.Module):
    """The prenet's dropout masks at one decoder step."""

    def __init__(self, dim: int, p_dropout: float) -> None:
        super().__init__()
        self.dim, self.p_dropout = dim, p_dropout

    def forward(self, step: Tensor, seeds: Tensor) -> Tensor:
        """Step () from 0, seeds (B,) -> keep masks (2, B, P)."""
        units = torch.arange(2 * self.dim, device=seeds.device).unflatten(0, (2, 1, self.dim))
        return uniform(seeds[None, :, None], DROPOUT, step * 2 * self.dim + units) >= self.p_dropout


class WhiteNoise(nn.Module):
    """Pulse-noise's noise for mels."""

    def __init__(self, hop_length: int) -> None:
        super().__init__()
        self.hop_length = hop_length

    def forward(self, mels: Tensor, seeds: Tensor) -> Tensor:
        """Mels (B, M, T), used for their shape only, and seeds (B,) -> z (B, N), N = (T - 1) * hop_length."""
        places = torch.arange((mels.shape[2] - 1) * self.hop_length, device=seeds.device)
        return normal(seeds[:, None], places)


class Noise(nn.Module):
    """WaveGlow's noise for mels."""

    def __init__(self, n_group: int, hop_length: int) -> None:
        super().__init__()
        self.n_group, self.hop_length = n_group, hop_length

    def forward(self, mels: Tensor, seeds: Tensor) -> Tensor:
        """Mels (B, M, T), used for their shape only, and seeds (B,) -> z (B, g, G)."""
        groups = torch.arange(mels.shape[2] * self.hop_length // self.n_group, device=seeds.device)
        channels = torch.arange(self.n_group, device=seeds.device)[:, None]
        return normal(seeds[:, None, None], groups * self.n_group + channels)
