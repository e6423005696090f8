"""Alignments made by hand, whose readings are counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from common.quality.attention import Reading, attention_focus, furthest, read_attention


def attending(positions: list[int], symbols: int) -> Tensor:
    """An alignment with all of a step's weight on one symbol."""
    return torch.nn.functional.one_hot(torch.tensor(positions), symbols).float()


def each(start: int, end: int, times: int = 3) -> list[int]:
    """Positions from start to end - 1, each for some steps."""
    return [position for position in range(start, end) for _ in range(times)]


CASES = {
    "diagonal": (each(0, 20), 20, Reading(1, 1, 1, 0, 0)),
    "jump over five": (each(0, 5) + each(10, 20), 20, Reading(1, 1, 0.75, 1, 0)),
    "jump over four, which is not far": (each(0, 5) + each(9, 20), 20, Reading(1, 1, 0.8, 0, 0)),
    "two jumps": (each(0, 3) + each(9, 12) + each(18, 20), 20, Reading(1, 1, 0.4, 2, 0)),
    "a late start": (each(5, 20), 20, Reading(1, 1, 0.75, 1, 0)),
    "an early end": (each(0, 10), 20, Reading(1, 1, 0.5, 0, 0)),
    "one loop": (each(0, 10) + each(0, 20), 20, Reading(1, 1 - 1 / 89, 1, 0, 1)),
    "a loop of four, which is not far": (each(0, 10) + each(5, 20), 20, Reading(1, 1 - 1 / 74, 1, 0, 0)),
    "three loops": (each(0, 10) * 3 + each(0, 20), 20, Reading(1, 1 - 3 / 149, 1, 0, 3)),
    "ahead, then back to what was passed over": (
        each(0, 5) + each(12, 20) + each(5, 12),
        20,
        Reading(1, 1 - 1 / 59, 1, 1, 0),
    ),
    "ahead, then back to what was read": (
        each(0, 10) + each(16, 20) + each(3, 20),
        20,
        Reading(1, 1 - 1 / 92, 1, 1, 1),
    ),
    "faster than a symbol a step, and again": ([*range(0, 20, 2), *range(1, 20, 2)], 20, Reading(1, 18 / 19, 1, 0, 1)),
    "stuck": ([4] * 30, 20, Reading(1, 1, 0.05, 0, 0)),
    "a glance of one step": ([*each(0, 5), 19, *each(5, 20)], 20, Reading(1, 1 - 1 / 60, 1, 0, 0)),
    "one symbol back now and then": ([0, 1, 0, 1, 2, 1, 2, 3], 4, Reading(1, 1, 1, 0, 0)),
    "backwards by two": ([8, 6, 4, 2, 0], 9, Reading(1, 0, 5 / 9, 1, 0)),
    "one step": ([0], 4, Reading(1, 1, 0.25, 0, 0)),
    "one symbol": ([0, 0, 0], 1, Reading(1, 1, 1, 0, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_readings_counted_by_hand(name: str) -> None:
    positions, symbols, expected = CASES[name]
    assert tuple(read_attention(attending(positions, symbols))) == pytest.approx(tuple(expected))


def test_even_attention_has_no_focus_and_covers_what_gets_half_a_step() -> None:
    assert read_attention(torch.full((10, 20), 1 / 20)) == pytest.approx((1 / 20, 1, 1, 0, 0))  # 10/20 of a step each
    assert read_attention(torch.full((9, 20), 1 / 20)).coverage == 0


def test_focus_is_the_mean_of_the_largest_weights() -> None:
    weights = torch.tensor([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.0, 0.5, 0.5]], dtype=torch.bfloat16)
    assert read_attention(weights).focus == pytest.approx(0.6, abs=2e-3)  # bfloat16 has 8 bits
    assert read_attention(weights).coverage == pytest.approx(1)


def test_no_steps_read_nothing() -> None:
    assert read_attention(torch.zeros(0, 7)) == (0, 1, 0, 0, 0)


def test_the_furthest_symbol_is_not_that_of_a_single_glance() -> None:
    places = [0, 1, 2, 9, 3, 4]  # of ten symbols
    alignment = torch.zeros(6, 10)
    alignment[range(6), places] = 1
    assert furthest(alignment) == 4
    assert furthest(torch.eye(10)) == 9
    assert furthest(torch.zeros(0, 10)) == -1


def test_attention_focus_in_closed_form() -> None:
    alignments = torch.full((4, 5, 4), 0.25)  # item 0: spread evenly
    alignments[1] = torch.eye(4)[[0, 1, 2, 3, 3]]  # item 1: one symbol at a time
    alignments[2, :3] = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0.5, 0.5, 0]])
    alignments[2, 3:] = torch.nan  # past the length: must not count
    focus = attention_focus(alignments, torch.tensor([5, 5, 3, 0]))
    assert focus.tolist() == pytest.approx([0.25, 1.0, 2.5 / 3, 0.0])
