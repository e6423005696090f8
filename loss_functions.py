"""The criterion of the model chosen with -m."""

from __future__ import annotations

from typing import Any

from common.spec import Criterion, Options
from models import get_spec


def get_loss_function(name: str, sigma: float | None = None, options: Options | None = None) -> Criterion:
    """Criterion of a registered model: called as criterion(outputs, targets) -> scalar.

    `options` are parsed flags, of which it takes its own; `sigma`, where given, overrides theirs.
    """
    chosen: dict[str, Any] = dict(options or {})
    if sigma is not None:
        chosen["sigma"] = sigma
    return get_spec(name).make_loss(chosen)
