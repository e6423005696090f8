"""Random numbers, masks of dropout, and recurrences with a hand-written backward, in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from common.draws import Draws
from common.kernels.recurrence import CHUNK, compute_dtype, draw_keep_mask, dropout_mask, lstm_sequence
from tests.float64 import assert_close, randn


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_mask_values_are_independent(p):
    """A share of 1 - p at each of the four places of a draw, and of its square among pairs; five standard errors."""
    mask, n = draw_keep_mask((400, 1001), p, torch.device("cpu")).flatten(), 100_000
    assert len(mask) == 400 * 1001
    rows = mask[: 4 * n].view(n, 4).double()
    assert (rows.mean(0) - (1 - p)).abs().max() < 5 * math.sqrt(p * (1 - p) / n)
    for distance in (1, 2, 3, 4):
        both = (mask[distance:] & mask[:-distance]).double().mean().item()
        share = (1 - p) ** 2
        assert abs(both - share) < 5 * math.sqrt(share * (1 - share) * 4 / len(mask))


def test_masks_of_any_shape_and_of_extreme_probabilities():
    for shape in ((), (1,), (0, 3), (2, 3, 5)):
        assert draw_keep_mask(shape, 0.5, torch.device("cpu")).shape == shape
    assert draw_keep_mask((5000,), 1e-6, torch.device("cpu")).all()
    assert draw_keep_mask((5000,), 1 - 1e-6, torch.device("cpu")).double().mean() < 0.01
    mask = dropout_mask(torch.zeros(1), (100, 30, 20), 0.25, training=True)
    assert mask.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (mask == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert dropout_mask(torch.zeros(1), (2, 3), 0.25, training=False) is None
    assert dropout_mask(torch.zeros(1), (2, 3), 0.0, training=True) is None


def from_zeros(gates, weight_hh, p_dropout=0.0):
    shape = *gates.shape[:2], weight_hh.shape[1]
    return lstm_sequence(gates, weight_hh, dropout_mask(weight_hh, shape, p_dropout, training=True))


@pytest.mark.parametrize(("steps", "batch"), [(7, 2), (1, 3), (CHUNK, 2), (2 * CHUNK + 1, 1)])
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
    gates, weight_hh = randn(3, 2, 8, grad=True), randn(8, 2, grad=True)

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


CPU = torch.device("cpu")
KEYS = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]


def draw(keys, purpose: str = "mels") -> torch.Tensor:
    draws = Draws.of(keys, purpose, CPU)
    return torch.cat((draws.uniform(3, 5).flatten(1), draws.normal(40)), dim=1)


def test_an_item_has_numbers_of_its_own_in_any_batch_for_each_seed_and_purpose() -> None:
    whole = draw(KEYS)
    for order in ([2], [3, 1], [1, 0, 2, 3]):
        assert torch.equal(draw([KEYS[item] for item in order]), whole[order])
    rows = torch.cat((whole, draw(KEYS, "audio")))
    for i, row in enumerate(rows):
        for other in rows[:i]:
            assert (row != other).float().mean() > 0.9
    before = torch.get_rng_state()  # the process's
    draw(KEYS)
    assert torch.equal(torch.get_rng_state(), before)


def test_numbers_in_steps_are_those_at_once_for_some_items_too() -> None:
    single = Draws.of(KEYS, "mels", CPU)
    steps = torch.cat([single.uniform(1, 7) for _ in range(4)], dim=1)
    assert torch.equal(steps, Draws.of(KEYS, "mels", CPU).uniform(4, 7))
    draws = Draws.of(KEYS, "mels", CPU)
    first, rest = draws.uniform(4), draws.take([2, 0]).uniform(4)
    again = Draws.of(KEYS, "mels", CPU).uniform(8)
    assert torch.equal(torch.cat((first[[2, 0]], rest), dim=1), again[[2, 0]])
    one, zero = (Draws.of([key], "mels", CPU).uniform(8)[0] for key in (KEYS[1], KEYS[0]))
    assert torch.equal(draws.take([1, 0]).uniform(4)[0], one[4:])
    assert not torch.isin(draws.uniform(4), torch.cat((one, zero))).any()  # they went on for the whole batch too


def test_distributions() -> None:
    draws = Draws.of([(3, item, 0) for item in range(40)], "mels", CPU)
    uniform, normal = draws.uniform(1000), draws.normal(1000)
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(float(uniform.mean()) - 0.5) < 4 * (1 / 12 / 40_000) ** 0.5
    assert abs(float(normal.mean())) < 4 / 200 and abs(float(normal.var()) - 1) < 4 * (2 / 40_000) ** 0.5
    correlations = torch.corrcoef(normal) - torch.eye(40)
    assert correlations.abs().max() < 5 / 1000**0.5
