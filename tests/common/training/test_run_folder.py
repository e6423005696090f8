"""One run of a model in a folder, and no fresh run over another run's checkpoints."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import DataError, UsageError
from common.training.run_folder import occupy, refuse_checkpoints
from tests.recipe import ROOT, flags, run, succeed, train_tiny_model

HOLD = """
import sys, time
from pathlib import Path
from common.training.run_folder import occupy
with occupy(Path(sys.argv[1]), "WaveGlow"):
    print("locked", flush=True)
    time.sleep(600)
"""
pytestmark = pytest.mark.slow


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has locked tmp_path for WaveGlow."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_run_of_a_model_is_refused_by_the_owners_name(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    owner = f"process {holder.pid} on {socket.gethostname()}"
    for _ in range(2):  # the first refusal must not release the lock
        result = run("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: -o {tmp_path}: another run of WaveGlow writes there, {owner}: wait")
        assert "add --resume-from-last, or choose another -o" in result.err
    assert not (tmp_path / "nvlog.json").exists()
    with occupy(tmp_path, "Tacotron2"):  # another model may train in the same folder
        pass


def test_the_lock_of_a_killed_run_stops_no_other(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    path = tmp_path / ".WaveGlow.lock"
    assert json.loads(path.read_text()) == {"host": socket.gethostname(), "pid": holder.pid}
    with occupy(tmp_path, "WaveGlow"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / ".WaveGlow.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(DataError, match="cannot be written"), occupy(tmp_path, "WaveGlow"):
        pass
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("name", ["7.pt", "best.pt", "last.pt", "7.safetensors"])
def test_a_fresh_run_over_checkpoints_is_refused_with_both_ways_out(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"checkpoint_WaveGlow_{name}"
    path.write_bytes(b"days of work")
    for words in (
        [],
        ["--warm-start", train_tiny_model("WaveGlow")],
        ["--checkpoint-path", train_tiny_model("WaveGlow")],
    ):
        result = run("train.py", *flags("WaveGlow", tmp_path), *words, "--epochs", 1)
        assert (result.code, path.read_bytes()) == (2, b"days of work")
        assert result.err == (
            f"error: -o {tmp_path}: has checkpoints of another run of WaveGlow ({path.name}), which this run would replace: "
            "add --resume-from-last to go on from the newest, or choose another -o\n"
        )


def test_runs_that_write_no_checkpoints_are_not_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_WaveGlow_best.pt").write_bytes(b"days of work")
    for words in (["--dry-run"], ["--bench-class", "perf-train"]):
        succeed("train.py", *flags("WaveGlow", tmp_path), *words, "--epochs", 1)
    assert (tmp_path / "checkpoint_WaveGlow_best.pt").read_bytes() == b"days of work"


def test_checkpoints_of_another_model_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_Tacotron2_3.pt").touch()
    refuse_checkpoints(tmp_path, "WaveGlow")
    with pytest.raises(UsageError, match=re.escape("(checkpoint_Tacotron2_3.pt)")):
        refuse_checkpoints(tmp_path, "Tacotron2")
