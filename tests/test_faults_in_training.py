"""Faults in mid-run end training with one message, after a save from which it goes on."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.run.nvlog import NvLog
from common.training.sampler import steps
from tests.recipe import LAUNCHER, ROOT, flags, read_steps, start, wait_for_epoch_1

pytestmark = pytest.mark.slow


def command(folder: Path, *words: object) -> list[object]:
    return [sys.executable, "train.py", *flags("WaveGlow", folder), *words, "--epochs", 10**5]


@pytest.mark.parametrize(
    ("launcher", "number", "code", "said"),
    [
        ([sys.executable], signal.SIGTERM, 0, "stopping after this step\n"),  # a scheduler's
        ([sys.executable], signal.SIGINT, 130, "stopping after this step; once more to stop without saving\n"),
        (LAUNCHER, signal.SIGINT, 130, ""),  # which signals both processes once more
    ],
    ids=["SIGTERM", "SIGINT", "launcher"],
)
def test_a_signal_to_all_processes_saves_once(tmp_path: Path, launcher, number, code: int, said: str) -> None:
    """Terminals and schedulers signal every process of a run, the loader's too."""
    words = [*flags("WaveGlow", tmp_path, 8), "--epochs", 10**5, "--num-workers", 1]
    process = start(*launcher, "train.py", *words)
    try:
        wait_for_epoch_1(process, tmp_path)
        os.killpg(process.pid, number)
        deadline = time.monotonic() + 120
        while number == signal.SIGTERM and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)  # a scheduler repeats it
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.send_signal(signal.SIGABRT)  # which prints the stacks of its threads
        pytest.fail(process.communicate(timeout=60)[1])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code and (err == said or launcher is LAUNCHER), err
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert saved["iteration"] == sum(len(step) == 2 for step, _ in read_steps(tmp_path / "nvlog.json"))
    assert out.count(f"saved {tmp_path}/checkpoint_WaveGlow_{saved['epoch']}.pt; add --resume-from-last") == 1


def test_a_killed_loader_process_ends_the_run_after_a_save(tmp_path: Path) -> None:
    process = start(*command(tmp_path, "--num-workers", 1))
    wait_for_epoch_1(process, tmp_path)
    workers = [child for child in psutil.Process(process.pid).children() if child.cmdline()[:1] == [sys.executable]]
    workers[0].send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.fullmatch(r"error: DataLoader worker .*: killed, or out of memory; lower --num-workers 1\n", err), err
    assert "the next clips cannot be read: saved" in out
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
