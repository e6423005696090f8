"""Shared layers against PyTorch's own, plain autograd and formulas, in float64."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from common import layers
from common.layers import ConvStack, MaskedBatchNorm1d
from tests.float64 import assert_close, randn

LENGTHS = torch.tensor([5, 2, 4])


def two_norms():
    ours, theirs = MaskedBatchNorm1d(3).double(), nn.BatchNorm1d(3).double()
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
        got = real_frames(ours(x + 2, layers.length_mask(LENGTHS, 5)[:, None]))
        want = theirs(real_frames(x + 2))
        assert_close(got, want)
    sides = ((got, ours), (want, theirs))
    gradients = (torch.autograd.grad((y * direction).sum(), [x, norm.weight, norm.bias]) for y, norm in sides)
    for our_gradient, their_gradient in zip(*gradients):
        assert their_gradient.abs().max() > 1e-3
        assert_close(our_gradient, their_gradient)
    for name, buffer in theirs.named_buffers():
        assert_close(ours.get_buffer(name), buffer)
    assert ours.num_batches_tracked == 2


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


def test_conv_stack_dropout_is_for_training():
    stack, x = ConvStack([4, 6, 5], 3, ["tanh", "linear"], 0.3).double().train(), randn(8, 4, 300)
    assert (stack.convolve(x) == 0).double().mean().item() == pytest.approx(0.3, abs=0.02)
    stack.eval()
    assert torch.equal(stack.convolve(x), stack.convolve(x)) and (stack.convolve(x) != 0).all()


@pytest.mark.parametrize("lengths", [[4, 7, 1], [7], [3, 3]], ids=str)
def test_the_loop_for_export_is_the_packed_lstm(lengths):
    lstm, lengths = nn.LSTM(5, 3, batch_first=True, bidirectional=True).double(), torch.tensor(lengths)
    x = randn(len(lengths), 7, 5)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=7)
    with torch.no_grad():
        assert_close(layers.bidirectional_lstm(lstm, x, lengths), expected)
