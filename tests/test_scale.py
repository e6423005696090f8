"""Training that loses processes, spans nodes or shards weights ends with the weights of a single process."""

import os
import signal
from pathlib import Path

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from tests.recipe import (
    LAUNCHER,
    children,
    flags,
    read_steps,
    start,
    start_nodes,
    start_ranks,
    succeed,
    wait_for_epoch_1,
)

pytestmark = pytest.mark.slow

EPOCHS = ["--epochs", "3"]


def train_together(*argv: object) -> str:
    """Train in two processes that must succeed; return the main one's stdout."""
    processes = start_ranks("train.py", *argv)
    outs = []
    for process in processes:
        outs.append(process.communicate(timeout=400))
        assert process.returncode == 0, outs[-1]
    return outs[0][0]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["state_dict"]


def assert_close(folder: Path, expected: Path) -> None:
    """Compare weights up to the order of additions."""
    found, reference = weights(folder), weights(expected)
    assert list(found) == list(reference)
    for name, value in reference.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def single_process(tmp_path_factory) -> Path:
    """Train a tiny WaveGlow in one process, with batches of four."""
    folder = tmp_path_factory.mktemp("alone")
    succeed("train.py", *flags("WaveGlow", folder, 8), "-bs", 4, *EPOCHS)
    return folder


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """Train the same model in two processes, with batches of two."""
    folder = tmp_path_factory.mktemp("two_processes")
    train_together(*flags("WaveGlow", folder, 8), *EPOCHS)
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


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")
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


def test_two_nodes_are_one_run(tmp_path: Path, single_process: Path) -> None:
    """Two launchers with one process each on this machine; they find each other as on two machines."""
    nodes = start_nodes(*flags("WaveGlow", tmp_path, 8), *EPOCHS)
    outs = [node.communicate(timeout=400) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outs
    assert sorted("on 2 x cpu" in out for out, _ in outs) == [False, True]  # the main process's node alone has a log
    assert_close(tmp_path, single_process)


@pytest.mark.parametrize("offload", [[], ["--cpu-offload"]], ids=["", "offload"])
def test_sharded_training_equals_unsharded_training(tmp_path: Path, single_process: Path, offload: list[str]) -> None:
    """The files are equal too: a single process resumes from the checkpoint of two."""
    argv = [*flags("WaveGlow", tmp_path, 8), "--ema-decay", "0.5"]
    train_together(*argv, "--shard", *offload, "--epochs", "2")
    middle = load_checkpoint(tmp_path / "checkpoint_WaveGlow_1.pt")
    assert all(type(value) is torch.Tensor for value in middle["state_dict"].values())
    out = train_together(*argv, "--shard", *offload, *EPOCHS, "--resume-from-last")
    assert "resuming at epoch 2" in out and "start anew" not in out
    assert_close(tmp_path, single_process)
    one = load_checkpoint(single_process / "checkpoint_WaveGlow_last.pt")
    cut = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert set(cut) == {*one, "ema_state_dict", "ema_updates"}
    for number, state in one["optimizer"]["state"].items():
        torch.testing.assert_close(cut["optimizer"]["state"][number]["exp_avg"], state["exp_avg"], rtol=1e-3, atol=1e-5)
    out = succeed("train.py", *argv, "-bs", 4, "--epochs", 4, "--resume-from-last")
    assert "resuming at epoch 3 (random numbers start anew" in out


def test_sharded_tacotron2_validates_a_clip_on_one_process(tmp_path: Path) -> None:
    """All processes must run the forward, or both would wait forever; BatchNorm statistics are the main process's."""
    found = {}
    for name, sharding in (("whole", []), ("cut", ["--shard"])):
        argv = flags("Tacotron2", tmp_path / name, 8)
        held_out = tmp_path / name / "validation.txt"
        held_out.write_text(held_out.read_text().splitlines()[0] + "\n")
        train_together(*argv, *sharding, "--epochs", "1")
        records = [data for step, data in read_steps(tmp_path / name / "nvlog.json") if len(step) == 1]
        found[name] = [data.get("train_loss", data.get("val_loss")) for data in records]
    assert len(found["whole"]) == 2
    assert found["cut"] == pytest.approx(found["whole"], rel=1e-4)
