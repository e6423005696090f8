"""Several processes: the launcher's arguments, the same training as in one process, and failures that can be read."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch.distributed.run import parse_args

from common.checkpoint.files import load_checkpoint
from multiproc import torchrun_arguments
from tests.recipe import (
    LAUNCHER,
    call,
    flags,
    read_steps,
    skip_without_evaluators,
    start,
    start_ranks,
    succeed,
    wait_for_epoch_1,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("words", "gpus", "processes", "nodes", "standalone"),
    [
        ("train.py -m WaveGlow --amp", 8, "8", "1:1", True),
        ("train.py -m WaveGlow --amp", 0, "1", "1:1", True),
        ("--nproc 3 train.py -m WaveGlow", 8, "3", "1:1", True),
        ("--nproc=3 train.py", 8, "3", "1:1", True),
        ("--nproc_per_node=gpu train.py", 8, "gpu", "1:1", True),
        ("--nnodes=2 --node-rank 1 --master-addr host train.py", 4, "4", "2", False),
        ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint host:29500 train.py", 4, "4", "2", False),
    ],
)
def test_what_torchrun_is_told(words: str, gpus: int, processes: str, nodes: str, standalone: bool) -> None:
    args = parse_args(torchrun_arguments(words.split(), gpus))
    assert (args.nproc_per_node, args.nnodes, args.standalone) == (processes, nodes, standalone)
    script = words[words.index("train.py") :].split()
    assert [args.training_script, *args.training_script_args] == script


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory) -> dict[str, Path]:
    """A tiny WaveGlow trained by two processes on two clips each, stopped and resumed, and by one on four."""
    folder = tmp_path_factory.mktemp("both")
    for epochs in (1, 3):
        train_in_two(*flags("WaveGlow", folder / "two", 8), "--epochs", epochs, "--resume-from-last")
    succeed("train.py", *flags("WaveGlow", folder / "one", 8), "-bs", 4, "--epochs", 3)
    return {name: folder / name for name in ("one", "two")}


def train_in_two(*argv: object, code: int = 0) -> list[str]:
    """Train in two processes that must exit with this code; return what each wrote to stderr."""
    processes = start_ranks("train.py", *argv)
    errors = [process.communicate(timeout=400)[1] for process in processes]
    assert [process.returncode for process in processes] == [code, code], errors
    return errors


def test_two_processes_train_as_one_with_batches_of_twice_the_size(both_ways: dict[str, Path]) -> None:
    one, two = (load_checkpoint(both_ways[name] / "checkpoint_WaveGlow_last.pt") for name in ("one", "two"))
    assert (one["epoch"], one["iteration"]) == (two["epoch"], two["iteration"]) == (2, 6)
    assert list(one["state_dict"]) == list(two["state_dict"])
    moved = 0.0
    start = load_checkpoint(both_ways["one"] / "checkpoint_WaveGlow_0.pt")["state_dict"]
    for name, value in one["state_dict"].items():
        torch.testing.assert_close(two["state_dict"][name], value, rtol=1e-4, atol=1e-5)
        moved = max(moved, (value - start[name]).abs().max().item())
    assert moved > 2e-4  # there was something to get wrong
    assert two["random_rng_states_all"].shape[0] == 2
    assert not torch.equal(*two["random_rng_states_all"])


def test_one_of_two_processes_lets_the_model_speak_and_both_go_on(tmp_path: Path) -> None:
    skip_without_evaluators()
    evaluating = ["--evaluate-every", 1, "--evaluate-lines", 1, "--best-by", "mos", "--epochs-per-validation", 1]
    train_in_two(*flags("Tacotron2", tmp_path, 8), *evaluating, "--epochs", 2)
    found = [data["evaluation_mos"] for _, data in read_steps(tmp_path / "nvlog.json") if "evaluation_mos" in data]
    assert len(found) == 2  # each once
    best = load_checkpoint(tmp_path / "checkpoint_Tacotron2_best.pt")
    assert best["epoch"] == found.index(max(found)) and best["best"]["by"] == "mos"


def test_the_log_of_two_processes_is_that_of_one(both_ways: dict[str, Path]) -> None:
    logs = {
        name: [(step, data) for step, data in read_steps(folder / "nvlog.json") if step != ()]
        for name, folder in both_ways.items()
    }
    assert [step for step, _ in logs["one"] if len(step) == 2] == [step for step, _ in logs["two"] if len(step) == 2]
    for (step, mine), (_, theirs) in zip(
        *([record for record in logs[name] if len(record[0]) < 3] for name in ("one", "two")), strict=True
    ):
        for key in ("train_loss", "val_loss"):
            if key in mine:
                assert theirs[key] == pytest.approx(mine[key], abs=1e-5), step
        if len(step) == 2:  # items of both processes
            items = [data["train_items_per_sec"] * data["train_iter_time"] for data in (mine, theirs)]
            assert items == pytest.approx([4 * 4096] * 2)


def test_a_mistake_that_all_processes_make(tmp_path: Path) -> None:
    for error in train_in_two(*flags("WaveGlow", tmp_path, training=1), code=1):
        assert "1 clips, expected at least one for each of 2 processes: lower the number of processes" in error
        assert "Traceback" not in error


def test_a_process_that_fails_alone_ends_the_others(tmp_path: Path) -> None:
    argv = flags("WaveGlow", tmp_path, 8)
    path = tmp_path / "training.txt"
    rows = path.read_text().splitlines()
    broken = tmp_path / "broken.wav"
    soundfile.write(broken, np.zeros(20_000), 22050)
    os.truncate(broken, 30_000)  # its header is whole
    path.write_text("\n".join([f"{broken}|one", *rows[1:]]) + "\n")
    errors = "".join(train_in_two(*argv, "--epochs", 3, code=1))
    assert f"error: {broken}: cut short" in errors
    assert "error: another process of this run cannot read a clip, for the reason it gave" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("sys.exit(2)", 2, "ended with exit code 2, for the reason above"),
        (
            "os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(60)",
            1,
            "error: process 1 was ended by",
        ),
        ("print(sys.argv)", 0, ""),
    ],
)
def test_the_launcher_ends_with_the_code_of_the_first_process_to_fail(
    tmp_path: Path, statement: str, code: int, message: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys, time\n{statement}\n")
    done = call(*LAUNCHER, script, "--flag")
    assert done.code == code and message in done.err and "Traceback" not in done.err, done
    assert done.out.count("'--flag'") == (0 if code else 2)


def test_ctrl_c_in_a_terminal_saves_once(tmp_path: Path) -> None:
    process = start(*LAUNCHER, "train.py", *flags("WaveGlow", tmp_path, 8), "--epochs", "100000")
    try:
        wait_for_epoch_1(process, tmp_path)
        # A terminal signals the launcher and both processes, then the launcher signals them again.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=90)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert f"saved {tmp_path}/checkpoint_WaveGlow_" in out
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert saved["iteration"] == sum(len(step) == 2 for step, _ in read_steps(tmp_path / "nvlog.json"))
