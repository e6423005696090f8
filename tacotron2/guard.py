"""Rules that end a free run, and guards for models whose gate or attention fail: all guards are off by default.

No checkpoint stores the guards. Ping et al. 2018 (Deep Voice 3) restrict attention to a window in inference too, but only forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from common.errors import UsageError

# B batch, S symbols, n decoder steps

MOST = 1_000_000  # frames or symbols; PyTorch refuses numbers beyond 64 bits
SPARE_FRAMES = 50  # added to a clip's limit: half a second for the pauses of short texts


@dataclass(frozen=True, kw_only=True)
class DecodingGuard:
    """Limits on a free run; 0 is off. Raises UsageError, naming the flag, for negative, infinite and huge values."""

    attention_stop: int = 0  # frames at a text's last symbol after which the clip ends
    attention_window: int = 0  # symbols that attention may move back or forward in a decoder step
    max_frames_per_symbol: float = 0.0

    def __post_init__(self) -> None:
        values = {"--" + field.name.replace("_", "-"): getattr(self, field.name) for field in fields(self)}
        # the comparison fails for NaN too
        wrong = {flag: value for flag, value in values.items() if not 0 <= value < math.inf}
        if wrong:
            raise UsageError("; ".join(f"{flag}: {value}, expected 0 (off) or more" for flag, value in wrong.items()))
        beyond = {flag: value for flag, value in values.items() if isinstance(value, int) and value > MOST}
        if beyond:
            raise UsageError("; ".join(f"{flag}: {value}, expected at most {MOST}" for flag, value in beyond.items()))

    def step_limits(self, text_lengths: Tensor, frames_per_step: int, max_steps: int) -> Tensor:
        """Return the limits in decoder steps (B,) for texts of these lengths (B,), rounded up to whole steps."""
        if not self.max_frames_per_symbol:
            return torch.full_like(text_lengths, max_steps)
        frames = (self.max_frames_per_symbol * text_lengths.double()).round() + SPARE_FRAMES
        return (frames / frames_per_step).ceil().clamp(max=max_steps).long()

    def attention_rule(self, text_lengths: Tensor, frames_per_step: int) -> AttentionStop | None:
        """Return the rule of attention_stop for texts of these lengths (B,); None where it is off."""
        return AttentionStop(self.attention_stop, frames_per_step, text_lengths) if self.attention_stop else None

    def mask(self, padding: Tensor, previous: Tensor) -> Tensor:
        """Mask (B, S) of padding and, with an attention window, of symbols outside it. `previous` are the last weights (B, S)."""
        return padding | outside_window(previous, self.attention_window) if self.attention_window else padding


def outside_window(previous: Tensor, window: int) -> Tensor:
    """Return (B, S), True for symbols more than `window` away from the largest of the previous weights (B, S).

    Of equal weights the first counts, so that the zeros before the first step put the window at symbol 0.
    """
    positions = torch.arange(previous.shape[1], device=previous.device)
    return (positions - previous.argmax(dim=1, keepdim=True)).abs() > window


class StopRule:
    """Counter of each item's steps before its gate or the attention rule fires, at most the item's limit."""

    def __init__(self, limits: Tensor, threshold: float, early_stopping: bool, attention: AttentionStop | None) -> None:
        self.limits, self.threshold, self.early_stopping, self.attention = limits, threshold, early_stopping, attention
        self.limit = int(limits.max())  # of the whole run, in steps; host sync, once a run
        self.steps, self.running = torch.zeros_like(limits), torch.ones_like(limits, dtype=torch.bool)
        self.finished, self._n_steps = False, 0

    def update(self, gates: Tensor, weights: Tensor) -> None:
        """Process gate logits (n, B) and attention weights (n, B, S) of the next n steps."""
        continues = torch.sigmoid(gates) <= self.threshold
        if self.attention:
            continues &= ~self.attention.fires(weights)
        continues = continues.cummin(0).values & self.running
        self.steps = torch.minimum(self.steps + continues.sum(0), self.limits)
        self.running = continues[-1] & (self.steps < self.limits)
        self._n_steps += len(gates)
        stopped = self.early_stopping and not bool(self.running.any())  # host sync, once a call
        self.finished = stopped or self._n_steps >= self.limit

    def total_steps(self) -> int:
        """Return the steps of the run, including the one at which the last item stopped."""
        return int(torch.minimum(self.steps + 1, self.limits).max()) if self.early_stopping else self.limit  # host sync


class AttentionStop:
    """Rule that ends a clip once attention has stayed at its text's last symbol for `frames` consecutive frames.

    The last symbol is nearly always a full stop, so that the cut is in silence. The symbol before it is a sound; in a good clip it
    may last as long as the limit, and counting it would truncate words.
    """

    def __init__(self, frames: int, frames_per_step: int, text_lengths: Tensor) -> None:
        self.frames, self.frames_per_step, self.last = frames, frames_per_step, text_lengths - 1
        self.stay = torch.zeros_like(text_lengths)  # consecutive steps at the last symbol so far

    def fires(self, weights: Tensor) -> Tensor:
        """Return (n, B), True where a clip has to end, for attention weights (n, B, S) of the next steps."""
        at_last = weights.argmax(dim=2) == self.last
        steps = torch.arange(len(weights), device=weights.device)[:, None]
        elsewhere = torch.where(at_last, -1 - self.stay, steps).cummax(0).values  # the latest step elsewhere
        stay = steps - elsewhere
        self.stay = stay[-1]
        return stay * self.frames_per_step >= self.frames
