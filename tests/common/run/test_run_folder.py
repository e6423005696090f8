"""One run of a model in a folder, and no fresh run over another run's checkpoints."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from unittest.mock import Mock

import pytest

from common.errors import DataError, UsageError
from common.files import atomic_write, remove_leftovers
from common.run.run_folder import occupy, refuse_checkpoints
from tests.recipe import flags, run, succeed, train_tiny_model

FORK = multiprocessing.get_context("fork")


def hold(folder: Path, locked: Event) -> None:
    with occupy(folder, "WaveGlow"):
        locked.set()
        time.sleep(600)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[ForkProcess]:
    locked = FORK.Event()
    process = FORK.Process(target=hold, args=(tmp_path, locked))
    process.start()
    assert locked.wait(100)
    yield process
    process.kill()
    process.join()


def test_a_second_run_of_a_model_is_refused_by_the_owners_name(tmp_path: Path, holder: ForkProcess) -> None:
    said = f"-o {tmp_path}: another run of WaveGlow writes there, process {holder.pid} on {socket.gethostname()}: wait"
    result = run("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: {said}") and "add --resume-from-last, or choose another -o" in result.err
    assert not (tmp_path / "nvlog.json").exists()
    with pytest.raises(UsageError, match=said), occupy(tmp_path, "WaveGlow"):  # the refusal has not released the lock
        pass
    with occupy(tmp_path, "Tacotron2"):  # another model may train in the same folder
        pass
    holder.kill()  # the lock of a killed run stops no other
    holder.join()
    path = tmp_path / ".WaveGlow.lock"
    assert json.loads(path.read_text()) == {"host": socket.gethostname(), "pid": holder.pid}
    with occupy(tmp_path, "WaveGlow"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lockf", "flock"):
        monkeypatch.setattr(fcntl, name, Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_owner_in_the_file_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, here = tmp_path / ".WaveGlow.lock", socket.gethostname()

    def assert_refused(message: str, kind: type[Exception] = UsageError) -> None:
        with pytest.raises(kind, match=message), occupy(tmp_path, "WaveGlow"):
            pass

    with occupy(tmp_path, "WaveGlow"):
        assert json.loads(path.read_text()) == {"host": here, "pid": os.getpid()}
        assert_refused(f"process {os.getpid()} on {here}")
        assert path.exists()
    assert not path.exists()
    path.write_text(json.dumps({"host": "another", "pid": 1}))
    assert_refused(rf"process 1 on another: .*if it has ended, delete {path}")
    path.write_text(json.dumps({"host": here, "pid": 1}))
    with monkeypatch.context() as patch:  # the process of another user lives
        patch.setattr(os, "kill", Mock(side_effect=PermissionError(errno.EPERM, "not permitted")))
        assert_refused(f"process 1 on {here}")
    ended = subprocess.Popen(["true"])
    ended.wait()
    path.write_text(json.dumps({"host": here, "pid": ended.pid}))
    with occupy(tmp_path, "WaveGlow"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    path.symlink_to(tmp_path / "victim")  # a lock follows no link
    assert_refused("cannot be written", DataError)
    assert not (tmp_path / "victim").exists()


@pytest.mark.usefixtures("no_locks")
def test_without_locks_files_are_written_and_no_writers_file_is_removed(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "file") as file:
        file.write(b"whole")
        (temporary,) = [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]
        remove_leftovers(tmp_path)
        assert temporary.exists()
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.slow
def test_a_fresh_run_over_checkpoints_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    for name in ("7.pt", "best.pt", "last.pt", "7.safetensors"):
        (path := tmp_path / f"checkpoint_WaveGlow_{name}").touch()
        refuse_checkpoints(tmp_path, "Tacotron2")
        with pytest.raises(UsageError) as error:
            refuse_checkpoints(tmp_path, "WaveGlow")
        assert f"-o {tmp_path}: has checkpoints of another run of WaveGlow ({path.name})," in str(error.value)
        path.unlink()
    best, start = tmp_path / "checkpoint_WaveGlow_best.pt", train_tiny_model("WaveGlow")
    best.write_bytes(b"days of work")
    for words in (["--warm-start", start], ["--checkpoint-path", start]):
        result = run("train.py", *flags("WaveGlow", tmp_path), *words, "--epochs", 1)
        assert result.code == 2 and "has checkpoints of another run" in result.err
    for words in (["--dry-run"], ["--bench-class", "perf-train"]):  # which write no checkpoints
        succeed("train.py", *flags("WaveGlow", tmp_path), *words, "--epochs", 1)
    assert best.read_bytes() == b"days of work"
    # of a run that was killed before its first save
    out = succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1, "--resume-from-last")
    aside = tmp_path / "checkpoint_WaveGlow_best_1.pt"
    assert f"{best} has no optimizer to go on with: it is now {aside}\n" in out
    assert aside.read_bytes() == b"days of work"
    assert {"checkpoint_WaveGlow_0.pt", best.name} <= {path.name for path in tmp_path.iterdir()}
