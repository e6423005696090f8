"""Runs of commands: start, pause, resume, a second server, a stale process id, refusals, failures."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from common.errors import DataError
from studio.jobs.jobs import Job, Jobs, State, job_file
from studio.jobs.run_files import find_process, write_note
from studio.project import Project, create_project
from tests.browser import wait as wait_for
from tests.recipe import ROOT

PATIENCE = 60  # seconds; another program may have the machine
PROBE = "tests.studio.probe_job"
OUTPUT = "step 1\n100 %\n\\x1b[31mred\nthe end"  # of one that ends, as it is shown


@pytest.fixture
def jobs(tmp_path: Path):
    """Runs in a folder; those that go on are killed at the end."""
    jobs = Jobs(tmp_path)
    yield jobs
    for job in jobs.active():
        os.killpg(job.run.pid, signal.SIGKILL)
        wait_for(lambda job=job: find_process(job.run) is None)


def start(jobs: Jobs, project: Project, *words: str, name: str = "train") -> Job:
    before = job_file(project, name, "log").stat().st_size if job_file(project, name, "log").exists() else 0
    job = jobs.start(project, name, [PROBE, *words])
    log = job_file(project, job.name, "log")
    wait_for(lambda: log.stat().st_size > before)
    return job


def look(jobs: Jobs, project: Project, name: str = "train") -> Job:
    job = jobs.find(project, name)
    assert job is not None
    return job


def end(jobs: Jobs, project: Project, name: str = "train") -> Job:
    wait_for(lambda: not look(jobs, project, name).is_active)
    return look(jobs, project, name)


def test_pause_saves_once_and_the_same_command_goes_on_to_its_end(jobs, project):
    assert jobs.find(project, "train") is None
    start(jobs, project, "wait")
    assert look(jobs, project).state is State.RUNNING
    jobs.pause(project, "train")
    wait_for(lambda: "stopping after this step" in look(jobs, project).tail())
    jobs.pause(project, "train")  # a second SIGINT would end it without a save
    job = end(jobs, project)
    assert (job.state, job.exit_code) == (State.PAUSED, 130)
    assert job.tail().splitlines()[-1] == "saved" and job.tail().count("stopping after this step") == 1
    start(jobs, project, "end")
    job = end(jobs, project)
    assert (job.state, job.exit_code) == (State.FINISHED, 0)
    assert job.message == f"python -m {PROBE} has finished."
    assert job.tail() == OUTPUT, "the output of the earlier run is no part of this one's"
    assert job_file(project, job.name, "log").read_text().count("step 1") == 2
    with pytest.raises(DataError, match="mine: no train is running"):
        jobs.pause(project, "train")


@pytest.mark.slow
def test_a_pause_before_the_command_has_begun_waits_for_it(jobs, project, tmp_path, monkeypatch):
    """An interrupt while Python itself starts is a fatal error with exit code 1, a failure."""
    slow = f"import pathlib, sys, time\nif {PROBE!r} in sys.orig_argv:\n    pathlib.Path({str(tmp_path / 'starts')!r}).touch()\n"
    (tmp_path / "sitecustomize.py").write_text(f"{slow}    time.sleep(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    jobs.start(project, "train", [PROBE, "wait"])
    wait_for((tmp_path / "starts").exists)
    jobs.pause(project, "train")
    assert end(jobs, project).state is State.PAUSED


@pytest.mark.slow
def test_a_run_goes_on_without_its_server_and_a_later_one_finds_it(jobs, project, tmp_path):
    code = (
        "import sys; from pathlib import Path; from studio.jobs.jobs import Jobs; from studio.project import Project;"
        "Jobs(Path(sys.argv[1])).start(Project(name='mine', projects=Path(sys.argv[1])), 'train', [sys.argv[2], 'wait'])"
    )
    server = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), PROBE], cwd=ROOT, start_new_session=True)
    assert server.wait(PATIENCE) == 0
    wait_for(lambda: look(jobs, project).tail() == "step 1")
    job = look(jobs, project)
    assert job.state is State.RUNNING and psutil.pid_exists(job.run.pid)
    jobs.pause(project, "train")
    assert end(jobs, project).state is State.PAUSED


def test_the_command_ends_with_a_runner_that_is_killed(jobs, project):
    job = start(jobs, project, "wait")
    (command,) = psutil.Process(job.run.pid).children()
    os.kill(job.run.pid, signal.SIGKILL)
    assert end(jobs, project).state is State.LOST
    wait_for(lambda: not command.is_running() or command.status() == psutil.STATUS_ZOMBIE)
    assert "saved" in job.tail()


def test_a_stale_run_file_is_recognised(jobs, project):
    """The id in it belongs to a process that lives, but is another one."""
    job = start(jobs, project, "wait")
    for change in ({"pid": os.getpid()}, {"started": job.run.started - 3600}, {"identity": "0" * 16}):
        stale = replace(job.run, **change)
        assert find_process(stale) is None and find_process(job.run) is not None
        write_note(job_file(project, "train", "json"), asdict(stale))
        assert look(jobs, project).state is State.LOST
        assert "killed, or the machine restarted" in look(jobs, project).message
        with pytest.raises(DataError, match="no train is running"):  # no signal reaches the other process
            jobs.pause(project, "train")
    os.killpg(job.run.pid, signal.SIGKILL)


def test_two_servers_start_one_run(jobs, project, tmp_path, monkeypatch):
    """Both look at the same moment, and find the project free."""
    check = Jobs.check_free

    def check_slowly(self: Jobs, project: Project) -> None:
        check(self, project)
        time.sleep(0.3)

    def start_run(server: Jobs) -> str:
        try:
            return server.start(project, "train", [PROBE, "wait"]).name
        except DataError as error:
            return str(error)

    monkeypatch.setattr(Jobs, "check_free", check_slowly)
    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(start_run, [jobs, Jobs(tmp_path)]))
    assert results == [f"mine: {PROBE} is working on it; wait until it ends, or pause it", "train"]


def test_a_damaged_run_file_is_none(jobs, project):
    path = job_file(project, "train", "json")
    path.parent.mkdir()
    for content in (b"", b"[]", b'{"pid": 1}', b"\xff"):
        path.write_bytes(content)
        assert jobs.find(project, "train") is None and jobs.of(project) == []


def test_one_run_a_project_and_one_training_a_device(jobs, project, tmp_path):
    other = create_project(tmp_path, "other")
    start(jobs, project, "wait")
    with pytest.raises(DataError, match=f"mine: {PROBE} is working on it"):
        Jobs(tmp_path).start(project, "prepare", [PROBE, "end"])
    for name in ("train", "plan"):
        with pytest.raises(DataError, match="other: the processor is in use by the project mine"):
            Jobs(tmp_path).start(other, name, [PROBE, "end"])
    start(jobs, other, "end", name="prepare")  # needs no device
    assert end(jobs, other, "prepare").state is State.FINISHED
    two = Jobs(tmp_path, ("0", "1", "2"))
    path = job_file(project, "train", "json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"device": "0"}))
    start(two, other, "device")
    assert end(two, other).tail() == "step 1\n1", "the second training has the first free GPU alone"


def test_a_failure_is_shown_by_code_and_last_lines(jobs, project):
    start(jobs, project, "fail")
    job = end(jobs, project)
    assert (job.state, job.exit_code) == (State.FAILED, 1)
    assert job.message == f"python -m {PROBE} failed with exit code 1: clips.tsv:3: bad\nclips.tsv:4: bad"
    start(jobs, project, "crash")
    job = end(jobs, project)
    assert job.message == f"python -m {PROBE} failed with exit code 1: RuntimeError: a fault"
    assert "Traceback" in job.tail() and "Traceback" not in job.message
    job = start(jobs, project, "wait")
    (command,) = psutil.Process(job.run.pid).children()
    command.kill()
    job = end(jobs, project)
    assert (job.state, job.exit_code) == (State.FAILED, -9)
    assert "ended by SIGKILL, perhaps out of memory" in job.message
