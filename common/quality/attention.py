"""Measures of alignments: focus, monotonicity, coverage of the text, skips and repeats."""

# B batch, K decoder steps, S symbols

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FAR = 4  # symbols; a longer jump passes over about a syllable
ATTENDED = 0.5  # total weight, in steps, from which a symbol counts as read
SMOOTHED = 3  # steps of the running median that removes single-step glances elsewhere


class Reading(NamedTuple):
    """Measures of one text's alignment.

    focus: the mean over steps of the largest weight, 1/S to 1.
    monotonicity: the share of steps that go back by at most one symbol from the step before; 1 for a single step.
    coverage: the share of symbols whose weights add up to half a step or more.
    skips: how often the position jumps past more than FAR unread symbols, including at the start; symbols unread at the end
        only lower the coverage.
    repeats: how often the position goes back by more than FAR symbols in one step, to text already read.
    """

    focus: float
    monotonicity: float
    coverage: float
    skips: int
    repeats: int


def attention_focus(alignments: Tensor, lengths: Tensor) -> Tensor:
    """Compute the focus of each item's attention (B,): the mean over its decoder steps of each step's largest weight.

    1 means one symbol at a time, 1/S evenly spread attention; intelligible speech is above about 0.5.

    Args:
        alignments: attention weights (B, K, S); steps past an item's length do not count.
        lengths: decoder steps of each item (B,); an item without steps gets 0.
    """
    peaks = alignments.amax(dim=2)
    steps = torch.arange(alignments.shape[1], device=alignments.device)
    lengths = lengths.to(alignments.device)
    inside = steps[None, :] < lengths[:, None]
    return peaks.where(inside, peaks.new_zeros(())).sum(dim=1) / lengths.clamp(min=1)


def read_attention(alignment: Tensor) -> Reading:
    """Measure the attention weights (K, S) of one item without padding; without steps the reading is (0, 1, 0, 0, 0).

    A step's position is the symbol with the largest weight; skips and repeats are counted on its running median over three
    steps. Jumps in consecutive steps count as one.
    """
    weights = alignment.detach().float().cpu()
    steps, symbols = weights.shape
    if not steps:
        return Reading(0.0, 1.0, 0.0, 0, 0)
    positions = weights.argmax(dim=1).numpy()
    moves = np.diff(positions)
    return Reading(
        focus=attention_focus(weights[None], torch.tensor([steps])).item(),
        monotonicity=float(np.mean(moves >= -1)) if len(moves) else 1.0,
        coverage=(weights.sum(dim=0) >= ATTENDED).sum().item() / symbols,
        skips=_skips(_running_median(positions)),
        repeats=_repeats(_running_median(positions), symbols),
    )


def furthest(alignment: Tensor) -> int:
    """Return the furthest symbol that attention (K, S) reached, ignoring single-step glances; -1 without steps."""
    if not len(alignment):
        return -1
    return int(_running_median(alignment.detach().float().cpu().argmax(dim=1).numpy()).max())


def _running_median(positions: np.ndarray) -> np.ndarray:
    """Return the running median over SMOOTHED steps, with the ends repeated."""
    padded = np.pad(positions, SMOOTHED // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, SMOOTHED), axis=1).astype(int)


def _skips(positions: np.ndarray) -> int:
    furthest = np.concatenate([[-1], np.maximum.accumulate(positions)[:-1]])  # before each step
    passed_over = positions - furthest - 1
    return _runs(passed_over > FAR)


def _repeats(positions: np.ndarray, symbols: int) -> int:
    read = np.zeros(symbols, dtype=bool)
    back = np.zeros(len(positions), dtype=bool)
    before = positions[0]
    for step, position in enumerate(positions):
        back[step] = before - position > FAR and read[position]  # otherwise it was skipped before and is read now
        low, high = sorted((before, position)) if abs(position - before) <= FAR + 1 else (position, position)
        read[low : high + 1] = True  # including what a short move passes over
        before = position
    return _runs(back)


def _runs(flags: np.ndarray) -> int:
    return int(np.sum(flags[1:] & ~flags[:-1]) + flags[0])
