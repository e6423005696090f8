"""A clip that cannot be read in mid-run ends training with one message, after a save from which it goes on."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from common.checkpoint.files import load_checkpoint
from tests.recipe import ROOT, SHORT_CLIPS, flags, read_steps, start, succeed, wait_for_epoch_1
from tests.test_faults_in_training import command

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
