"""plan.json: training settings, which people may edit; every bad value is reported by file and field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from common.arguments import LARGEST_SEED
from common.errors import DataError
from common.files import parse_json, write_text
from common.options import TRUTH, Check, is_number, is_whole, option
from common.spec import ModelSpec
from common.training.optimization import SCHEDULES
from common.training.options import BEST_BY
from models import REGISTRY

VERSION = 1
NEED = "need"  # in the notes: what a short time limit lacks, in words
VERDICT = "verdict_minutes"  # of `notes`: what the time limit leaves for the verdict
# The models of a voice in the order of their training: what takes minutes comes first.
MODELS: dict[str, ModelSpec] = dict(sorted(REGISTRY.items(), key=lambda item: not item[1].takes_minutes))


def _whole(low: int) -> Check:
    return Check(lambda value: is_whole(value) and value >= low, f"a whole number of at least {low}")


def _positive(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def _one_of(names: Any) -> Check:
    return Check(lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}")


PATH = Check(lambda value: value is None or (isinstance(value, str) and value != ""), "a path or null")
HOURS = Check(lambda value: value is None or _positive(value), "a number above 0, or null")
MINUTES = Check(lambda value: is_number(value) and 0 <= value < math.inf, "a number of at least 0")
SEED = Check(lambda value: is_whole(value) and 0 <= value <= LARGEST_SEED, "a whole number from 0 to 2^32 - 1")
SOME_MODELS = Check(lambda value: isinstance(value, dict) and bool(value), "a JSON object with at least one model")
OBJECT = Check(lambda value: isinstance(value, dict), "a JSON object")


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """Training settings of one model."""

    warm_start: str | None = option(MISSING, "checkpoint to start from", check=PATH)
    batch_size: int = option(MISSING, "clips of a batch", check=_whole(1))
    grad_accumulation_steps: int = option(MISSING, "batches of an optimizer step", check=_whole(1))
    epochs: int = option(MISSING, "epochs at most", check=_whole(1))
    learning_rate: float = option(MISSING, "highest learning rate", check=Check(_positive, "a number above 0"))
    lr_schedule: str = option(MISSING, "schedule of the rate", check=_one_of(SCHEDULES))
    warmup_steps: int = option(MISSING, "steps in which the rate grows", check=_whole(0))
    report_every: int = option(MISSING, "epochs between reports", check=_whole(1))
    report_lines: int = option(MISSING, "lines of a report", check=_whole(1))
    best_by: str = option(MISSING, "measure that selects the best checkpoint", check=_one_of(list(BEST_BY)))
    patience: int = option(MISSING, "reports without a gain", check=_whole(1))
    hours: float | None = option(MISSING, "time limit", check=HOURS)
    sharpen_minutes: float = option(0.0, "minutes in which the postnet then learns sharp mels; 0: none", check=MINUTES)
    options: dict[str, Any] = option({}, "further options of train.py by name", check=OBJECT)
    reasons: dict[str, str] = option({}, "why each setting has its value, for people", check=OBJECT)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The contents of plan.json."""

    seed: int = option(MISSING, "random seed", check=SEED)
    threads: int = option(MISSING, "threads of the CPU", check=_whole(1))
    cpu: bool = option(MISSING, "train on the CPU", check=TRUTH._replace(expected="true or false"))
    models: dict[str, ModelPlan] = option(MISSING, "settings by model", check=SOME_MODELS)
    notes: dict[str, Any] = option({}, "for people", check=OBJECT)
    version: int = option(
        VERSION, "of the format", check=Check(lambda value: type(value) is int and value == VERSION, f"{VERSION}")
    )


RETIRED = "predicted_mels"  # of plans of 0.10 and before
RETIRED_HINT = "no longer a setting of the studio; `python -m scripts.predict_mels` predicts mels for train.py"


def read_plan(path: Path) -> Plan:
    """Read and check a plan. Raises one DataError for all bad values, as `file: field: found, expected …`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(_no_json(str(path), error)) from None
    return parse_plan(content, str(path))


def settings_of(path: Path, name: str) -> ModelPlan | None:
    """Return a model's settings in a plan; None without a plan that can be read."""
    try:
        return read_plan(path).models.get(name)
    except DataError:
        return None


def _no_json(place: str, error: Exception) -> str:
    return f"{place}: cannot be read as JSON ({error}); run `python -m studio.plan` again"


def parse_plan(text: str | bytes, place: str) -> Plan:
    """Parse and check the text of a plan, which messages call `place`. Raises DataError as read_plan does."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise DataError(_no_json(place, error)) from None
    if not isinstance(content, dict):
        raise DataError(f"{place}: a {type(content).__name__}, expected a JSON object")
    problems = _problems(content, Plan, "")
    models = content.get("models")
    for name, settings in (models if isinstance(models, dict) else {}).items():
        if name not in MODELS:
            problems.append(f"models.{name}: no such model, expected some of {', '.join(MODELS)}")
        elif not isinstance(settings, dict):
            problems.append(f"models.{name}: {settings!r}, expected a JSON object")
        else:
            if settings.get(RETIRED, True) is False:  # as plans of 0.10 and before have it
                del settings[RETIRED]
            problems += _problems(settings, ModelPlan, f"models.{name}.")
            if MODELS[name].role != "acoustic" and settings.get("sharpen_minutes"):
                problems.append(f"models.{name}.sharpen_minutes: expected 0, since a vocoder makes no mels")
    if problems:
        raise DataError("\n".join(f"{place}: {problem}" for problem in problems))
    return Plan(**content | {"models": {name: ModelPlan(**settings) for name, settings in content["models"].items()}})


def _problems(content: Mapping[str, Any], kind: type, place: str) -> list[str]:
    """List unknown, missing and bad fields of a ModelPlan or a Plan."""
    known = {item.name: item for item in fields(kind)}
    unknown = f"no such field, expected some of {', '.join(known)}"
    found = [f"{place}{name}: {RETIRED_HINT if name == RETIRED else unknown}" for name in content if name not in known]
    for name, item in known.items():
        check: Check = item.metadata["check"]
        if name in content:
            found += check.problems(f"{place}{name}", content[name], json.dumps)
        elif item.default_factory is MISSING:
            found.append(f"{place}{name}: missing, expected {check.expected}")
    return found


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan. Raises OSError."""
    write_text(path, f"{json.dumps(asdict(plan), indent=1, ensure_ascii=False)}\n")
