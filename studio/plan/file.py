"""plan.json: a --config-file of train.py with a group of flags for each model, and what studio.train and people read beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.arguments import groups_argv
from common.errors import DataError, UsageError
from common.files import parse_json, write_text
from common.options import COUNT, NOT_NEGATIVE, add_fields, check_fields, from_options, option
from common.parser import Parser
from common.spec import ModelSpec
from common.training.arguments import NOTES, STUDIO, make_options, model_parser
from common.training.options import TrainOptions
from models import REGISTRY

SHARED = "all models"  # the group of flags that the models share
NEED = "need"  # in the notes: what a short time limit lacks, in words
# The models of a voice in the order of their training: what takes minutes comes first.
MODELS: dict[str, ModelSpec] = dict(sorted(REGISTRY.items(), key=lambda item: not item[1].takes_minutes))
Group = dict[str, Any]  # flags by name, with `_` in place of `-`


@dataclass(frozen=True, kw_only=True)
class StudioSettings:
    """What plan.json says to studio.train: the group `studio`."""

    threads: int = option(1, "threads of the CPU", check=COUNT)
    sharpen_minutes: float = option(0.0, "for the postnet to learn sharp mels afterwards; 0: none", check=NOT_NEGATIVE)
    verdict_minutes: float | None = option(None, "for the verdict; null: no limit", check=NOT_NEGATIVE)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The contents of plan.json, and the options of train.py that it stands for."""

    groups: dict[str, Group]
    models: dict[str, TrainOptions] = field(default_factory=dict)
    studio: StudioSettings = StudioSettings()

    @property
    def cpu(self) -> bool:
        """True if a model is trained on the CPU although there may be a GPU."""
        return any(options.run.cpu for options in self.models.values())

    @property
    def notes(self) -> Group:
        """What people read."""
        return self.groups.get(NOTES, {})


def read_plan(path: Path) -> Plan:
    """Read and check a plan. Raises one DataError for all bad values, as `file: model.flag: found, expected …`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(_no_json(str(path), error)) from None
    return parse_plan(content, str(path))


def options_in(path: Path, name: str) -> TrainOptions | None:
    """Return a model's options in a plan; None without a plan that can be read."""
    try:
        return read_plan(path).models.get(name)
    except DataError:
        return None


def _no_json(place: str, error: Exception) -> str:
    return f"{place}: cannot be read as JSON ({error}); run `python -m studio.plan` again"


def parse_plan(text: str | bytes, place: str) -> Plan:
    """Parse and check the text of a plan, which messages call `place`. Raises DataError as read_plan does."""
    try:
        groups = parse_json(text)
    except ValueError as error:
        raise DataError(_no_json(place, error)) from None
    if not isinstance(groups, dict) or not all(isinstance(group, dict) for group in groups.values()):
        if isinstance(groups, dict) and "models" in groups:
            again = "run `python -m studio.plan` again, and training goes on from the checkpoints"
            raise DataError(f"{place}: a plan of version 0.12 or before, which is no longer read; {again}")
        raise DataError(f"{place}: expected {{group: {{flag: value}}}}")
    known = (SHARED, *MODELS, STUDIO, NOTES)
    problems = [f"{name}: no such model, expected some of {', '.join(known)}" for name in groups if name not in known]
    if groups.keys().isdisjoint(MODELS):
        problems.append(f"no model, expected some of {', '.join(MODELS)}")
    found: dict[str, Any] = {}
    for name in [*(model for model in MODELS if model in groups), STUDIO]:
        names = (SHARED, name) if name in MODELS else (name,)
        found[name], wrong = _settings_of(name, {group: groups[group] for group in names if group in groups})
        problems += wrong
    if problems:
        raise DataError("\n".join(f"{place}: {problem}" for problem in dict.fromkeys(problems)))
    return Plan(groups=groups, studio=found.pop(STUDIO), models=found)


def _settings_of(name: str, groups: dict[str, Group]) -> tuple[TrainOptions | StudioSettings | None, list[str]]:
    """Return the options of a model, or of studio.train, that groups stand for, and what is wrong with them."""
    parser = Parser(prog="train.py", add_help=False)
    if name in MODELS:
        parser = model_parser(MODELS[name], parser)
    else:
        add_fields(parser, StudioSettings)
    argv, problems = groups_argv(groups, parser)
    try:
        values = vars(parser.parse_args([] if problems else argv))
        if name in MODELS:
            return make_options(values | {"model_name": name}, MODELS[name].training), problems
        return from_options(StudioSettings, values), problems
    except UsageError as error:
        return None, [f"{name}: {line}" for line in str(error).splitlines()]


def write_plan(path: Path, groups: dict[str, Group]) -> None:
    """Write a plan. Raises OSError."""
    write_text(path, f"{json.dumps(groups, indent=1, ensure_ascii=False)}\n")
