"""Speaking, training and planning where a system lacks what Linux has: tests/other_system.py takes it away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from common.checkpoint.files import load_checkpoint
from common.system import lock_file, lock_for_process, locked_folder, remove_locked
from studio.project import Project
from tests.recipe import ROOT, call, flags, read_log
from tests.studio.projects import make_project

ONLY_POSIX = "needs Linux or macOS; on Windows, run it in WSL 2 (README.md, Systems)"


def run_on(system: str, *words: object, code: int = 0) -> str:
    done = call(sys.executable, "-m", "tests.other_system", system, *words)
    assert done.code == code and "Traceback" not in done.err, done.err
    return done.out + done.err


@pytest.mark.slow
def test_it_speaks(tmp_path: Path) -> None:
    """Without what Windows lacks, which is all that macOS lacks and more; training differs, by its locks and its files."""
    run_on("windows", "inference.py", "-i", "phrases/phrase.txt", "-o", tmp_path, "--cpu")
    assert soundfile.info(tmp_path / "audio_0.wav").duration > 1
    assert read_log(tmp_path / "nvlog.json")[-1]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_it_trains_with_loader_processes_and_resumes(system: str, tmp_path: Path) -> None:
    """The second run moves the first one's log, replaces the link of the last checkpoint, and leaves no temporary files.

    macOS does all that as Linux does, and differs in its loader processes alone.
    """
    words = ["train.py", *flags("WaveGlow", tmp_path), "--epochs-per-checkpoint", 1, "--num-workers", 1]
    run_on(system, *words, "--epochs", 1)
    if system == "windows":
        assert "resuming at epoch 1" in run_on(system, *words, "--epochs", 2, "--resume-from-last")
        assert "estimated peak" in run_on(system, *words, "--epochs", 3, "--dry-run")
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["epoch"] == int(system == "windows")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_the_studio_plans(tmp_path: Path) -> None:
    project = make_project(Project(name="mine", projects=tmp_path))
    out = run_on("windows", "-m", "studio.plan", "mine", "--projects", tmp_path, "--minutes", 5)
    assert project.plan.is_file(), out


@pytest.mark.slow
@pytest.mark.parametrize("words", [("-m", "studio.train", "mine"), ("-m", "multiproc", "train.py"), ("-m", "studio")])
def test_windows_refuses_what_needs_process_groups(words: tuple[str, ...]) -> None:
    name = " ".join(["python", *words[:2]])
    assert run_on("windows", *words, code=2) == f"error: {name}: {ONLY_POSIX}\n"


def test_locks_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as ours, path.open("wb") as theirs:
        lock_file(ours.fileno())
        with pytest.raises(BlockingIOError):
            lock_file(theirs.fileno(), wait=False)
    with path.open("wb") as ours, path.open("wb") as theirs:  # closing it has released the lock
        lock_file(theirs.fileno(), wait=False)
        lock_for_process(ours.fileno())
        code = "import sys; from common.system import lock_for_process; f = open(sys.argv[1], 'wb'); lock_for_process(f.fileno())"
        other = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True)
        assert "BlockingIOError" in other.stderr
    descriptor = os.open(path, os.O_RDWR)
    remove_locked(path, descriptor)
    assert not path.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with locked_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
