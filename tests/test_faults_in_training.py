"""Faults in mid-run end training with one message, after a save from which it goes on."""

from __future__ import annotations

import os
import pty
import re
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from common.errors import DataError
from common.training.checkpoint import load_checkpoint
from common.training.nvlog import NvLog
from common.training.steps import steps
from tests.recipe import ROOT, SHORT_CLIPS, flags, read_steps, start, succeed, wait_for_epoch_1

pytestmark = pytest.mark.slow


def own_clips(folder: Path) -> list[object]:
    """Return flags of filelists whose clips are copies in `folder`."""
    rows = (ROOT / "filelists" / "clock_audio_text_train_filelist.txt").read_text().splitlines()
    words: list[object] = []
    (folder / "clips").mkdir(parents=True)
    for part, numbers in (("training", SHORT_CLIPS[:5]), ("validation", SHORT_CLIPS[-2:])):
        lines = []
        for number in numbers:
            path, text = rows[number - 1].split("|")
            copy = folder / "clips" / f"{part}_{Path(path).name}"
            shutil.copy(ROOT / path, copy)
            lines.append(f"{copy}|{text}\n")
        (folder / f"own_{part}.txt").write_text("".join(lines))
        words += [f"--{part}-files", folder / f"own_{part}.txt"]
    return words


def command(folder: Path, *words: object) -> list[object]:
    return [sys.executable, "train.py", *flags("WaveGlow", folder), *words, "--epochs", 10**5]


@pytest.mark.parametrize("part", ["training", "validation"])
def test_a_clip_deleted_in_mid_run_ends_it_after_a_save(tmp_path: Path, part: str) -> None:
    words = [*own_clips(tmp_path), "--epochs-per-validation", 1]
    process = start(*command(tmp_path, *words))
    wait_for_epoch_1(process, tmp_path)
    victim = next((tmp_path / "clips").glob(f"{part}_*"))
    victim.rename(tmp_path / "away.ogg")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (1, f"error: {victim}: no such audio file\n")
    (saved,) = re.findall(rf"a clip cannot be read: saved ({tmp_path}/checkpoint_WaveGlow_\d+\.pt);", out)
    checkpoint = load_checkpoint(Path(saved))
    steps_done = [step for step, data in read_steps(tmp_path / "nvlog.json") if "train_iter_time" in data]
    assert checkpoint["iteration"] == len(steps_done)  # nothing is lost
    (tmp_path / "away.ogg").rename(victim)
    words += ["--resume-from-last", "--epochs", checkpoint["epoch"] + 1]
    assert "resuming" in succeed("train.py", *flags("WaveGlow", tmp_path), *words)


def test_two_processes_save_together_when_one_cannot_read_a_clip(tmp_path: Path) -> None:
    words = command(tmp_path, *own_clips(tmp_path), "-bs", 1)
    process = start(sys.executable, "-m", "multiproc", "--nproc", 2, *words[1:])
    wait_for_epoch_1(process, tmp_path)
    victim = next((tmp_path / "clips").glob("training_*"))
    victim.unlink()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1
    assert f"error: {victim}: no such audio file" in err and "Traceback" not in err
    assert "a clip cannot be read: saved" in out
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"] > 2


@pytest.mark.parametrize("clips", [2, 1], ids=["one each", "one for both"])
def test_sharded_processes_save_together_when_one_cannot_read_a_clip_of_validation(tmp_path: Path, clips: int) -> None:
    """All processes run each forward together. With one clip, the second process runs it too and discards the result."""
    own = own_clips(tmp_path)
    held_out = tmp_path / "own_validation.txt"
    held_out.write_text("".join(f"{line}\n" for line in held_out.read_text().splitlines()[:clips]))
    words = command(tmp_path, *own, "-bs", 1, "--shard", "--epochs-per-validation", 1, "--timeout-minutes", 1)
    process = start(sys.executable, "-m", "multiproc", "--nproc", 2, *words[1:])
    wait_for_epoch_1(process, tmp_path)
    victim = Path(held_out.read_text().splitlines()[-1].split("|")[0])  # the second process's, if there are two
    victim.unlink()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1
    assert f"error: {victim}: no such audio file" in err and "Traceback" not in err
    assert "a clip cannot be read: saved" in out
    checkpoint = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    trained = [step for step, data in read_steps(tmp_path / "nvlog.json") if "train_iter_time" in data]
    assert checkpoint["iteration"] == len(trained)
    assert checkpoint["epoch_complete"]


def test_a_killed_loader_process_ends_the_run_after_a_save(tmp_path: Path) -> None:
    process = start(*command(tmp_path, "--num-workers", 1))
    wait_for_epoch_1(process, tmp_path)
    workers = [child for child in psutil.Process(process.pid).children() if child.cmdline()[:1] == [sys.executable]]
    workers[0].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.fullmatch(r"error: DataLoader worker .*: killed, or out of memory; lower --num-workers 1\n", err), err
    assert "a clip cannot be read: saved" in out
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"] > 2


def test_a_closed_terminal_ends_the_run_after_a_save(tmp_path: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, in tests that it starts too
        os.execv(sys.executable, [str(word) for word in command(tmp_path, "--num-workers", 1)])
    log, deadline = tmp_path / "nvlog.json", time.monotonic() + 200
    while not (log.exists() and '"step": [1, 0]' in log.read_text()):
        assert time.monotonic() < deadline
        os.read(terminal, 10_000)  # a full terminal would stop the run
    os.close(terminal)  # the system sends SIGHUP, and writes to the terminal fail from now on
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 129
    done = [step for step, data in read_steps(log) if "train_iter_time" in data]
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"] == len(done)


def test_a_full_disk_under_tensorboard_is_an_error(tmp_path: Path, monkeypatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)  # Python's prints the traceback of a thread
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with (
            pytest.raises(DataError, match=rf"{tmp_path}/tb: cannot write the log \(File too large\)"),
            NvLog(tmp_path / "nvlog.json", tmp_path / "tb") as log,
        ):
            for step in range(1000):
                log.audio("a", torch.zeros(5000), step, 22050)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert printed == []
    assert threading.excepthook == printed.append


def test_steps_are_loaded_one_ahead() -> None:
    loaded = []

    def loader():
        for number in range(7):
            loaded.append(number)
            if number == 5:
                raise DataError("clip 5")
            yield number

    stepwise = steps(loader(), 2)
    assert next(stepwise)[::2] == ([0, 1], None)
    assert loaded == [0, 1, 2, 3]
    batches, _, fault = next(stepwise)
    assert batches == [2, 3] and str(fault) == "clip 5"
    assert list(stepwise) == []
    assert [step.batches for step in steps(iter(range(5)), 2)] == [[0, 1], [2, 3]]


def test_an_error_of_the_first_step_comes_without_batches() -> None:
    def loader():
        raise DataError("clip 0")
        yield

    (first,) = steps(loader(), 1)
    assert first.batches == [] and str(first.fault) == "clip 0"
