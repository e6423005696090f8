"""Recurrences over all steps of a batch with a hand-written backward: autograd's gradients at a fraction of the cost.

Three things differ from a loop over modules. Buffers for all steps are allocated once. The derivatives of activations are computed
for many steps together. Each weight's gradient is one GEMM over all steps at the end, where autograd does a small GEMM and an
addition into a large matrix at every step.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from common.kernels.packed import pack

# B batch, T steps, H hidden size, I input size

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
CHUNK = 16  # steps of a backward whose derivatives are computed together: so few that caches hold them


def compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products of x: autocast's where it is on, else x's own."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def tanh(x: Tensor, out: Tensor) -> Tensor:
    """Hyperbolic tangent; on a CPU as 2·sigmoid(2x) - 1, the same to rounding, as tanh takes several times as long as sigmoid."""
    return torch.mul(x, 2, out=out).sigmoid_().mul_(2).sub_(1) if x.device.type == "cpu" else torch.tanh(x, out=out)


def draw_keep_mask(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """True for each number that dropout keeps, with probability 1 - p; on a CPU p is rounded to the nearest 1/65536.

    On a CPU four numbers share one 64-bit random draw: uniform floats take three times as long, Bernoulli's generator nine times.
    """
    if device.type != "cpu":
        return torch.rand(shape, device=device) >= p
    count = math.prod(shape)
    levels = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    return levels[:count].view(shape) >= min(round(p * 2**16), 2**16 - 1) - 2**15


def dropout_mask(like: Tensor, shape: tuple[int, ...], p: float, training: bool) -> Tensor | None:
    """A mask of 0 and 1 / (1 - p) in `like`'s dtype and device, drawn for all steps at once; None without dropout."""
    if not training or p == 0:
        return None
    return draw_keep_mask(shape, p, like.device).to(like.dtype).div_(1 - p)


