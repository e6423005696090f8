"""Commands of a project as processes of their own, which keep running when the page or its server is closed.

PROJECT/jobs/NAME.json describes the newest run of a command; NAME.log has its output, NAME.exit its exit code, and NAME.pause
exists once it has been paused. A later server finds a run by these files: its process must have the id, the start time and the
command line in the file.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

import psutil

from common import precision
from common.errors import INTERRUPTED, DataError, printable
from common.files import make_folder
from common.system import locked_folder
from studio.jobs.run_files import Run, find_process, read_note, read_run, write_note
from studio.project import ROOT, Project, list_projects
from studio.train.process import describe_signal

RUNNER = "studio.jobs.run_files"
CPU = "cpu"  # the only device of a machine without GPUs
ON_DEVICE = ("plan", "train")  # these need a device of their own
TAIL = 2**16  # bytes read for the last lines of a log


class State(Enum):
    """State of a run."""

    RUNNING = "running"
    STOPPING = "stopping"  # paused, and saving
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"  # ended without an exit code: killed, or the machine restarted


@dataclass(frozen=True, kw_only=True)
class Job:
    """The newest run of a command of a project, at the time it was looked up."""

    project: Project
    name: str
    run: Run
    state: State
    exit_code: int | None

    @property
    def is_active(self) -> bool:
        """True while its process runs."""
        return self.state in (State.RUNNING, State.STOPPING)

    def tail(self, lines: int = 12) -> str:
        """Return the last lines of this run's output."""
        try:
            with job_file(self.project, self.name, "log").open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self.run.log_start, end - TAIL))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        shown = [line.rpartition("\r")[2] for line in text.rstrip().split("\n")]  # a progress bar overwrites its line
        return printable("\n".join(shown[-lines:]))

    @property
    def message(self) -> str:
        """The state in a sentence; after a failure with the error, without a traceback."""
        command = f"python -m {self.run.words[0]}"
        sentences = {
            State.RUNNING: f"{command} is running.",
            State.STOPPING: f"{command} is saving before it stops.",
            State.PAUSED: f"{command} was paused. Start it again to resume.",
            State.FINISHED: f"{command} has finished.",
            State.LOST: f"{command} ended without an exit code: it was killed, or the machine restarted. Start it again to resume.",
        }
        if self.state in sentences:
            return sentences[self.state]
        code = self.exit_code or 0
        failure = f"failed with exit code {code}"
        if code < 0:
            failure = f"was ended by {describe_signal(-code)}; its last line"
        return f"{command} {failure}: {self.error}"

    @property
    def error(self) -> str:
        """The error of a failed run: everything from its last "error:", or its last line."""
        lines = self.tail(40).splitlines()
        starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
        found = "\n".join(lines[starts[-1] :] if starts else lines[-1:]).removeprefix("error: ")
        return found or "without a message"


def job_file(project: Project, name: str, ending: str) -> Path:
    """Return a file of a project's newest run of a command."""
    return project.root / "jobs" / f"{name}.{ending}"


def machine_devices(cpu: bool) -> tuple[str, ...]:
    """Return the devices: a number for each GPU, or the CPU."""
    return (CPU,) if cpu or not precision.gpu_count() else tuple(map(str, range(precision.gpu_count())))


