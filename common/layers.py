"""Layers that more than one model could use: initialised linear and convolution, masked BatchNorm, dropout, LSTM state."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# B batch, T steps, C channels, I input channels, O output channels, H hidden size


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """True at positions inside each sequence: lengths (B,) -> bool (B, size)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def at_least_float32(x: Tensor) -> Tensor:
    """x itself in float32 or float64, half precision widened: for what overflows or loses too much in half."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def kept(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """True for what dropout keeps, each number on its own with probability 1 - p; a CPU takes p to the nearest 1/65536.

    There four numbers share one random draw of 64 bits: uniform floats take three times as long, and Bernoulli's generator nine.
    """
    if device.type != "cpu":
        return torch.rand(shape, device=device) >= p
    count = math.prod(shape)
    levels = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    return levels[:count].view(shape) >= min(round(p * 2**16), 2**16 - 1) - 2**15


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """F.dropout; faster on a CPU, see kept."""
    if not training or p == 0 or x.device.type != "cpu":
        return F.dropout(x, p, training)
    return x * (kept(x.shape, p, x.device) * (1 / (1 - p))).to(x.dtype)


class LinearNorm(nn.Module):
    """Linear layer with Xavier-uniform weights scaled by the gain of what follows (Glorot and Bengio 2010)."""

    def __init__(self, in_dim: int, out_dim: int, bias: bool = True, gain: str = "linear") -> None:
        super().__init__()
        self.linear_layer = nn.Linear(in_dim, out_dim, bias=bias)
        nn.init.xavier_uniform_(self.linear_layer.weight, gain=nn.init.calculate_gain(gain))  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """(…, I) -> (…, O)."""
        return self.linear_layer(x)


class ConvNorm(nn.Module):
    """Same-length 1-d convolution with Xavier-uniform weights scaled by the gain of what follows."""

    def __init__(self, in_dim: int, out_dim: int, kernel_size: int, bias: bool = True, gain: str = "linear") -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_dim, out_dim, kernel_size, padding=(kernel_size - 1) // 2, bias=bias)
        nn.init.xavier_uniform_(self.conv.weight, gain=nn.init.calculate_gain(gain))  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """(B, I, T) -> (B, O, T)."""
        return self.conv(x)


class MaskedBatchNorm1d(nn.BatchNorm1d):
    """BatchNorm1d whose batch statistics leave out padding when a mask is given."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise x (B, C, T); mask (B, 1, T) is True inside the sequences."""
        if mask is None or not self.training:
            return super().forward(x)
        dtype, x = x.dtype, at_least_float32(x)  # sums over a batch are beyond half precision
        count = mask.sum()
        inside = mask.to(x.dtype)
        mean = (x * inside).sum((0, 2)) / count
        variance = ((x - mean[:, None]).square() * inside).sum((0, 2)) / count
        with torch.no_grad():
            momentum = self.momentum or 0.1
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)  # type: ignore[union-attr]
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)  # type: ignore[union-attr]
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        scale = self.weight * (variance + self.eps).rsqrt()
        return (x * scale[:, None] + (self.bias - mean * scale)[:, None]).to(dtype)


class ConvStack(nn.Module):
    """[convolution, BatchNorm, activation, dropout] layers; the parameters' names are convolutions.{i}.0.conv and .{i}.1."""

    def __init__(self, dims: list[int], kernel_size: int, gains: list[str], p_dropout: float) -> None:
        super().__init__()
        self.gains = gains
        self.p_dropout = p_dropout
        self.convolutions = nn.ModuleList(
            nn.Sequential(ConvNorm(i, o, kernel_size, gain=gain), MaskedBatchNorm1d(o))
            for i, o, gain in zip(dims, dims[1:], gains, strict=False)
        )

    def convolve(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, C0, T) -> (B, Cn, T). With mask (B, 1, T) the result inside a sequence does not depend on its padding."""
        activations = {"relu": torch.relu, "tanh": torch.tanh, "linear": lambda y: y}
        if mask is not None:
            x = x * mask
        for layer, gain in zip(self.convolutions, self.gains, strict=True):
            x = layer[1](layer[0](x), mask)  # type: ignore[index]
            x = dropout(activations[gain](x), self.p_dropout, self.training)
            if mask is not None:
                x = x * mask
        return x


class LSTMState(NamedTuple):
    """What an LSTM carries from step to step: hidden and cell (B, H)."""

    hidden: Tensor
    cell: Tensor

    @classmethod
    def zeros(cls, like: Tensor, hidden_dim: int) -> LSTMState:
        """The state before the first step; at least float32, so that the cell keeps its precision under autocast."""
        zeros = at_least_float32(like).new_zeros(like.shape[-2], hidden_dim)
        return cls(zeros, zeros)

    def dropout(self, p: float, training: bool) -> LSTMState:
        """Dropout on the hidden state alone: the cell is the memory."""
        return LSTMState(dropout(self.hidden, p, training), self.cell)
