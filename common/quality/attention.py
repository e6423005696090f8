"""Measures of an alignment: focus, order, coverage of the text, skips and repeats."""

# B batch, K decoder steps, S symbols

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FAR = 4  # symbols; reading ahead or back by more passes over about a syllable
ATTENDED = 0.5  # the total weight, in steps, from which on a symbol counts as read
SMOOTHED = 3  # steps of the median that takes out a single step's glance elsewhere


class Reading(NamedTuple):
    """Measures of one text's alignment.

    focus: the mean over steps of the largest weight, 1/S to 1.
    monotonicity: the share of steps that do not go back by more than one symbol from the step before; 1 for a single step.
    coverage: the share of symbols whose weights add up to half a step or more.
    skips: how often the position jumps past more than FAR symbols that were not yet read, those at the start included; symbols
        that stay unread at the end lower the coverage alone.
    repeats: how often the position returns by more than FAR symbols in one step, to text that was read before.
    """

    focus: float
    monotonicity: float
    coverage: float
    skips: int
    repeats: int


def attention_focus(alignments: Tensor, lengths: Tensor) -> Tensor:
    """Compute the focus of each item's attention (B,): the mean, over its decoder steps, of the step's largest weight.

    1 is attention on one symbol at a time, 1/S attention spread evenly; intelligible speech is above about 0.5.

    Args:
        alignments: attention weights (B, K, S); steps past an item's length do not count.
        lengths: decoder steps of each item (B,); an item of none gets 0.
    """
    peaks = alignments.amax(dim=2)
    steps = torch.arange(alignments.shape[1], device=alignments.device)
    lengths = lengths.to(alignments.device)
    inside = steps[None, :] < lengths[:, None]
    return peaks.where(inside, peaks.new_zeros(())).sum(dim=1) / lengths.clamp(min=1)


def read_attention(alignment: Tensor) -> Reading:
    """Measure the attention weights (K, S) of one item, cut to its lengths; no steps read nothing (0, 1, 0, 0, 0).

    The position of a step is the symbol with the largest weight; skips and repeats are counted on its running median over
    three steps. Jumps in consecutive steps are one.
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
    """The last symbol that attention (K, S) came to, a single step's glance aside; -1 without steps."""
    if not len(alignment):
        return -1
    return int(_running_median(alignment.detach().float().cpu().argmax(dim=1).numpy()).max())


def _running_median(positions: np.ndarray) -> np.ndarray:
    """The median over SMOOTHED steps around each; the first and the last are repeated past the ends."""
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
        back[step] = before - position > FAR and read[position]  # else it was skipped, and is read now
        low, high = sorted((before, position)) if abs(position - before) <= FAR + 1 else (position, position)
        read[low : high + 1] = True  # with what a short move passes over
        before = position
    return _runs(back)


def _runs(flags: np.ndarray) -> int:
    """Count the runs of True."""
    return int(np.sum(flags[1:] & ~flags[:-1]) + flags[0])
