"""A clip that cannot be read in mid-run ends training with one message, after a save from which it goes on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from common.checkpoint.files import load_checkpoint
from tests.recipe import ROOT, SHORT_CLIPS, flags, read_steps, start, start_ranks, succeed, wait_for_epoch_1
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
    (saved,) = re.findall(rf"the next clips cannot be read: saved ({tmp_path}/checkpoint_WaveGlow_\d+\.pt);", out)
    checkpoint = load_checkpoint(Path(saved))
    steps_done = [step for step, data in read_steps(tmp_path / "nvlog.json") if "train_iter_time" in data]
    assert checkpoint["iteration"] == len(steps_done)  # nothing is lost
    (tmp_path / "away.ogg").rename(victim)
    words += ["--resume-from-last", "--epochs", checkpoint["epoch"] + 1]
    assert "resuming" in succeed("train.py", *flags("WaveGlow", tmp_path), *words)


def test_sharded_processes_save_together_when_none_can_read_a_clip(tmp_path: Path) -> None:
    """They run each forward of a validation together; with one clip, the second one discards its result."""
    own, rows = own_clips(tmp_path), tmp_path / "own_validation.txt"
    row, *_ = rows.read_text().splitlines()
    rows.write_text(f"{row}\n")
    victim = Path(row.split("|")[0])
    argv = command(tmp_path, *own, "-bs", 1, "--shard", "--epochs-per-validation", 1, "--timeout-minutes", 1)[1:]
    processes = start_ranks(*argv)
    wait_for_epoch_1(processes[0], tmp_path)
    victim.unlink()
    outs, errs = zip(*(process.communicate(timeout=200) for process in processes), strict=True)
    assert [process.returncode for process in processes] == [1, 1]
    assert f"error: {victim}: no such audio file" in "".join(errs) and "Traceback" not in "".join(errs)
    assert "the next clips cannot be read: saved" in outs[0]
    checkpoint = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    trained = [step for step, data in read_steps(tmp_path / "nvlog.json") if "train_iter_time" in data]
    assert checkpoint["iteration"] == len(trained) > 2
    assert checkpoint["epoch_complete"]
