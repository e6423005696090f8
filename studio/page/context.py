"""What all tabs of the page share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from studio.jobs.jobs import Jobs
from studio.page.samples import SampleSpeaker


@dataclass(frozen=True)
class Context:
    """The folder of all projects, whether to compute on the CPU only, and the runs of commands."""

    projects: Path
    cpu: bool
    jobs: Jobs

    @cached_property
    def speaker(self) -> SampleSpeaker:
        """The synthesis of all tabs, one text at a time; on the CPU while a command uses a GPU."""
        return SampleSpeaker(self.cpu, lambda: any(job.run.device for job in self.jobs.active()))
