"""A process that hangs or is lost with its machine ends the run with its number, and without waiting for ever."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from common.checkpoint.files import load_checkpoint
from tests.recipe import flags, read_steps, start, succeed, wait_for_epoch_1
from tests.test_scale import ENVIRONMENT, LAUNCHER, children, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc"),
]
SHORT = ["--timeout-minutes", 0.1]
ENDLESS = ["--epochs", 10**5, "-bs", 1]


def rank_of(process: int) -> int:
    """Return a process's rank as torchrun set it."""
    words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next(int(word.removeprefix(b"RANK=")) for word in words if word.startswith(b"RANK="))


def trained_steps(folder: Path) -> int:
    return sum(len(step) == 2 for step, _ in read_steps(folder / "nvlog.json"))


def kill_all(*processes: int) -> None:
    for process in processes:
        if Path(f"/proc/{process}").exists():
            os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("hung", [0, 1])
def test_a_process_that_hangs_is_named_and_the_main_one_saves(tmp_path: Path, hung: int) -> None:
    words = [*flags("WaveGlow", tmp_path), *ENDLESS, *SHORT]
    launch = start(*LAUNCHER, "train.py", *words, environment=ENVIRONMENT)
    wait_for_epoch_1(launch, tmp_path)
    by_rank = {rank_of(process): process for process in children(launch.pid)}
    os.kill(by_rank[hung], signal.SIGSTOP)
    before = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"]
    _out, err = launch.communicate(timeout=300)
    assert launch.returncode == 1
    named = (
        f"error: process {hung} of 2 did not answer for 0.1 minutes (--timeout-minutes): stopped, waiting for a disk"
    )
    assert named in err and "Traceback" not in err
    after = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"]
    if hung == 0:  # the main process alone can save
        assert after == before
        return
    assert re.search(rf"; saved {tmp_path}/checkpoint_WaveGlow_\d+\.pt; add --resume-from-last", err)
    assert before < after == trained_steps(tmp_path)
    epoch = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["epoch"]
    words = [*flags("WaveGlow", tmp_path), "-bs", 1, "--epochs", epoch + 1, "--resume-from-last"]
    assert f"resuming in epoch {epoch}" in succeed("train.py", *words)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_machine_ends_the_run_on_the_others(tmp_path: Path, lost: int) -> None:
    """Two launchers stand for two machines; one and its process are killed, with the store of the meeting place or without."""
    meeting = f"localhost:{free_port()}"
    rendezvous = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "9"]
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, "--rdzv-endpoint", meeting, "train.py"]
    words = [*flags("WaveGlow", tmp_path), *ENDLESS, *SHORT]
    launches = [start(*command, *words, environment=ENVIRONMENT) for _ in range(2)]
    try:
        wait_for_epoch_1(launches[0], tmp_path)
        by_rank = {rank_of(children(launch.pid)[0]): launch for launch in launches}
        kill_all(by_rank[lost].pid, *children(by_rank[lost].pid))
        _, err = by_rank[1 - lost].communicate(timeout=200)
    finally:
        kill_all(*(process for launch in launches for process in (launch.pid, *children_if_any(launch.pid))))
    assert by_rank[1 - lost].returncode == 1
    # A launcher that loses the store ends its process, sometimes before that one has found the loss.
    found = r"error: (process \d of 2|another process of this run) ended for the reason above, or with a machine"
    assert re.search(found, err) or "RendezvousConnectionError" in err
    load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")


def children_if_any(process: int) -> list[int]:
    return children(process) if Path(f"/proc/{process}/task").exists() else []
