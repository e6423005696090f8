"""A vocoder that is trained on through its inverse by the command: its file, a stop, and its spent likelihood."""

import os
import signal
from pathlib import Path

import pytest
import torch

from common.checkpoint.__main__ import main as checkpoint_command
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from models import load_model
from scripts import sharpen_vocoder
from tests.recipe import ROOT, flags, run, succeed, train_tiny_model
from waveglow.sharpening import Sharpening

pytestmark = pytest.mark.slow


def sharpen(folder: Path, output: Path, *words: object) -> int:
    rows = flags("WaveGlow", folder)
    filelist = rows[rows.index("--training-files") + 1]
    start = [train_tiny_model("WaveGlow"), filelist, "-d", ROOT, "-o", output, "--cpu", "-bs", 2, "--steps", 6]
    return sharpen_vocoder.main([str(word) for word in (*start, *words)])


@pytest.fixture(scope="module")
def sharpened(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sharpened")
    assert sharpen(folder, folder / "whole.pt") == 0
    return folder / "whole.pt"


def test_a_stopped_run_goes_on_bit_for_bit(sharpened, tmp_path, monkeypatch, capsys):
    step, unfinished = Sharpening.step, tmp_path / "a.unfinished.pt"

    def step_and_stop(task: Sharpening, number: int, share: float) -> dict[str, float]:
        losses = step(task, number, share)
        if number == 3:  # among those with discriminators
            os.kill(os.getpid(), signal.SIGTERM)
        return losses

    with monkeypatch.context() as patch:
        patch.setattr(Sharpening, "step", step_and_stop)
        assert sharpen(tmp_path, tmp_path / "a.pt") == 0
    assert f"saved {unfinished}; the same command goes on" in capsys.readouterr().out
    with pytest.raises(DataError, match="began with batch size 2, now 3; repeat its command"):
        sharpen(tmp_path, tmp_path / "a.pt", "-bs", 3)
    assert load_model("WaveGlow", unfinished)  # speaks already
    assert sharpen(tmp_path, tmp_path / "a.pt") == 0 and not unfinished.exists()
    resumed, whole = (load_checkpoint(path)["state_dict"] for path in (tmp_path / "a.pt", sharpened))
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
    with pytest.raises(UsageError, match=r"a\.pt: exists; delete it"):
        sharpen(tmp_path, tmp_path / "a.pt")


def test_the_file_is_an_ordinary_waveglow_whose_likelihood_is_spent(sharpened, tmp_path, capsys):
    before, after = (load_checkpoint(path) for path in (train_tiny_model("WaveGlow"), sharpened))
    assert {name: value.shape for name, value in before["state_dict"].items()} == {
        name: value.shape for name, value in after["state_dict"].items()
    }
    assert after["config"] == before["config"]  # the published class takes no other keys
    checkpoint_command(["convert", str(sharpened), str(tmp_path / "w.safetensors")])
    for path in (sharpened, tmp_path / "w.safetensors"):
        capsys.readouterr()
        checkpoint_command(["inspect", str(path)])
        assert "its likelihood means nothing" in capsys.readouterr().out
        result = run("train.py", *flags("WaveGlow", tmp_path / "t"), "--checkpoint-path", path, "--epochs", 3)
        assert result.code == 2 and "its likelihood means nothing; --warm-start" in result.err
    succeed("train.py", *flags("WaveGlow", tmp_path / "w"), "--warm-start", sharpened, "--epochs", 1)
    assert "sharpened" not in load_checkpoint(tmp_path / "w" / "checkpoint_WaveGlow_last.pt")


def test_a_file_that_was_trained_so_before_keeps_its_noise(sharpened, tmp_path, monkeypatch):
    monkeypatch.setattr(sharpen_vocoder, "fold_sigma", lambda *words: pytest.fail("folded twice"))
    rows = flags("WaveGlow", tmp_path)
    filelist = rows[rows.index("--training-files") + 1]
    words = [sharpened, filelist, "-d", ROOT, "-o", tmp_path / "b.safetensors", "--cpu", "--steps", 1]
    assert sharpen_vocoder.main([str(word) for word in words]) == 0
    assert "sharpened" in load_checkpoint(tmp_path / "b.safetensors")


def test_bad_input_is_one_error_before_the_training(tmp_path):
    (tmp_path / "list.txt").write_text("absent.wav|one\n")
    with pytest.raises(DataError, match=r"absent\.wav"):
        sharpen_vocoder.main(
            [str(train_tiny_model("WaveGlow")), str(tmp_path / "list.txt"), "-o", str(tmp_path / "a.pt")]
        )
    with pytest.raises(DataError, match="is it a checkpoint of WaveGlow"):
        sharpen_vocoder.main(
            [str(train_tiny_model("Tacotron2")), str(tmp_path / "list.txt"), "-o", str(tmp_path / "a.pt")]
        )
