"""Fine-tuning: initial weights from another run's checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import current_layout, load_weights
from common.errors import DataError
from common.spec import ModelSpec, Options, WarmStart
from common.training.selection import select_names
from common.training.snapshot import config_difference


def warm_start(model: nn.Module, spec: ModelSpec, path: Path, options: Options, ignored: Sequence[str]) -> str:
    """Load a checkpoint's weights into a fresh model, except those whose names match `ignored`. Returns a sentence on the result.

    Raises DataError where the other weights do not fit, UsageError for an expression without a match.
    """
    checkpoint = load_checkpoint(path)
    averaged = checkpoint.get("ema_state_dict") or checkpoint["state_dict"]
    weights = current_layout({"state_dict": averaged}, spec.upgrade_state_dict)
    left_out = select_names([*model.state_dict(), *weights], ignored, "--ignore-layers") if ignored else set()
    weights = {name: value for name, value in weights.items() if name not in left_out}
    start = WarmStart(weights, checkpoint.get("data", {}), options, model)
    fresh = {name: value for name, value in model.state_dict().items() if name in left_out}
    try:
        weights, phrase = spec.transfer(start)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    try:
        load_weights(model, {**weights, **fresh}, path)
    except DataError as error:
        hint = "; leave what differs out with --ignore-layers REGEX, or take the file's settings"
        raise DataError(f"{error}{config_difference(checkpoint.get('config'), model)}{hint}") from None
    return "; ".join([f"{path}: {_count(weights)} as a warm start at epoch 0", *_notes(left_out, model, phrase)])


def _count(weights: dict[str, Any]) -> str:
    return f"{sum(value.numel() for value in weights.values()):,} weights"


def _notes(left_out: set[str], model: nn.Module, phrase: str) -> list[str]:
    fresh = [name for name in model.state_dict() if name in left_out]
    return [*([f"{len(fresh)} tensors start anew"] if fresh else []), *([phrase] if phrase else [])]
