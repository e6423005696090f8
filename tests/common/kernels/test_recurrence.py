"""Recurrences with a hand-written backward against PyTorch's LSTM and autograd, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from common.kernels.dropout import dropout_mask
from common.kernels.recurrence import CHUNK, compute_dtype, lstm_sequence, tanh


def randn(*shape, grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def from_zeros(gates, weight_hh, p_dropout=0.0):
    """The hidden states after the first zeros; the same as two runs, of which the second begins at the end of the first."""
    shape = *gates.shape[:2], weight_hh.shape[1]
    mask = dropout_mask(weight_hh, shape, p_dropout, training=True)
    state = weight_hh.new_zeros(2, *shape[1:]).unbind(0)
    whole, cell = lstm_sequence(gates, weight_hh, mask, *state)
    parts, half = [], len(gates) // 2
    for steps in (slice(half), slice(half, None)):
        if len(gates[steps]):
            hidden, last = lstm_sequence(gates[steps], weight_hh, None if mask is None else mask[steps], *state)
            state = hidden[-1], last
            parts.append(hidden)
    assert_close(torch.cat(parts), whole, 1e-12 if gates.dtype == torch.float64 else 1e-2)
    assert_close(state[1], cell, 1e-12 if gates.dtype == torch.float64 else 1e-2)
    return torch.cat(parts)


def assert_close(got, want, bound=1e-12):
    torch.testing.assert_close(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize(("steps", "batch"), [(7, 2), (1, 3), (5, 1), (CHUNK, 2), (2 * CHUNK + 1, 1)])
def test_lstm_sequence_is_pytorchs_lstm(steps, batch):
    lstm, x, direction = nn.LSTM(3, 5).double(), randn(steps, batch, 3, grad=True), randn(steps, batch, 5)
    gates = F.linear(x, lstm.weight_ih_l0, lstm.bias_ih_l0 + lstm.bias_hh_l0)
    before = gates.detach().clone()
    got, (want, _) = from_zeros(gates, lstm.weight_hh_l0), lstm(x)
    assert_close(got, want)
    assert torch.equal(gates.detach(), before)  # it works on a copy
    tensors = [x, *lstm.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad((got * direction).sum(), tensors), torch.autograd.grad((want * direction).sum(), tensors)
    ):
        assert_close(ours, theirs)


def test_lstm_sequence_gradcheck_with_dropout():
    gates, weight_hh = randn(4, 2, 12, grad=True), randn(12, 3, grad=True)

    def run(gates, weight_hh):
        torch.manual_seed(5)  # the same mask at each call
        return from_zeros(gates, weight_hh, 0.4)

    assert (run(gates, weight_hh) == 0).any()
    assert torch.autograd.gradcheck(run, (gates, weight_hh))


def test_lstm_sequence_drops_the_state_that_the_next_step_sees():
    cell = nn.LSTMCell(1, 50, bias=False).double()
    gates = randn(6, 40, 200)
    dropped = from_zeros(gates, cell.weight_hh, 0.4)
    hidden, memory = torch.zeros(40, 50).double(), torch.zeros(40, 50).double()
    for step, output in zip(gates, dropped):
        i, f, g, o = (step + hidden @ cell.weight_hh.t()).chunk(4, dim=1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        assert_close(output, torch.where(output == 0, 0.0, o.sigmoid() * memory.tanh() / 0.6))
        hidden = output
    assert (dropped == 0).double().mean().item() == pytest.approx(0.4, abs=0.02)


def test_autocast_computes_products_in_bfloat16_and_keeps_float32_gradients():
    gates, weight_hh = torch.randn(6, 3, 32, requires_grad=True), torch.randn(32, 8, requires_grad=True)
    exact = from_zeros(gates, weight_hh)
    wanted = torch.autograd.grad(exact.square().sum(), (gates, weight_hh))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compute_dtype(weight_hh) == torch.bfloat16
        rounded = from_zeros(gates.bfloat16(), weight_hh)
    got = torch.autograd.grad(rounded.square().sum(), (gates, weight_hh))
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.03)  # bfloat16 has 8 bits
    for ours, theirs in zip(got, wanted):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.03 * theirs.norm()


def test_tanh_into_itself_and_into_another():
    x = torch.linspace(-12, 12, 1001, dtype=torch.float64)
    y, z = x.clone(), torch.empty_like(x)
    assert tanh(y, out=y) is y
    assert tanh(x, out=z) is z
    assert_close(y, x.tanh(), 1e-15)
    assert torch.equal(y, z)
