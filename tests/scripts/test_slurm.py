"""scripts/slurm/train.sbatch under a stand-in for SLURM: two nodes on this machine, and a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from tests.recipe import ROOT, flags, read_steps

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "slurm" / "train.sbatch"
SRUN = """#!/usr/bin/env bash
# The command on each of two nodes; signals go to both, as srun sends them on.
while [[ $1 == --* ]]; do shift; done
echo "$@" >"$COMMAND"
nodes=()
for number in 0 1; do
  SLURM_NODEID=$number "$@" &
  nodes+=("$!")
done
trap 'kill -TERM "${nodes[@]}"' TERM
failed=0
for node in "${nodes[@]}"; do
  while kill -0 "$node" 2>/dev/null; do wait "$node"; status=$?; done
  [ "$status" -eq 0 ] || failed=$status
done
exit "$failed"
"""
SCONTROL = """#!/usr/bin/env bash
case $1 in
  show) echo localhost && echo other ;;
  requeue) echo "$2" >>"$REQUEUED" ;;
esac
"""


@pytest.fixture
def submit(tmp_path: Path):
    """Run the script as a job of two nodes with one process each."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, content in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(ROOT),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "REQUEUED": str(tmp_path / "requeued"),
        "COMMAND": str(tmp_path / "command"),
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }

    def start(*words: object) -> subprocess.Popen[str]:
        command = ["bash", str(SCRIPT), *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)

    return start


def test_a_job_at_its_time_limit_saves_and_is_queued_again(submit, tmp_path: Path) -> None:
    words = flags("WaveGlow", tmp_path, 8)
    log, requeued = tmp_path / "nvlog.json", tmp_path / "requeued"
    job, deadline = submit(*words, "--epochs", 100000), time.monotonic() + 200
    while not (log.exists() and '"step": [1, 0]' in log.read_text()):
        assert job.poll() is None and time.monotonic() < deadline, job.communicate()
        time.sleep(0.05)
    job.terminate()  # as --signal=B:TERM does: the batch shell alone
    try:
        out, err = job.communicate(timeout=300)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, err
    assert "on 2 x cpu" in out and out.strip().endswith("saved; back into the queue")
    assert requeued.read_text().split() == [str(os.getpid())]
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    taken = [step for step, _ in read_steps(log) if len(step) == 2]
    assert saved["iteration"] == len(taken)
    assert saved["random_rng_states_all"].shape == (2, len(torch.get_rng_state()))
    assert "--resume-from-last" in (tmp_path / "command").read_text().split()  # for the job's next turn


def test_it_must_start_in_the_project_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: no train.py in {tmp_path}: submit from the project's folder\n"
