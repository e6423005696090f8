"""Random numbers that belong to the items of a batch."""

from __future__ import annotations

import torch

from common.draws import Draws

CPU = torch.device("cpu")
KEYS = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1)]


def draw(keys, purpose: str = "mels") -> torch.Tensor:
    draws = Draws.of(keys, purpose, CPU)
    return torch.cat((draws.uniform(3, 5).flatten(1), draws.normal(40)), dim=1)


def test_an_item_has_its_numbers_in_any_batch() -> None:
    whole = draw(KEYS)
    for order in ([2], [3, 1], [1, 0, 2, 3]):
        assert torch.equal(draw([KEYS[item] for item in order]), whole[order])


def test_items_seeds_and_purposes_share_no_numbers() -> None:
    rows = torch.cat((draw(KEYS), draw(KEYS, "audio")))
    for i, row in enumerate(rows):
        for other in rows[:i]:
            assert (row != other).float().mean() > 0.9


def test_numbers_in_steps_are_those_at_once() -> None:
    """A decoder that takes one step and one that takes a chunk have the same masks."""
    single = Draws.of(KEYS, "mels", CPU)
    steps = torch.cat([single.uniform(1, 7) for _ in range(4)], dim=1)
    assert torch.equal(steps, Draws.of(KEYS, "mels", CPU).uniform(4, 7))


def test_some_items_go_on_where_they_are() -> None:
    draws = Draws.of(KEYS, "mels", CPU)
    first, rest = draws.uniform(4), draws.take([2, 0]).uniform(4)
    again = Draws.of(KEYS, "mels", CPU).uniform(8)
    assert torch.equal(torch.cat((first[[2, 0]], rest), dim=1), again[[2, 0]])
    one, zero = (Draws.of([key], "mels", CPU).uniform(8)[0] for key in (KEYS[1], KEYS[0]))
    assert torch.equal(draws.take([1, 0]).uniform(4)[0], one[4:])
    assert not torch.isin(draws.uniform(4), torch.cat((one, zero))).any()  # they went on for the whole batch too


def test_the_generator_of_the_process_stays_as_it_is() -> None:
    before = torch.get_rng_state()
    draw(KEYS)
    assert torch.equal(torch.get_rng_state(), before)


def test_distributions() -> None:
    """Means and variances of 40,000 numbers, within four standard errors."""
    draws = Draws.of([(3, item, 0) for item in range(40)], "mels", CPU)
    uniform, normal = draws.uniform(1000), draws.normal(1000)
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(float(uniform.mean()) - 0.5) < 4 * (1 / 12 / 40_000) ** 0.5
    assert abs(float(normal.mean())) < 4 / 200 and abs(float(normal.var()) - 1) < 4 * (2 / 40_000) ** 0.5
    correlations = torch.corrcoef(normal) - torch.eye(40)
    assert correlations.abs().max() < 5 / 1000**0.5
