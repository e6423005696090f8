"""Training that loses processes, spans nodes, or cuts its weights: the same weights in the end as one process alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.training.checkpoint import load_checkpoint
from tests import recipe
from tests.recipe import flags, read_steps, succeed, wait_for_epoch_1

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
LAUNCHER = [sys.executable, "-m", "multiproc", "--nproc", "2"]
EPOCHS = ["--epochs", "3"]


def start(*words: object) -> subprocess.Popen[str]:
    """A launch in the background, with one thread a process."""
    return recipe.start(*words, environment=ENVIRONMENT)


def ends_well(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its stdout and stderr, once it has ended with 0."""
    try:
        out, err = process.communicate(timeout=400)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, err
    return out, err


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["state_dict"]


def assert_close(folder: Path, wanted: Path) -> None:
    """The weights are equal but for the order of additions."""
    found, reference = weights(folder), weights(wanted)
    assert list(found) == list(reference)
    for name, value in reference.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """A tiny WaveGlow trained by one process on batches of four."""
    folder = tmp_path_factory.mktemp("alone")
    succeed("train.py", *flags("WaveGlow", folder, 8), "-bs", 4, *EPOCHS)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The same by two processes on batches of two."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ends_well(start(*LAUNCHER, "train.py", *flags("WaveGlow", folder, 8), *EPOCHS))
    return folder


def children(pid: int) -> list[int]:
    """The processes that a process has started and not lost yet."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
def test_a_killed_process_leads_to_the_weights_of_an_undisturbed_run(tmp_path: Path, undisturbed: Path) -> None:
    """Killed after the first step of epoch 1, with a checkpoint of epoch 0; the launcher starts all processes again."""
    words = [*flags("WaveGlow", tmp_path, 8), *EPOCHS, "--epochs-per-checkpoint", "1"]
    process = start(*LAUNCHER, "--max-restarts", "2", "train.py", *words)
    wait_for_epoch_1(process, tmp_path)
    os.kill(children(process.pid)[1], signal.SIGKILL)
    out, _ = ends_well(process)
    assert "checkpoint_WaveGlow_last.pt: resuming at epoch 1" in out
    final, wanted = weights(tmp_path), weights(undisturbed)
    assert all(torch.equal(final[name], value) for name, value in wanted.items())
    steps = [step for step, data in read_steps(tmp_path / "nvlog.json") if len(step) == 2]
    assert steps[:2] == [(0, 0), (0, 1)] and steps[-2:] == [(2, 0), (2, 1)]


def test_two_nodes_are_one_run(tmp_path: Path, alone: Path) -> None:
    """Two launchers on this machine, which find each other as those of two machines do; one process each."""
    meeting = f"localhost:{free_port()}"
    rendezvous = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "9"]
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, "--rdzv-endpoint", meeting, "train.py"]
    nodes = [start(*command, *flags("WaveGlow", tmp_path, 8), *EPOCHS) for _ in range(2)]
    outs = [ends_well(node)[0] for node in nodes]
    assert sorted("on 2 x cpu" in out for out in outs) == [False, True]  # the main process's node alone has a log
    assert_close(tmp_path, alone)


@pytest.mark.parametrize("offload", [[], ["--cpu-offload"]], ids=["", "offload"])
def test_cut_weights_train_as_whole_ones(tmp_path: Path, alone: Path, offload: list[str]) -> None:
    """And leave the same files: those of two processes go on in one, whole."""
    words = [*flags("WaveGlow", tmp_path, 8), "--ema-decay", "0.5"]
    ends_well(start(*LAUNCHER, "train.py", *words, "--shard", *offload, "--epochs", "2"))
    middle = load_checkpoint(tmp_path / "checkpoint_WaveGlow_1.pt")
    assert all(type(value) is torch.Tensor for value in middle["state_dict"].values())
    out, _ = ends_well(start(*LAUNCHER, "train.py", *words, "--shard", *offload, *EPOCHS, "--resume-from-last"))
    assert "resuming at epoch 2" in out and "start anew" not in out
    assert_close(tmp_path, alone)
    one = load_checkpoint(alone / "checkpoint_WaveGlow_last.pt")
    cut = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert set(cut) == {*one, "ema_state_dict", "ema_updates"}
    for number, state in one["optimizer"]["state"].items():
        torch.testing.assert_close(cut["optimizer"]["state"][number]["exp_avg"], state["exp_avg"], rtol=1e-3, atol=1e-5)
    out = succeed("train.py", *words, "-bs", 4, "--epochs", 4, "--resume-from-last")
    assert "resuming at epoch 3 (random numbers start anew" in out


def test_cut_tacotron2_with_a_clip_for_one_process_to_validate(tmp_path: Path) -> None:
    """The other process has to go through the forward with it, or both would wait for good; BatchNorm is the main one's."""
    found = {}
    for name, words in (("whole", []), ("cut", ["--shard"])):
        training = flags("Tacotron2", tmp_path / name, 8)
        held_out = tmp_path / name / "validation.txt"
        held_out.write_text(held_out.read_text().splitlines()[0] + "\n")
        ends_well(start(*LAUNCHER, "train.py", *training, *words, "--epochs", "1"))
        records = [data for step, data in read_steps(tmp_path / name / "nvlog.json") if len(step) == 1]
        found[name] = [data.get("train_loss", data.get("val_loss")) for data in records]
    assert len(found["whole"]) == 2
    assert found["cut"] == pytest.approx(found["whole"], rel=1e-4)
