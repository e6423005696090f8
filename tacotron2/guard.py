"""Rules that end a free run, and guards for models with a failing gate or attention; all guards are off by default.

No checkpoint stores the guards. Ping et al. 2018 (Deep Voice 3) restrict attention to a window in inference too, but only forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from common.errors import UsageError
from common.options import Check, check_fields, flag_of, option

# B batch, S symbols, n decoder steps

MOST = 1_000_000  # frames or symbols; PyTorch refuses numbers beyond 64 bits
OFF_OR_MORE = Check(lambda value: 0 <= value < math.inf, "0 (off) or more")
SPARE_FRAMES = 50  # added to a clip's limit: half a second for the pauses of short texts


@dataclass(frozen=True, kw_only=True)
class DecodingGuard:
    """Limits on a free run; 0 is off. Raises UsageError, naming the flag, for negative, infinite and huge values."""

    attention_stop: int = option(
        0,
        "also end a clip after attention has stayed at the last symbol for N mel frames, regardless of the gate; choose "
        "more than the longest sound, for example 30; 0: off",
        metavar="N",
        check=OFF_OR_MORE,
    )
    attention_window: int = option(
        0,
        "limit the movement of attention to W symbols a decoder step, forward or back; 0: off",
        metavar="W",
        check=OFF_OR_MORE,
    )
    max_frames_per_symbol: float = option(
        0.0, f"also end a clip after X mel frames a symbol plus {SPARE_FRAMES}; 0: off", metavar="X", check=OFF_OR_MORE
    )

    def __post_init__(self) -> None:
        check_fields(self)
        counts = {flag_of(name): getattr(self, name) for name in ("attention_stop", "attention_window")}
        if beyond := [f"{flag}: {count}, expected at most {MOST}" for flag, count in counts.items() if count > MOST]:
            raise UsageError("; ".join(beyond))

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
