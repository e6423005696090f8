"""The context of the page: settings that all tabs share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from studio.jobs import Jobs


@dataclass(frozen=True)
class Context:
    """The folder of all projects, True for computing on the CPU alone, and the runs of commands."""

    projects: Path
    cpu: bool
    jobs: Jobs
