"""Masks of dropout: independent values, the mean of 1 - p, and the factor that keeps a tensor's mean."""

from __future__ import annotations

import math

import pytest
import torch

from common.kernels.dropout import draw_keep_mask, dropout_mask


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
    torch.manual_seed(3)
    first = draw_keep_mask((9,), 0.5, torch.device("cpu"))
    assert not torch.equal(draw_keep_mask((9,), 0.5, torch.device("cpu")), first)
    torch.manual_seed(3)
    assert torch.equal(draw_keep_mask((9,), 0.5, torch.device("cpu")), first)


def test_dropout_mask():
    mask = dropout_mask(torch.zeros(1), (100, 30, 20), 0.25, training=True)
    assert mask.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (mask == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert dropout_mask(torch.zeros(1), (2, 3), 0.25, training=False) is None
    assert dropout_mask(torch.zeros(1), (2, 3), 0.0, training=True) is None
