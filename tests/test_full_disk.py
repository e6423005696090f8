"""A full disk and a read-only folder: one message, nothing half-written, and older files as they were."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from common.audio.audio_processing import save_audio
from common.checkpoint.files import load_checkpoint, save_checkpoint, save_copy
from common.data.mels import save_mel
from common.data.pictures import save_figure
from common.errors import DataError
from common.files import TEMPORARY
from tests.recipe import Result, call, flags, largest_file, read_log, speech_flags, succeed


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting a small file system needs privileges: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path, free: int) -> None:
    state = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(state.f_bavail * state.f_frsize - free))


def command(script: str, *argv: object) -> Result:
    return call(sys.executable, script, *argv)


def assert_one_error(done: Result, message: str) -> None:
    assert done.code == 1, done
    assert re.search(message, done.err), done.err
    assert done.err.count("error: ") == 1 and "Traceback" not in done.err, done.err


def assert_no_half_files(folder: Path) -> None:
    assert [path.name for path in folder.rglob("*") if TEMPORARY.fullmatch(path.name)] == []
    for path in folder.glob("checkpoint_*.pt"):
        load_checkpoint(path)


WRITES = {
    "checkpoint": lambda path: save_checkpoint(path, {"state_dict": {"a": torch.zeros(300_000)}}),
    "checkpoint.safetensors": lambda path: save_copy(path, {"state_dict": {"a": torch.zeros(300_000)}}),
    "sound.wav": lambda path: save_audio(path, torch.zeros(500_000), 22050),
    "sound.flac": lambda path: save_audio(path, torch.rand(500_000) - 0.5, 22050),
    "mel.pt": lambda path: save_mel(path, torch.rand(80, 2000)),
    "picture.png": lambda path: save_figure(path, noise_figure()),
}


def noise_figure():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 9), dpi=100)
    figure.figimage(torch.rand(900, 900).numpy())
    return figure


@pytest.mark.parametrize("full", [True, False], ids=["disk", "limit"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_on_a_full_disk_leaves_the_old_file(name: str, full: bool, request, tmp_path: Path) -> None:
    """On a small disk, and with a limit of the size of files, for which a test needs no privileges."""
    disk = request.getfixturevalue("disk") if full else tmp_path
    path, reason = disk / name, "No space left on device" if full else "File too large"
    path.write_bytes(b"older")
    for free in (0, 4096, 100_000):
        if full:
            fill(disk, free)
        with (
            largest_file(2**40 if full else free),
            pytest.raises(DataError, match=rf"^{path}: .*\({reason}\)") as error,
        ):
            WRITES[name](path)
        assert "checkpoint" not in name or "free the disk" in str(error.value)
        assert path.read_bytes() == b"older"
        (disk / "filler").unlink(missing_ok=True)
        assert [entry.name for entry in disk.iterdir()] == [name]
    WRITES[name](path)
    assert path.stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("free", [20_000, 1_500_000])
def test_training_on_a_disk_that_fills_up(disk: Path, free: int) -> None:
    """The log, the curves or a checkpoint may be the first to meet the end of the disk."""
    argv = [*flags("WaveGlow", disk), "--epochs-per-checkpoint", 1, "--epochs-per-validation", 1]
    succeed("train.py", *argv, "--epochs", 1)
    whole = {path.name: path.read_bytes() for path in disk.glob("checkpoint_*_0.pt")}
    fill(disk, free)
    done = command("train.py", *argv, "--epochs", 400, "--resume-from-last")
    wanted = r"cannot (write|be written|move|be renamed).*\(No space left on device\)"
    assert_one_error(done, rf"^error: {disk}\S*: {wanted}")
    assert_no_half_files(disk)
    assert {name: (disk / name).read_bytes() for name in whole} == whole
    read_log(disk / "nvlog.json")
    (disk / "filler").unlink()
    newest = max(load_checkpoint(path)["epoch"] for path in disk.glob("checkpoint_*_[0-9]*.pt"))
    again = succeed("train.py", *argv, "--epochs", newest + 2, "--resume-from-last", "--keep-checkpoints", 1)
    assert f"resuming at epoch {newest + 1}" in again


@pytest.mark.slow
@pytest.mark.parametrize("free", [0, 60_000])
def test_inference_on_a_disk_that_fills_up(disk: Path, tmp_path: Path, free: int) -> None:
    """Log, record, sounds or pictures; --resume finishes the run."""
    argv = [*speech_flags(tmp_path, *["Two."] * 12), "-o", disk, "--seed", 1, "-bs", 1]
    fill(disk, free)
    assert_one_error(command("inference.py", *argv), rf"^error: {disk}\S*: .*\(No space left on device\)")
    assert_no_half_files(disk)
    (disk / "filler").unlink()
    succeed("inference.py", *argv, "--resume")
    assert len(list(disk.glob("*.wav"))) == len(list(disk.glob("*.png"))) == 12


@pytest.mark.slow
def test_a_read_only_folder_is_one_error(disk: Path, tmp_path: Path) -> None:
    """Mounted read-only, since permissions do not bind root."""
    training = flags("WaveGlow", tmp_path / "lists")
    training[training.index("-o") + 1] = str(disk)
    succeed("train.py", *training, "--epochs", 1)
    fresh = [str(disk / "fresh") if word == str(disk) else word for word in training]
    commands: list[list[object]] = [
        ["train.py", *fresh, "--epochs", 1],
        ["train.py", *training, "--epochs", 2, "--resume-from-last"],
        ["inference.py", *speech_flags(tmp_path), "-o", disk],
    ]
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for script, *argv in commands:
        assert_one_error(command(str(script), *argv), rf"^error: {disk}\S*: cannot .*\(Read-only file system\)")
