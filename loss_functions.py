"""The criterion of the model chosen with -m."""

from __future__ import annotations

from typing import Any

from common.spec import Criterion, Options
from models import get_spec


def get_loss_function(name: str, sigma: float | None = None, options: Options | None = None) -> Criterion:
    """Build the criterion of a registered model: criterion(outputs, targets) -> scalar.

    It takes its own options from the parsed flags `options`; `sigma`, if not None, overrides them.
    """
    selected: dict[str, Any] = dict(options or {})
    if sigma is not None:
        selected["sigma"] = sigma
    return get_spec(name).make_loss(selected)
