"""Shared layers against PyTorch's own, plain autograd and formulas, in float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from common.layers import (
    ConvNorm,
    ConvStack,
    LinearNorm,
    LSTMState,
    MaskedBatchNorm1d,
    at_least_float32,
    dropout,
    kept,
    length_mask,
)


def randn(*shape, grad=False):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def assert_close(got, want, bound=1e-12):
    torch.testing.assert_close(got, want, rtol=0, atol=bound)


def assert_same_gradients(loss, other, tensors, other_tensors=None):
    """Both scalars have the same gradient, tensor by tensor."""
    gradients = torch.autograd.grad(loss, tensors), torch.autograd.grad(other, other_tensors or tensors)
    for got, want in zip(*gradients):
        assert want.abs().max() > 1e-3
        assert_close(got, want)


# --- small helpers ---


def test_length_mask():
    got = length_mask(torch.tensor([3, 0, 4, 1]), 4)
    assert got.dtype == torch.bool
    assert got.int().tolist() == [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_at_least_float32(given, wanted):
    x = torch.tensor([1.5, -2.0], dtype=given)
    wide = at_least_float32(x)
    assert wide.dtype == wanted
    assert wide.tolist() == [1.5, -2.0]
    assert (wide is x) == (given == wanted)


# --- initial weights ---


@pytest.mark.parametrize(("gain", "factor"), [("linear", 1), ("sigmoid", 1), ("relu", math.sqrt(2)), ("tanh", 5 / 3)])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_weights_start_xavier_uniform(kind, gain, factor):
    """Uniform within factor * sqrt(6 / (fan in + fan out)), where a convolution's fans count its taps."""
    if kind == "linear":
        weight, fans = LinearNorm(300, 200, gain=gain).linear_layer.weight, 300 + 200
    else:
        weight, fans = ConvNorm(60, 40, 5, gain=gain).conv.weight, 5 * (60 + 40)
    bound = factor * math.sqrt(6 / fans)
    assert 0.99 * bound < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert weight.mean().abs() < 0.02 * bound


def test_linear_and_convolution():
    linear, conv = LinearNorm(4, 3).double(), ConvNorm(4, 3, 5).double()
    x = randn(2, 4, 7)
    weight, bias = linear.linear_layer.weight, linear.linear_layer.bias
    assert_close(linear(x.mT), torch.einsum("bit,oi->bto", x, weight) + bias)
    padded = F.pad(x, (2, 2))
    expected = torch.stack(
        [torch.einsum("bij,oij->bo", padded[:, :, t : t + 5], conv.conv.weight) for t in range(7)], 2
    )
    assert_close(conv(x), expected + conv.conv.bias[:, None])
    assert LinearNorm(4, 3, bias=False).linear_layer.bias is None
    assert ConvNorm(4, 3, 5, bias=False).conv.bias is None


# --- masked BatchNorm ---

LENGTHS = torch.tensor([5, 2, 4])


def two_norms(channels=3):
    """Ours and PyTorch's with the same weights and statistics."""
    ours, theirs = MaskedBatchNorm1d(channels).double(), nn.BatchNorm1d(channels).double()
    for tensor in (ours.weight, ours.bias, ours.running_mean, ours.running_var):
        nn.init.uniform_(tensor, 0.5, 1.5)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def real_frames(x):
    """(B, C, T) -> the frames inside the lengths, as one clip (1, C, N)."""
    return torch.cat([clip[:, :n] for clip, n in zip(x, LENGTHS)], dim=1)[None]


def test_masked_batchnorm_is_batchnorm_of_the_real_frames():
    ours, theirs = two_norms()
    x, direction = randn(3, 3, 5, grad=True), randn(1, 3, 11)
    for _ in range(2):  # running statistics twice
        got = real_frames(ours(x + 2, length_mask(LENGTHS, 5)[:, None]))
        want = theirs(real_frames(x + 2))
        assert_close(got, want)
    tensors = [[x, norm.weight, norm.bias] for norm in (ours, theirs)]
    assert_same_gradients((got * direction).sum(), (want * direction).sum(), *tensors)
    for name, buffer in theirs.named_buffers():
        assert_close(ours.get_buffer(name), buffer)
    assert ours.num_batches_tracked == 2


def test_batchnorm_in_evaluation_and_without_a_mask_is_pytorchs():
    ours, theirs = two_norms()
    x = randn(3, 3, 5)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    assert torch.equal(ours(x, length_mask(LENGTHS, 5)[:, None]), theirs(x))
    assert torch.equal(ours.running_mean, theirs.running_mean)


def test_masked_batchnorm_of_half_precision_counts_in_float32():
    """20,000 frames around 8: their sum is beyond float16, and bfloat16 would keep two digits of it."""
    ours, _ = two_norms()
    ours.float().reset_running_stats()
    x = torch.randn(4, 3, 5000) + 8
    mask = torch.ones(4, 1, 5000, dtype=torch.bool)
    for dtype in (torch.float16, torch.bfloat16):
        ours.reset_running_stats()
        y = ours(x.to(dtype), mask)
        assert y.dtype == dtype
        exact = x.to(dtype).double()
        assert_close(ours.running_mean.double(), 0.1 * exact.mean((0, 2)), 1e-6)
        assert_close(ours.running_var.double(), 0.9 + 0.1 * exact.var((0, 2)), 1e-6)


