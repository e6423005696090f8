"""The progress of a project's training, PROJECT/runs/progress.json: seconds spent, and plans finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from common.errors import DataError
from common.files import parse_json, write_text
from studio.plan.commands import train_argv
from studio.plan.file import Plan
from studio.project import Project


@dataclass
class ModelProgress:
    """Time spent on a model."""

    seconds: float = 0.0  # under all plans
    plan: str = ""  # digest of the newest plan
    spent: float = 0.0  # seconds under it
    finished: str = ""  # digest of the plan that is complete
    reason: str = ""  # why it ended

    def __post_init__(self) -> None:
        self.seconds, self.spent = float(self.seconds), float(self.spent)


class TrainingProgress:
    """The progress of all models, written on each change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.models: dict[str, ModelProgress] = {}
        try:
            self.models = {name: ModelProgress(**value) for name, value in parse_json(path.read_bytes()).items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: cannot be read ({error}); delete it to forget the time spent") from None

    def of(self, name: str) -> ModelProgress:
        """Return a model's progress."""
        return self.models.setdefault(name, ModelProgress())

    def forget(self, names: Iterable[str]) -> None:
        """Forget the time spent on models and their finished plans, as for those whose checkpoints were deleted."""
        for name in names:
            self.models.pop(name, None)

    def begin(self, name: str, plan: str) -> None:
        """Record the digest of a model's plan. A changed plan has all its hours again."""
        model = self.of(name)
        if model.plan != plan:
            model.plan, model.spent, model.finished, model.reason = plan, 0.0, "", ""

    def spend(self, name: str, seconds: float) -> None:
        """Add seconds of training under the current plan."""
        self.of(name).seconds += seconds
        self.of(name).spent += seconds
        self._write()

    def finish(self, name: str, plan: str, reason: str) -> None:
        """Record the end of a model's plan."""
        self.of(name).finished, self.of(name).reason = plan, reason
        self._write()

    def _write(self) -> None:
        write_text(self.path, json.dumps({name: asdict(value) for name, value in self.models.items()}, indent=1))


def digest(name: str, plan: Plan, project: Project) -> str:
    """Digest what decides a model's training: its settings and the filelists.

    The project's folder is left out of paths, since the page and a terminal spell it differently.
    """
    root = str(project.root)
    argv = [item.replace(root, "", 1) if item.startswith(root) else item for item in train_argv(name, plan, project)]
    lists = [
        path.read_text(encoding="utf-8") for path in (project.training_list, project.validation_list) if path.exists()
    ]
    settings = [argv, plan.models[name].hours, lists]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