class LSTMTape:
    """An LSTM's gates and cells over T steps, written forward and then read backward (Hochreiter and Schmidhuber 1997).

    `gates` (T, B, 4H) starts as the inputs' part of the pre-activations, in the order input, forget, cell, output. The step
    turns them into the activations. At least float32. The cell before the first step is zero.
    """

    def __init__(self, gates: Tensor) -> None:
        steps, batch, width = gates.shape
        self.gates = gates
        self.cells = gates.new_empty(steps + 1, batch, width // 4)
        self.cells[0].zero_()
        self.tanh_cells = gates.new_empty(steps, batch, width // 4)
        # The gradient of the cell, from step to step of backward; zeros before it.
        self.d_cell = torch.empty_like(self.cells[0])
        self.parts = gates.unflatten(2, (4, -1)).unbind(2)  # (T, B, H) each
        i_f = gates[:, :, : width // 2]
        self.views = list(zip(gates, i_f, *self.parts, self.cells, self.cells[1:], self.tanh_cells, strict=False))

    def forward(self, t: int, recurrent: Tensor, out: Tensor) -> None:
        """Step t: add the recurrent part (B, 4H) of the pre-activations, and write the hidden state (B, H) to out."""
        gates, i_f, i, f, g, o, cell, next_cell, tanh_cell = self.views[t]
        _activate(gates.add_(recurrent), i_f, g, o)
        torch.mul(f, cell, out=next_cell).addcmul_(i, g)
        torch.mul(o, tanh(next_cell, out=tanh_cell), out=out)

    def backward(self, t: int, d_hidden: Tensor, out: Tensor) -> None:
        """Step t, the last one first: the gradient (B, H) of the hidden state -> that of the pre-activations, into out (B, 4H)."""
        if t == len(self.gates) - 1 or (t + 1) % CHUNK == 0:
            self._start_chunk(t)
        by_hidden, by_cell, by_output, forget = self.slopes[t % CHUNK]
        self.d_cell.addcmul_(d_hidden, by_hidden)
        parts = out.view(out.shape[0], 4, -1)
        torch.mul(self.d_cell[:, None], by_cell, out=parts[:, :3])
        torch.mul(d_hidden, by_output, out=parts[:, 3])
        self.d_cell.mul_(forget)

    def _start_chunk(self, last: int) -> None:
        """Derivatives of a chunk's steps up to its last: of the cell by the hidden state, and of pre-activations by either."""
        steps = slice(last - last % CHUNK, last + 1)
        (i, f, g, o), tanh_cells = (part[steps] for part in self.parts), self.tanh_cells[steps]
        by_cell = i.new_empty(len(i), i.shape[1], 3, i.shape[2])
        sigmoid_backward.grad_input(g, i, grad_input=by_cell[:, :, 0])
        sigmoid_backward.grad_input(self.cells[steps], f, grad_input=by_cell[:, :, 1])
        tanh_backward.grad_input(i, g, grad_input=by_cell[:, :, 2])
        by_hidden, by_output = tanh_backward(o, tanh_cells), sigmoid_backward(tanh_cells, o)
        self.slopes = list(zip(by_hidden, by_cell, by_output, f, strict=True))


def _activate(gates: Tensor, i_f: Tensor, g: Tensor, o: Tensor) -> None:
    """An LSTM's pre-activations (B, 4H), given with views of their parts, become activations in place."""
    if gates.device.type == "cpu":  # one sigmoid for all, see tanh
        g.mul_(2)
        gates.sigmoid_()
        g.mul_(2).sub_(1)
    else:
        i_f.sigmoid_()
        g.tanh_()
        o.sigmoid_()


class LSTMSequence(torch.autograd.Function):
    """An LSTM, given its inputs' part of the pre-activations; see lstm_sequence."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight_hh: Tensor, mask: Tensor | None) -> Tensor:
        dtype = compute_dtype(weight_hh)
        tape = LSTMTape(gates.to(weight_hh.dtype, copy=True))
        weight = weight_hh.to(dtype)
        outputs = tape.cells.new_empty(tape.tanh_cells.shape)
        inputs = torch.empty_like(tape.cells, dtype=dtype)  # hidden states before each step
        inputs[0].zero_()
        recurrent = pack(weight, gates.shape[1])
        for t in range(len(gates)):
            tape.forward(t, recurrent(inputs[t]), out=outputs[t])
            if mask is not None:
                outputs[t].mul_(mask[t])
            inputs[t + 1].copy_(outputs[t])
        ctx.tape, ctx.inputs, ctx.weight, ctx.mask = tape, inputs, weight, mask
        ctx.dtypes = gates.dtype, weight_hh.dtype
        return outputs

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        tape, weight = ctx.tape, ctx.weight
        d_gates = torch.empty_like(tape.gates, dtype=weight.dtype)
        tape.d_cell.zero_()
        d_next, back = torch.zeros_like(tape.d_cell), pack(weight.t(), d_gates.shape[1])
        for t in range(len(d_gates) - 1, -1, -1):
            d_state = d_next + d_outputs[t]
            if ctx.mask is not None:
                d_state.mul_(ctx.mask[t])
            tape.backward(t, d_state, out=d_gates[t])
            d_next = back(d_gates[t])
        d_weight = d_gates.flatten(0, 1).t() @ ctx.inputs[:-1].flatten(0, 1)
        of_gates, of_weight = ctx.dtypes
        return d_gates.to(of_gates), d_weight.to(of_weight), None


def lstm_sequence(gates: Tensor, weight_hh: Tensor, mask: Tensor | None) -> Tensor:
    """Run an LSTM over input pre-activations (T, B, 4H), from zeros: the hidden states (T, B, H), after dropout.

    `mask` (T, B, H) is dropout on the hidden state that the next step gets: see dropout_mask.
    """
    outputs: Tensor = LSTMSequence.apply(gates, weight_hh, mask)
    return outputs