# --- convolution stack ---


def small_stack(p_dropout=0.0):
    return ConvStack([4, 6, 5], 3, ["tanh", "linear"], p_dropout).double()


def test_conv_stack():
    stack, x = small_stack().eval(), randn(2, 4, 7)
    y = x
    for i, activation in enumerate([torch.tanh, lambda y: y]):
        weights = {name: stack.get_parameter(f"convolutions.{i}.{name}") for name in ("0.conv.weight", "0.conv.bias")}
        norm = nn.BatchNorm1d(len(weights["0.conv.bias"])).double().eval()
        norm.load_state_dict(stack.convolutions[i][1].state_dict())
        y = activation(norm(F.conv1d(y, weights["0.conv.weight"], weights["0.conv.bias"], padding=1)))
    assert_close(stack.convolve(x), y)


def test_conv_stack_relu():
    stack = ConvStack([4, 6], 3, ["relu"], 0.0).double()
    y = stack.convolve(randn(2, 4, 50))
    assert y.min() == 0
    assert 0.4 < (y == 0).double().mean() < 0.6  # normalised before


def test_conv_stack_does_not_hear_padding():
    stack, mask = small_stack().train(), length_mask(LENGTHS, 5)[:, None]
    x = randn(3, 4, 5)
    y = stack.convolve(x, mask)
    assert_close(stack.convolve(torch.where(mask, x, 9.0), mask), y)
    assert_close(stack.convolve(F.pad(x, (0, 3), value=9.0), F.pad(mask, (0, 3)))[:, :, :5], y)
    assert not y.masked_select(~mask).any()


def test_conv_stack_dropout_is_for_training():
    stack, x = small_stack(p_dropout=0.3).train(), randn(8, 4, 300)
    y = stack.convolve(x)
    assert (y == 0).double().mean().item() == pytest.approx(0.3, abs=0.02)
    stack.eval()
    assert torch.equal(stack.convolve(x), stack.convolve(x))
    assert (stack.convolve(x) == 0).double().mean() == 0


# --- LSTM ---


def test_lstm_state():
    state = LSTMState.zeros(torch.zeros(3, 7, dtype=torch.float16), 4)
    assert state.hidden.shape == state.cell.shape == (3, 4)
    assert state.hidden.dtype == state.cell.dtype == torch.float32
    assert LSTMState.zeros(torch.zeros(3, 7, dtype=torch.float64), 4).cell.dtype == torch.float64
    ones = LSTMState(torch.ones(50, 40), torch.ones(50, 40))
    dropped = ones.dropout(0.2, training=True)
    assert dropped.cell is ones.cell
    assert dropped.hidden.unique().tolist() == [0.0, 1.25]
    assert (dropped.hidden == 0).float().mean().item() == pytest.approx(0.2, abs=0.03)
    assert torch.equal(ones.dropout(0.2, training=False).hidden, ones.hidden)


# --- dropout ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_keeps_the_mean_and_scales_its_gradient(dtype):
    x = torch.ones(400, 500, dtype=dtype, requires_grad=True)
    y = dropout(x, 0.3)
    assert y.dtype == dtype
    nonzero = y != 0
    assert nonzero.double().mean().item() == pytest.approx(0.7, abs=5 * math.sqrt(0.3 * 0.7 / x.numel()))
    torch.testing.assert_close(y[nonzero].double(), torch.full_like(y[nonzero].double(), 1 / 0.7), rtol=0.005, atol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())
    assert dropout(x, 0.3, training=False) is x or torch.equal(dropout(x, 0.3, training=False), x)
    assert torch.equal(dropout(x, 0.0), x)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_kept_numbers_know_nothing_of_their_neighbours(p):
    """A share of 1 - p at each of the four places of a draw, and of its square among pairs; five standard errors."""
    mask, n = kept((400, 1001), p, torch.device("cpu")).flatten(), 100_000
    assert len(mask) == 400 * 1001
    rows = mask[: 4 * n].view(n, 4).double()
    assert (rows.mean(0) - (1 - p)).abs().max() < 5 * math.sqrt(p * (1 - p) / n)
    for distance in (1, 2, 3, 4):
        both = (mask[distance:] & mask[:-distance]).double().mean().item()
        share = (1 - p) ** 2
        assert abs(both - share) < 5 * math.sqrt(share * (1 - share) * 4 / len(mask))


def test_kept_takes_any_shape_and_next_to_all_or_nothing():
    for shape in ((), (1,), (0, 3), (2, 3, 5)):
        assert kept(shape, 0.5, torch.device("cpu")).shape == shape
    assert kept((5000,), 1e-6, torch.device("cpu")).all()
    assert kept((5000,), 1 - 1e-6, torch.device("cpu")).double().mean() < 0.01
    torch.manual_seed(3)
    first = kept((9,), 0.5, torch.device("cpu"))
    assert not torch.equal(kept((9,), 0.5, torch.device("cpu")), first)
    torch.manual_seed(3)
    assert torch.equal(kept((9,), 0.5, torch.device("cpu")), first)
