"""What all tabs of the page share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from studio.jobs.jobs import Jobs


@dataclass(frozen=True)
class Context:
    """The folder of all projects, whether to compute on the CPU only, and the runs of commands."""

    projects: Path
    cpu: bool
    jobs: Jobs
