"""Recurrences over all steps of a batch with a backward written by hand: what autograd would do, at a fraction of its cost.

Three things make the difference to a loop of modules: buffers for all steps are allocated once; the derivatives of all
activations are computed for all steps together; and each weight's gradient is one GEMM over all steps at the end, where autograd
would do a small GEMM and an addition into a large matrix at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from common.sound.packed import packed

# B batch, T steps, H hidden size, I input size


def compute_dtype(x: Tensor) -> torch.dtype:
    """What matrix products of x are computed in: autocast's type where it is on, else x's own."""
    return torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype


def tanh_(x: Tensor) -> Tensor:
    """Hyperbolic tangent in place; on a CPU as 2·sigmoid(2x) - 1, to rounding, because its tanh takes seven times its sigmoid."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if x.device.type == "cpu" else x.tanh_()


class LSTMTape:
    """An LSTM's gates and cells over T steps, written forward and then read backward (Hochreiter and Schmidhuber 1997).

    `gates` (T, B, 4H) starts as the part of the pre-activations that is known before the loop, in PyTorch's order input, forget,
    cell, output, and becomes the activations. At least float32.
    """

    def __init__(self, gates: Tensor) -> None:
        steps, batch, width = gates.shape
        self.gates = gates
        self.cells = gates.new_zeros(steps + 1, batch, width // 4)
        self.tanh_cells = gates.new_empty(steps, batch, width // 4)

    def forward(self, t: int, recurrent: Tensor, out: Tensor) -> None:
        """Step t: add the recurrent part (B, 4H) of the pre-activations, and write the hidden state (B, H) to out."""
        gates = self.gates[t].add_(recurrent)
        i_f, g, o = gates.tensor_split((gates.shape[1] // 2, gates.shape[1] // 4 * 3), dim=1)
        i, f = i_f.sigmoid_().chunk(2, dim=1)
        cell = torch.mul(f, self.cells[t], out=self.cells[t + 1]).addcmul_(i, tanh_(g))
        torch.mul(o.sigmoid_(), tanh_(self.tanh_cells[t].copy_(cell)), out=out)

    def start_backward(self) -> None:
        """Derivatives of all steps: of the cell by the hidden state, and of the pre-activations by what reaches them."""
        i, f, g, o = self.gates.chunk(4, dim=2)
        self.forget = f
        self.by_hidden = o * (1 - self.tanh_cells.square())
        derivatives = (
            g * i * (1 - i),
            self.cells[:-1] * f * (1 - f),
            i * (1 - g.square()),
            self.tanh_cells * o * (1 - o),
        )
        self.by_cell = torch.stack(derivatives[:3], dim=2)  # (T, B, 3, H)
        self.by_output = derivatives[3]
        self.d_cell = torch.zeros_like(self.cells[0])

    def backward(self, t: int, d_hidden: Tensor, out: Tensor) -> None:
        """Step t: the gradient (B, H) of the hidden state -> that of the pre-activations, into out (B, 4H)."""
        self.d_cell.addcmul_(d_hidden, self.by_hidden[t])
        parts = out.view(out.shape[0], 4, -1)
        torch.mul(self.d_cell[:, None], self.by_cell[t], out=parts[:, :3])
        torch.mul(d_hidden, self.by_output[t], out=parts[:, 3])
        self.d_cell.mul_(self.forget[t])


class LSTMSequence(torch.autograd.Function):
    """An LSTM from zeros over its input's share of the pre-activations; see lstm_sequence."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight_hh: Tensor, mask: Tensor | None) -> Tensor:
        dtype = compute_dtype(weight_hh)
        tape = LSTMTape(gates.to(weight_hh.dtype, copy=True))
        weight = weight_hh.to(dtype)
        hidden = tape.cells.new_empty(tape.tanh_cells.shape)
        inputs = torch.zeros_like(tape.cells, dtype=dtype)  # hidden states as the next step sees them
        recurrent = packed(weight, gates.shape[1])
        for t in range(len(gates)):
            tape.forward(t, recurrent(inputs[t]), out=hidden[t])
            if mask is not None:
                hidden[t].mul_(mask[t])
            inputs[t + 1].copy_(hidden[t])
        ctx.tape, ctx.inputs, ctx.weight, ctx.mask = tape, inputs, weight, mask
        ctx.dtypes = gates.dtype, weight_hh.dtype
        return hidden

    @staticmethod
    def backward(ctx: Any, d_hidden: Tensor) -> tuple[Tensor, Tensor, None]:
        tape, weight = ctx.tape, ctx.weight
        tape.start_backward()
        d_gates = torch.empty_like(tape.gates)
        d_next, back = torch.zeros_like(tape.d_cell), packed(weight.t(), d_gates.shape[1])
        for t in range(len(d_gates) - 1, -1, -1):
            d_state = d_next + d_hidden[t]
            if ctx.mask is not None:
                d_state.mul_(ctx.mask[t])
            tape.backward(t, d_state, out=d_gates[t])
            d_next = back(d_gates[t].to(weight.dtype))
        flat = d_gates.flatten(0, 1).to(weight.dtype)
        d_weight = flat.t() @ ctx.inputs[:-1].flatten(0, 1)
        return d_gates.to(ctx.dtypes[0]), d_weight.to(ctx.dtypes[1]), None


def dropout_mask(like: Tensor, shape: tuple[int, ...], p: float, training: bool) -> Tensor | None:
    """A mask of zeros and 1 / (1 - p), drawn for all steps at once; None where nothing is dropped."""
    if not training or p == 0:
        return None
    return (torch.rand(shape, dtype=like.dtype, device=like.device) >= p).to(like.dtype).div_(1 - p)


def lstm_sequence(gates: Tensor, weight_hh: Tensor, p_dropout: float, training: bool) -> Tensor:
    """Run an LSTM from zeros over input pre-activations (T, B, 4H); dropout falls on the hidden state the next step sees.

    Returns the hidden states (T, B, H), after dropout.
    """
    mask = dropout_mask(weight_hh, (*gates.shape[:2], weight_hh.shape[1]), p_dropout, training)
    return LSTMSequence.apply(gates, weight_hh, mask)
