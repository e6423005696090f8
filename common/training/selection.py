"""Selection of weights by flags: regular expressions over their names."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import nn

from common.errors import UsageError

NORMS = nn.modules.batchnorm._BatchNorm


class RateFactor(NamedTuple):
    """A factor on the learning rate of the weights whose names match."""

    pattern: str
    factor: float


def pattern(text: str) -> str:
    """An argparse type: a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def rate_factor(text: str) -> RateFactor:
    """An argparse type: REGEX=FACTOR."""
    expression, found, factor = text.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        value = -1.0
    if not found or not expression or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected REGEX=FACTOR with a factor above 0, such as ^encoder=0.1")
    return RateFactor(pattern(expression), value)


def factor_of(name: str, factors: Sequence[RateFactor]) -> float:
    """Return the factor of the first expression that matches a weight's name, else 1."""
    return next((item.factor for item in factors if re.search(item.pattern, name)), 1.0)


def select_names(names: Iterable[str], patterns: Sequence[str], flag: str) -> set[str]:
    """Return the names that match any pattern. Raises UsageError that lists the patterns without a match."""
    names = list(names)
    by_pattern = {expression: {name for name in names if re.search(expression, name)} for expression in patterns}
    if idle := [expression for expression, found in by_pattern.items() if not found]:
        parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
        raise UsageError(
            f"{flag}: no weight's name matches {', '.join(map(repr, idle))}; names start with {parts}; "
            "`python -m common.checkpoint inspect --tensors CHECKPOINT` lists all"
        )
    return {name for found in by_pattern.values() for name in found}


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude the weights whose names match from training. Raises UsageError where no weight remains to train."""
    if not patterns:
        return
    names = select_names((name for name, _ in model.named_parameters()), patterns, "--freeze")
    for name, weight in model.named_parameters():
        weight.requires_grad_(name not in names)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise UsageError(f"--freeze: {', '.join(map(repr, patterns))} leave no weight to train")


def train_mode(model: nn.Module) -> None:
    """Call model.train(), except for BatchNorms with frozen weights alone: their statistics are frozen too."""
    model.train()
    for module in model.modules():
        if isinstance(module, NORMS) and not any(weight.requires_grad for weight in module.parameters()):
            module.eval()