class Jobs:
    """The runs of all projects in a folder. Several servers and pages may share the folder."""

    def __init__(self, projects: Path, devices: Sequence[str] = (CPU,)) -> None:
        self.projects, self.devices = projects, tuple(devices)
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, project: Project, name: str, argv: Sequence[str]) -> Job:
        """Start `python -m ARGV` as the run `name` of a project, in a session of its own.

        Raises DataError if another run of the project is active, or no device is free for one that needs it.
        """
        make_folder(self.projects)
        with locked_folder(self.projects):
            self.check_free(project)
            device = self._free_device(project) if name in ON_DEVICE else ""
            return self._launch(project, name, list(argv), device)

    def pause(self, project: Project, name: str) -> None:
        """Send SIGINT to a run once, like Ctrl-C: a training saves and stops. Raises DataError if none is active."""
        with locked_folder(self.projects):
            job = self.find(project, name)
            if job is None or not job.is_active:
                raise DataError(f"{project.name}: no {name} is running")
            if job.state is State.STOPPING:  # a second signal would stop it without a save
                return
            note = job_file(project, name, "pause")
            write_note(note, {"identity": job.run.identity})
            try:
                os.kill(job.run.pid, signal.SIGINT)  # the runner passes it on
            except ProcessLookupError:  # it has just ended
                return
            except PermissionError:
                note.unlink(missing_ok=True)
                raise DataError(f"{project.name}: another user started this {name}, and has to pause it") from None

    def check_free(self, project: Project) -> None:
        """Raise DataError if a run of the project is active."""
        for job in self.of(project):
            if job.is_active:
                raise DataError(f"{project.name}: {job.run.words[0]} is working on it; wait until it ends, or pause it")

    def find(self, project: Project, name: str) -> Job | None:
        """Return the newest run of a command; None without one."""
        run = read_run(job_file(project, name, "json"))
        if run is None:
            return None
        self._reap()
        paused = read_note(job_file(project, name, "pause"), run)
        is_alive = find_process(run) is not None
        code = read_note(job_file(project, name, "exit"), run)  # after find_process: the process writes it last
        exit_code = None if is_alive or code is None else int(code.get("code", 1))
        state = _state(is_alive, exit_code, paused is not None)
        return Job(project=project, name=name, run=run, state=state, exit_code=exit_code)

    def of(self, project: Project) -> list[Job]:
        """Return the newest runs of all commands of a project."""
        names = sorted(path.stem for path in (project.root / "jobs").glob("*.json"))
        return [job for name in names if (job := self.find(project, name))]

    def active(self) -> list[Job]:
        """Return the active runs of all projects."""
        projects = [Project(name=name, projects=self.projects) for name in list_projects(self.projects)]
        return [job for project in projects for job in self.of(project) if job.is_active]

    def _free_device(self, project: Project) -> str:
        users = {job.run.device: job for job in self.active() if job.run.device}
        free = [device for device in self.devices if device not in users]
        if not free:
            names = " and ".join(sorted({f"{job.project.name} ({job.run.words[0]})" for job in users.values()}))
            place = "the processor" if self.devices == (CPU,) else "every GPU"
            raise DataError(
                f"{project.name}: {place} is in use by the project {names}; wait until it ends, or pause it"
            )
        return free[0]

    def _launch(self, project: Project, name: str, argv: list[str], device: str) -> Job:
        """Start the runner, then write the run file that it waits for."""
        log, path = job_file(project, name, "log"), job_file(project, name, "json")
        make_folder(log.parent)
        for ending in ("exit", "pause"):
            job_file(project, name, ending).unlink(missing_ok=True)
        identity = secrets.token_hex(8)
        with log.open("ab") as output:
            start = output.tell()
            with _blocked_interrupt():
                process = subprocess.Popen(
                    [sys.executable, "-m", RUNNER, str(path.resolve()), identity],
                    cwd=ROOT,
                    env=_environment(device),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        self._children.append(process)
        started = psutil.Process(process.pid).create_time()
        run = Run(identity=identity, words=argv, device=device, pid=process.pid, started=started, log_start=start)
        write_note(path, asdict(run))
        return Job(project=project, name=name, run=run, state=State.RUNNING, exit_code=None)

    def _reap(self) -> None:
        """Collect the exit codes of child processes, which stay as zombies until then."""
        for child in [child for child in self._children if child.poll() is not None]:
            with suppress(ValueError):  # another thread came first
                self._children.remove(child)


@contextmanager
def _blocked_interrupt() -> Iterator[None]:
    """Block SIGINT in this thread. The runner inherits that, so that a signal waits until it can be passed on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment(device: str) -> dict[str, str]:
    """Return the environment of a run: only its own device, and unbuffered output."""
    gpu = precision.only_gpu(int(device)) if device not in ("", CPU) else {}
    return {**os.environ, **gpu, "PYTHONUNBUFFERED": "1"}


def _state(is_alive: bool, exit_code: int | None, is_paused: bool) -> State:
    if is_alive:
        return State.STOPPING if is_paused else State.RUNNING
    if exit_code is None:
        return State.LOST
    if is_paused and exit_code in (INTERRUPTED, -signal.SIGINT):
        return State.PAUSED
    return State.FINISHED if exit_code == 0 else State.FAILED
