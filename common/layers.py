"""Layers of the plain models: linear and convolution with Xavier weights, masked BatchNorm, a bidirectional LSTM over clips."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.stft import TacotronSTFT as TacotronSTFT  # where the published recipe has it

# B batch, T steps, C channels, I input channels, O output channels, H hidden size


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """True at positions inside each sequence: lengths (B,) -> bool (B, size)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def at_least_float32(x: Tensor) -> Tensor:
    """Widen half precision to float32; return float32 and float64 as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


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
        mean, variance = self.running_mean, self.running_var
        momentum = self.momentum
        assert mean is not None and variance is not None and momentum is not None
        if self.training:
            self.num_batches_tracked.add_(1)  # type: ignore[union-attr]
        if mask is None or not self.training:
            return F.batch_norm(x, mean, variance, self.weight, self.bias, self.training, momentum, self.eps)
        dtype, x = x.dtype, x.to(mean.dtype)  # half precision cannot hold sums over a batch
        inside = mask.to(x.dtype)
        count = inside.sum()
        batch_mean = (x * inside).sum((0, 2)) / count
        batch_variance = ((x - batch_mean[:, None]).square() * inside).sum((0, 2)) / count
        with torch.no_grad():
            mean.lerp_(batch_mean, momentum)
            variance.lerp_(batch_variance * count / (count - 1).clamp(min=1), momentum)
        scale = self.weight * (batch_variance + self.eps).rsqrt()
        return (x * scale[:, None] + (self.bias - batch_mean * scale)[:, None]).to(dtype)


class ConvStack(nn.Module):
    """[convolution, BatchNorm, activation, dropout] layers; the parameters' names are convolutions.{i}.0.conv and .{i}.1."""

    def __init__(self, dims: list[int], kernel_size: int, gains: list[str], p_dropout: float) -> None:
        super().__init__()
        self.gains = gains  # of each layer's activation: relu, tanh or linear
        self.p_dropout = p_dropout
        self.convolutions = nn.ModuleList(
            nn.Sequential(ConvNorm(i, o, kernel_size, gain=gain), MaskedBatchNorm1d(o))
            for i, o, gain in zip(dims, dims[1:], gains, strict=False)
        )

    def convolve(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, C0, T) -> (B, Cn, T). With mask (B, 1, T) the result inside a sequence does not depend on its padding."""
        if mask is not None:
            x = x * mask
        for i, layer in enumerate(self.convolutions):
            x = layer[1](layer[0](x), mask)  # type: ignore[index]
            if self.gains[i] == "relu":
                x = torch.relu(x)
            elif self.gains[i] == "tanh":
                x = torch.tanh(x)
            x = F.dropout(x, self.p_dropout, self.training)
            if mask is not None:
                x = x * mask
        return x


def flatten_lstms(model: nn.Module) -> None:
    """Lay out each LSTM's weights in one block, as cuDNN needs them: those of a copied model are scattered, and cuDNN warns."""
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()


def bidirectional_lstm(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """x (B, T, I), lengths (B,) -> both directions' hidden states (B, T, 2H), zero past each length, for torch.export.

    PyTorch's exporter takes neither packed sequences nor an LSTM over a dynamic length, but it takes a loop.
    """
    steps = torch.arange(x.shape[1], device=x.device)
    inside = steps < lengths[:, None]
    order = torch.where(inside, lengths[:, None] - 1 - steps, steps)  # reverses each sequence within its length
    reverse = x.gather(1, order[:, :, None].expand_as(x))
    forward, backward = (
        _run_lstm(
            inputs,
            *(getattr(lstm, f"{name}_l0{direction}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        )
        for inputs, direction in ((x, ""), (reverse, "_reverse"))
    )
    backward = backward.gather(1, order[:, :, None].expand_as(backward))
    return torch.cat((forward, backward), dim=2) * inside[:, :, None]


def _run_lstm(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> Tensor:
    """x (B, T, I) -> hidden states (B, T, H) of an LSTM from zeros (Hochreiter and Schmidhuber 1997)."""
    inputs = F.linear(x, weight_ih, bias_ih + bias_hh)

    def inside(t: Tensor, hidden: Tensor, cell: Tensor, outputs: Tensor) -> Tensor:
        return t < x.shape[1]

    def step(t: Tensor, hidden: Tensor, cell: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        gates = inputs.index_select(1, t[None])[:, 0] + F.linear(hidden, weight_hh)
        i, f, g, o = gates.chunk(4, dim=1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        return t + 1, hidden, cell, outputs.index_copy(1, t[None], hidden[:, None])

    hidden = x.new_zeros(x.shape[0], weight_hh.shape[1])
    start = torch.zeros((), dtype=torch.int64, device=x.device)
    outputs = x.new_zeros(x.shape[0], x.shape[1], weight_hh.shape[1])
    return torch.while_loop(inside, step, (start, hidden, hidden.clone(), outputs))[3]
