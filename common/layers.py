"""Layers that more than one model could use: initialised linear and convolution, masked BatchNorm, LSTM recurrences.

The recurrences split what depends on the previous step from what does not: whatever is known for all steps is one GEMM before
the loop, and every weight gradient is one GEMM after it (`DeferredProduct`) instead of one small GEMM and one addition a step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# B batch, T steps, C channels, I input size, O output size, H hidden size


def length_mask(lengths: Tensor, size: int) -> Tensor:
    """True at positions inside each sequence: lengths (B,) -> bool (B, size)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def at_least_float32(x: Tensor) -> Tensor:
    """x itself in float32 or float64, half precision widened: for what overflows or loses too much in half."""
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
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
            self.num_batches_tracked += 1  # type: ignore[operator]
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
        for (conv, norm), gain in zip(self.convolutions, self.gains, strict=True):  # type: ignore[misc]
            x = F.dropout(activations[gain](norm(conv(x), mask)), self.p_dropout, self.training)
            if mask is not None:
                x = x * mask
        return x


class _DeferredGrad(torch.autograd.Function):
    """Identity on the additive parts of a loop's products; its backward gives the shared factor its gradient, all steps at once."""

    @staticmethod
    def forward(ctx, addends: Tensor, factor: Tensor, product: str, inputs: list[Tensor]) -> Tensor:  # type: ignore[override]
        ctx.product, ctx.inputs, ctx.dtype = product, inputs, factor.dtype
        return addends.view_as(addends)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        inputs = torch.stack(ctx.inputs).to(grad.dtype)
        return grad, torch.einsum(ctx.product, grad, inputs).to(ctx.dtype), None, None


class DeferredProduct:
    """y_t = addend_t + factor · x_t for the T steps of a loop, with the factor's gradient as one GEMM at the end.

    Each step multiplies by the detached factor. As y_t's gradient equals addend_t's, the addends' backward, which runs once all
    steps have run theirs, holds every y_t's gradient; the factor's is their product with the stacked x_t. Without this the
    backward of a loop spends most of its time on T small GEMMs and T additions into a large matrix.
    """

    def __init__(self, addends: Tensor, factor: Tensor, batched: bool = False) -> None:
        """addends (T, B, O); factor (O, I), or one for each item (B, I, O) when batched."""
        self.inputs: list[Tensor] = []
        self.batched = batched
        product = "tbo,tbi->bio" if batched else "tbo,tbi->oi"
        self.addends = iter(_DeferredGrad.apply(addends, factor, product, self.inputs).unbind(0))
        # In the products' dtype: autocast would convert a detached factor anew, and keep the copy for backward, at each step.
        self.factor = factor.detach().to(addends.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """The next step's y (B, O) for its x (B, I)."""
        self.inputs.append(x.detach())
        if self.batched:
            return torch.baddbmm(next(self.addends)[:, None], x[:, None], self.factor)[:, 0]
        return next(self.addends) + F.linear(x, self.factor)


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
        return LSTMState(F.dropout(self.hidden, p, training), self.cell)


def lstm_update(gates: Tensor, cell: Tensor) -> LSTMState:
    """One LSTM step from its pre-activations (B, 4H), in PyTorch's order input, forget, cell, output (Hochreiter 1997)."""
    i, f, g, o = gates.chunk(4, dim=1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return LSTMState(torch.sigmoid(o) * torch.tanh(cell), cell)


def lstm_sequence(gates: Tensor, weight_hh: Tensor, p_dropout: float, training: bool) -> Tensor:
    """Run an LSTM from zeros over input pre-activations (T, B, 4H); dropout falls on the hidden state the next step sees.

    Returns the hidden states (T, B, H), after dropout.
    """
    recurrent = DeferredProduct(gates, weight_hh)
    state = LSTMState.zeros(gates, weight_hh.shape[1])
    outputs = []
    for _ in range(len(gates)):
        state = lstm_update(recurrent(state.hidden), state.cell).dropout(p_dropout, training)
        outputs.append(state.hidden)
    return torch.stack(outputs)
