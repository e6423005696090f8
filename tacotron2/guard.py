"""Guards of free running, for models whose gate or attention fail: none is on unless asked for, and no checkpoint stores them.

A window on attention in inference alone: Ping et al. 2018 (Deep Voice 3), there only forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from common.errors import UsageError

# B batch, S symbols, n decoder steps

SPARE_FRAMES = 50  # what a clip may take beside its symbols' share: half a second for a short text's pauses


@dataclass(frozen=True, kw_only=True)
class DecodingGuard:
    """How free running is kept in hand; 0 is off. Raises UsageError, naming the flag, for negative and infinite values."""

    attention_stop: int = 0  # frames at a text's last symbol that end its clip
    attention_window: int = 0  # symbols that attention may move back or forward in a decoder step
    max_frames_per_symbol: float = 0.0

    def __post_init__(self) -> None:
        found = {"--" + field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        wrong = {flag: value for flag, value in found.items() if not 0 <= value < math.inf}  # NaN fails this as well
        if wrong:
            raise UsageError("; ".join(f"{flag}: {value}, expected 0 (off) or more" for flag, value in wrong.items()))

    def step_limits(self, text_lengths: Tensor, frames_per_step: int, max_steps: int) -> Tensor:
        """Decoder steps (B,) after which texts of these lengths (B,) are cut: whole steps that hold all their frames."""
        if not self.max_frames_per_symbol:
            return torch.full_like(text_lengths, max_steps)
        frames = (self.max_frames_per_symbol * text_lengths.double()).round() + SPARE_FRAMES
        return (frames / frames_per_step).ceil().clamp(max=max_steps).long()


def outside_window(places: Tensor, previous: Tensor, window: int) -> Tensor:
    """Which symbols are more than `window` away from where attention was: (B, S), True there.

    places: 0 … S - 1; previous: weights of the step before (B, S), whose largest is where attention was, the first of equals: so
    the zeros before the first step put it at symbol 0.
    """
    return (places - previous.argmax(dim=1, keepdim=True)).abs() > window


class AttentionStop:
    """Finds the steps at which attention has stayed at a text's last symbol for so many frames without a break.

    The last symbol alone: it is nearly always a point, so the clip is cut in the silence that the point stands for. The symbol
    before it is a sound, which in a healthy clip may last as long as the rule waits; counting it would cut short words off.
    """

    def __init__(self, frames: int, frames_per_step: int, text_lengths: Tensor) -> None:
        self.frames, self.frames_per_step, self.last = frames, frames_per_step, text_lengths - 1
        self.stayed = torch.zeros_like(text_lengths)  # steps at the last symbol, up to now

    def see(self, weights: Tensor) -> Tensor:
        """Attention weights (n, B, S) of the next steps -> (n, B), True where a clip is to end."""
        there = weights.argmax(dim=2) == self.last
        steps = torch.arange(len(weights), device=weights.device)[:, None]
        away = torch.where(there, -1 - self.stayed, steps).cummax(0).values  # the last step elsewhere
        stayed = steps - away
        self.stayed = stayed[-1]
        return stayed * self.frames_per_step >= self.frames
