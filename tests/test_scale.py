"""Training over processes and nodes, sharded or not, ends with the weights of a single process; a hang or lost machine ends it."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from tests.recipe import (
    LAUNCHER,
    Process,
    children,
    finish,
    flags,
    read_steps,
    start,
    start_nodes,
    start_ranks,
    succeed,
    wait_for_epoch_1,
)

pytestmark = pytest.mark.slow
needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")

EPOCHS = ["--epochs", "3"]
SHORT = ["--timeout-minutes", 0.5]  # which a process of a loaded machine keeps; the tests before these take longer
ENDLESS = ["--epochs", 10**5, "-bs", 1]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["state_dict"]


def assert_close(folder: Path, expected: Path) -> None:
    found, reference = weights(folder), weights(expected)
    assert list(found) == list(reference)
    for name, value in reference.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def single_process(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    succeed("train.py", *flags("WaveGlow", folder, 8), "-bs", 4, *EPOCHS)
    return folder


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two_processes")
    finish(start_ranks("train.py", *flags("WaveGlow", folder, 8), *EPOCHS))
    return folder


def test_two_processes_train_as_one_with_batches_of_twice_the_size(single_process: Path, two_processes: Path) -> None:
    assert_close(two_processes, single_process)
    first = load_checkpoint(single_process / "checkpoint_WaveGlow_0.pt")["state_dict"]
    moved = [(value - first[name]).abs().max() for name, value in weights(single_process).items()]
    assert max(moved) > 2e-4  # there was something to get wrong
    one, two = (
        [(step, data) for step, data in read_steps(folder / "nvlog.json") if len(step) in (1, 2)]
        for folder in (single_process, two_processes)
    )
    for (step, mine), (same_step, theirs) in zip(one, two, strict=True):
        assert step == same_step
        for key in mine.keys() & {"train_loss", "val_loss"}:
            assert theirs[key] == pytest.approx(mine[key], abs=1e-5), step
        if len(step) == 2:  # items of both processes
            items = [data["train_items_per_sec"] * data["train_iter_time"] for data in (mine, theirs)]
            assert items == pytest.approx([4 * 4096] * 2)


@needs_proc
def test_a_killed_process_leads_to_the_weights_of_an_uninterrupted_run(tmp_path: Path, two_processes: Path) -> None:
    """Kill one after the first step of epoch 1; the launcher restarts all processes from the checkpoint of epoch 0."""
    argv = [*flags("WaveGlow", tmp_path, 8), *EPOCHS, "--epochs-per-checkpoint", "1"]
    process = start(*LAUNCHER, "--max-restarts", "2", "train.py", *argv)
    wait_for_epoch_1(process, tmp_path)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert "checkpoint_WaveGlow_last.pt: resuming at epoch 1" in out
    final, expected = weights(tmp_path), weights(two_processes)
    assert all(torch.equal(final[name], value) for name, value in expected.items())
    steps = [step for step, data in read_steps(tmp_path / "nvlog.json") if len(step) == 2]
    assert steps[:2] == [(0, 0), (0, 1)] and steps[-2:] == [(2, 0), (2, 1)]


def test_sharded_training_equals_unsharded_training(tmp_path: Path, single_process: Path) -> None:
    """Two epochs with --cpu-offload, one without. The files are equal too: a single process resumes from that of two."""
    argv = [*flags("WaveGlow", tmp_path, 8), "--ema-decay", "0.5"]
    finish(start_ranks("train.py", *argv, "--shard", "--cpu-offload", "--epochs", "2"))
    middle = load_checkpoint(tmp_path / "checkpoint_WaveGlow_1.pt")
    assert all(type(value) is torch.Tensor for value in middle["state_dict"].values())
    out, _ = finish(start_ranks("train.py", *argv, "--shard", *EPOCHS, "--resume-from-last"))[0]
    assert "resuming at epoch 2" in out and "start anew" not in out
    assert_close(tmp_path, single_process)
    one = load_checkpoint(single_process / "checkpoint_WaveGlow_last.pt")
    cut = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert set(cut) == {*one, "ema_state_dict", "ema_updates"}
    for number, state in one["optimizer"]["state"].items():
        torch.testing.assert_close(cut["optimizer"]["state"][number]["exp_avg"], state["exp_avg"], rtol=1e-3, atol=1e-5)
    out = succeed("train.py", *argv, "-bs", 4, "--epochs", 4, "--resume-from-last")
    assert "resuming at epoch 3 (random numbers start anew" in out


def rank_of(process: int) -> int:
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


@pytest.fixture(scope="module", autouse=True)
def survivors(tmp_path_factory) -> Iterator[dict[tuple[Any, int], Survivor]]:
    """The survivors of each fault of each process. They wait for the others during the tests before theirs."""
    started: list[Process] = []
    if needs_proc.args[0]:
        yield {}
        return
    try:
        yield {
            (fault, number): fault(tmp_path_factory.mktemp("run"), number, started)
            for fault, number in ((hang, 0), (hang, 1), (lose_machine, 0))
        }
    finally:
        for process in started:
            if process.poll() is None:
                kill_all(process.pid, *children(process.pid))


@needs_proc
@pytest.mark.parametrize("hung", [0, 1])
def test_a_process_that_hangs_is_named_and_the_main_one_saves(survivors: dict, hung: int) -> None:
    process, folder, before = survivors[hang, hung]
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    named = f"process {hung} of 2 did not answer for 0.5 minutes (--timeout-minutes): stopped, waiting for a disk"
    # The store is lost with the main process, so that the other one cannot tell which process hangs.
    assert ("error: " + named if hung else "did not answer for 0.5 minutes") in err and "Traceback" not in err
    after = stored_iteration(folder)
    if hung == 0:  # the main process alone can save
        assert after == before
        return
    assert re.search(rf"; saved {folder}/checkpoint_WaveGlow_\d+\.pt; add --resume-from-last", err)
    assert before < after == sum(len(step) == 2 for step, _ in read_steps(folder / "nvlog.json"))
    epoch = load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["epoch"]
    argv = [*flags("WaveGlow", folder), "-bs", 1, "--epochs", epoch + 1, "--resume-from-last"]
    assert f"resuming in epoch {epoch}" in succeed("train.py", *argv)


@needs_proc
def test_a_lost_machine_ends_the_run_on_the_others(survivors: dict) -> None:
    """The first one, with the store."""
    process, folder, _ = survivors[lose_machine, 0]
    _, err = process.communicate(timeout=200)
    assert process.returncode == 1
    # A launcher that loses the store, which is the first one's, ends its process, sometimes before that one has found the loss.
    found = r"error: (process \d of 2|another process of this run) ended for the reason above, or with a machine"
    assert re.search(found, err) or "RendezvousConnectionError" in err
    load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")
