"""A process that hangs or is lost with its machine ends the run with its number, and without waiting for ever."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from common.checkpoint.files import load_checkpoint
from tests.recipe import (
    Process,
    children,
    flags,
    read_steps,
    start_nodes,
    start_ranks,
    succeed,
    wait_for_epoch_1,
)

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


def kill_all(*processes: int) -> None:
    for process in processes:
        if Path(f"/proc/{process}").exists():
            os.kill(process, signal.SIGKILL)


def stored_iteration(folder: Path) -> int:
    return load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["iteration"]


class Survivor(NamedTuple):
    """What is left of a run into `folder`: a process or its launcher, and the iteration of the checkpoint at the fault."""

    process: Process
    folder: Path
    iteration: int


def hang(folder: Path, number: int, started: list[Process]) -> Survivor:
    processes = start_ranks("train.py", *flags("WaveGlow", folder), *ENDLESS, *SHORT)
    started += processes
    wait_for_epoch_1(processes[0], folder)
    processes[number].send_signal(signal.SIGSTOP)
    return Survivor(processes[1 - number], folder, stored_iteration(folder))


def lose_machine(folder: Path, number: int, started: list[Process]) -> Survivor:
    """Two launchers stand for two machines; one and its process are killed, with the store of the meeting place or without."""
    nodes = start_nodes(*flags("WaveGlow", folder), *ENDLESS, *SHORT)
    started += nodes
    wait_for_epoch_1(nodes[0], folder)
    by_rank = {rank_of(children(node.pid)[0]): node for node in nodes}
    kill_all(by_rank[number].pid, *children(by_rank[number].pid))
    return Survivor(by_rank[1 - number], folder, stored_iteration(folder))


@pytest.fixture(scope="module")
def survivors(tmp_path_factory) -> Iterator[dict[tuple[Any, int], Survivor]]:
    """The survivors of each fault of each process. They wait for the others while the next run starts."""
    started: list[Process] = []
    try:
        yield {
            (fault, number): fault(tmp_path_factory.mktemp("run"), number, started)
            for fault in (hang, lose_machine)
            for number in (0, 1)
        }
    finally:
        for process in started:
            if process.poll() is None:
                kill_all(process.pid, *children(process.pid))


@pytest.mark.parametrize("hung", [0, 1])
def test_a_process_that_hangs_is_named_and_the_main_one_saves(survivors: dict, hung: int) -> None:
    process, folder, before = survivors[hang, hung]
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    named = f"process {hung} of 2 did not answer for 0.1 minutes (--timeout-minutes): stopped, waiting for a disk"
    # The store is lost with the main process, so that the other one cannot tell which process hangs.
    assert ("error: " + named if hung else "did not answer for 0.1 minutes") in err and "Traceback" not in err
    after = stored_iteration(folder)
    if hung == 0:  # the main process alone can save
        assert after == before
        return
    assert re.search(rf"; saved {folder}/checkpoint_WaveGlow_\d+\.pt; add --resume-from-last", err)
    assert before < after == sum(len(step) == 2 for step, _ in read_steps(folder / "nvlog.json"))
    epoch = load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["epoch"]
    argv = [*flags("WaveGlow", folder), "-bs", 1, "--epochs", epoch + 1, "--resume-from-last"]
    assert f"resuming in epoch {epoch}" in succeed("train.py", *argv)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_machine_ends_the_run_on_the_others(survivors: dict, lost: int) -> None:
    process, folder, _ = survivors[lose_machine, lost]
    _, err = process.communicate(timeout=200)
    assert process.returncode == 1
    # A launcher that loses the store ends its process, sometimes before that one has found the loss.
    found = r"error: (process \d of 2|another process of this run) ended for the reason above, or with a machine"
    assert re.search(found, err) or "RendezvousConnectionError" in err
    load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")
