"""plan.json: training settings, which people may edit; every bad value is reported by file and field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from common.arguments import LARGEST_SEED
from common.errors import DataError
from common.files import parse_json, write_text
from common.options import TRUTH, Check, is_number, is_whole
from common.spec import ModelSpec
from common.training.optimization import SCHEDULES
from common.training.options import BEST_BY
from models import REGISTRY

VERSION = 1
NEED = "need"  # in the notes: what a short time limit lacks, in words
# The models of a voice in the order of their training: what takes minutes comes first.
MODELS: dict[str, ModelSpec] = dict(sorted(REGISTRY.items(), key=lambda item: not item[1].takes_minutes))


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """Training settings of one model. `options`: further options of train.py by name."""

    warm_start: str | None
    batch_size: int
    grad_accumulation_steps: int
    epochs: int
    learning_rate: float
    lr_schedule: str
    warmup_steps: int
    report_every: int  # epochs
    report_lines: int
    best_by: str
    patience: int  # reports without a gain
    hours: float | None  # time limit
    options: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)  # of the settings above, for people


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The contents of plan.json; `notes` are for people."""

    seed: int
    threads: int
    cpu: bool
    models: dict[str, ModelPlan]
    notes: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


def _whole(low: int) -> Check:
    return Check(lambda value: is_whole(value) and value >= low, f"a whole number of at least {low}")


def _positive(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def _one_of(names: Any) -> Check:
    return Check(lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}")


OBJECT = Check(lambda value: isinstance(value, dict), "a JSON object")
MODEL_CHECKS: dict[str, Check] = {
    "warm_start": Check(lambda value: value is None or (isinstance(value, str) and value != ""), "a path or null"),
    "batch_size": _whole(1),
    "grad_accumulation_steps": _whole(1),
    "epochs": _whole(1),
    "learning_rate": Check(_positive, "a number above 0"),
    "lr_schedule": _one_of(SCHEDULES),
    "warmup_steps": _whole(0),
    "report_every": _whole(1),
    "report_lines": _whole(1),
    "best_by": _one_of(list(BEST_BY)),
    "patience": _whole(1),
    "hours": Check(lambda value: value is None or _positive(value), "a number above 0, or null"),
    "options": OBJECT,
    "reasons": OBJECT,
}
PLAN_CHECKS: dict[str, Check] = {
    "seed": Check(lambda value: is_whole(value) and 0 <= value <= LARGEST_SEED, "a whole number from 0 to 2^32 - 1"),
    "threads": _whole(1),
    "cpu": TRUTH._replace(expected="true or false"),
    "models": Check(lambda value: isinstance(value, dict) and bool(value), "a JSON object with at least one model"),
    "notes": OBJECT,
    "version": Check(lambda value: value == VERSION and type(value) is int, f"{VERSION}"),
}
RETIRED = "predicted_mels"  # of plans of 0.10 and before
RETIRED_HINT = "no longer a setting of the studio; `python -m scripts.predict_mels` predicts mels for train.py"
OPTIONAL = ("options", "reasons", "notes")


def read_plan(path: Path) -> Plan:
    """Read and check a plan. Raises one DataError for all bad values, as `file: field: found, expected …`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DataError(_no_json(str(path), error)) from None
    return parse_plan(text, str(path))


def settings_of(path: Path, name: str) -> ModelPlan | None:
    """Return a model's settings in a plan; None without a plan that can be read."""
    try:
        return read_plan(path).models.get(name)
    except DataError:
        return None


def _no_json(place: str, error: Exception) -> str:
    return f"{place}: cannot be read as JSON ({error}); run `python -m studio.plan` again"


def parse_plan(text: str, place: str) -> Plan:
    """Parse and check the text of a plan, which messages call `place`. Raises DataError as read_plan does."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise DataError(_no_json(place, error)) from None
    if not isinstance(content, dict):
        raise DataError(f"{place}: a {type(content).__name__}, expected a JSON object")
    problems = _problems(content, PLAN_CHECKS, "")
    models = content.get("models")
    for name, settings in (models if isinstance(models, dict) else {}).items():
        if name not in MODELS:
            problems.append(f"models.{name}: no such model, expected some of {', '.join(MODELS)}")
        elif not isinstance(settings, dict):
            problems.append(f"models.{name}: {settings!r}, expected a JSON object")
        else:
            if settings.get(RETIRED, True) is False:  # as plans of 0.10 and before have it
                del settings[RETIRED]
            problems += _problems(settings, MODEL_CHECKS, f"models.{name}.")
    if problems:
        raise DataError("\n".join(f"{place}: {problem}" for problem in problems))
    return Plan(**content | {"models": {name: ModelPlan(**settings) for name, settings in content["models"].items()}})


def _problems(content: Mapping[str, Any], checks: Mapping[str, Check], place: str) -> list[str]:
    """List unknown, missing and bad fields."""
    names = ", ".join(checks)
    found = [
        f"{place}{name}: {RETIRED_HINT if name == RETIRED else f'no such field, expected some of {names}'}"
        for name in content
        if name not in checks
    ]
    for name, check in checks.items():
        if name in content:
            found += check.problems(f"{place}{name}", content[name], json.dumps)
        elif name not in OPTIONAL:
            found.append(f"{place}{name}: missing, expected {check.expected}")
    return found


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan. Raises OSError."""
    assert set(MODEL_CHECKS) == {item.name for item in fields(ModelPlan)}
    write_text(path, f"{json.dumps(asdict(plan), indent=1, ensure_ascii=False)}\n")
