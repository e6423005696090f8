"""The quickstart: its progress report from the log of a training, and Ctrl-C for both processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.training.checkpoint import load_checkpoint
from common.training.nvlog import NvLog
from scripts import quickstart
from tests.recipe import flags, read_steps, start, wait_for_epoch_1

WATCH = """
import sys
from pathlib import Path
from common.errors import exit_on_user_error
from scripts import quickstart
folder = Path(sys.argv[1])
with exit_on_user_error():
    quickstart.watch([sys.executable, *sys.argv[2:]], folder / "stdout.log", folder / "nvlog.json", 100000)
"""


@pytest.fixture(autouse=True)
def ctrl_c_enabled() -> Iterator[None]:
    """Let child processes react to Ctrl-C, even if a shell's & disabled it for the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_progress_at_any_moment_of_a_training(tmp_path: Path) -> None:
    log = tmp_path / "nvlog.json"
    assert quickstart.records(log) == []
    assert quickstart.progress_of(log)[0] == 0
    with NvLog(log) as training:
        training.log((0, 0), {"train_loss": 9.0})
        training.log((0,), {"train_loss": 5.0, "train_epoch_time": 1.0})
        training.log((1,), {"train_loss": 4.0, "train_epoch_time": 1.0})
    assert quickstart.progress_of(log) == (2, 4.0)
    whole = log.read_bytes()
    log.write_bytes(whole + whole.splitlines()[-1][:-9])  # killed while it wrote
    assert quickstart.progress_of(log) == (2, 4.0)
    with NvLog(log) as training:
        training.log((2,), {"train_loss": 3.0, "train_epoch_time": 1.0})
    assert quickstart.progress_of(log) == (3, 3.0)


def test_ctrl_c_waits_for_the_training_to_save(tmp_path: Path) -> None:
    words = ["train.py", *flags("WaveGlow", tmp_path), "--epochs", "100000"]
    process = start(sys.executable, "-c", WATCH, str(tmp_path), *words)
    try:
        log = tmp_path / "nvlog.json"
        wait_for_epoch_1(process, tmp_path)
        os.killpg(process.pid, signal.SIGINT)  # a terminal signals both
        process.wait(timeout=60)
        names = {path.name for path in tmp_path.iterdir()}  # read at once, since no process may still run
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert err.splitlines() == ["stopping after this step; once more to stop without saving", "stopped"]
    assert out.startswith("$ python train.py -m WaveGlow")
    assert "checkpoint_WaveGlow_last.pt" in names
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert saved["iteration"] == sum(len(step) == 2 for step, _ in read_steps(log))


def test_the_output_names_the_folder_of_the_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    acoustic = ["--other-tacotron2", "voice/tacotron2.safetensors"]
    assert quickstart.voice_flags("--other-") == []
    (tmp_path / "voice").mkdir()
    (tmp_path / "voice/tacotron2.safetensors").touch()
    assert quickstart.voice_flags("--other-") == [*acoustic, "--other-vocoder", "griffin-lim"]
