"""train.py with tiny models: memory, saving, stopping, and starting from the weights of another run."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import common.run.interrupt
import common.training.loop
from common.checkpoint.files import load_checkpoint
from common.training.time_plan import TimePlan
from models import load_model
from tests.recipe import flags, losses, read_steps, run, succeed, train_tiny_model
from tests.test_train import checkpoints, differences, events

SEEING = ["--epochs-per-validation", "1"]


def last(folder: Path) -> dict[str, Any]:
    return load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")


def by_step(folder: Path) -> list[dict[str, Any]]:
    return [data for step, data in read_steps(folder / "nvlog.json") if len(step) == 2]


def test_fewer_clips_than_a_step_are_one_step_with_all_of_them(tmp_path: Path) -> None:
    out = succeed("train.py", *flags("WaveGlow", tmp_path), "--grad-accumulation-steps", 3, "--epochs", 2)
    assert "a step takes all 5 clips, fewer than the 6 that the flags name; an epoch is 1 step" in out
    steps = by_step(tmp_path)
    assert [data["train_items_per_sec"] * data["train_iter_time"] for data in steps] == pytest.approx([5 * 4096] * 2)
    assert last(tmp_path)["iteration"] == 2


@pytest.mark.slow
def test_saving_by_the_clock_changes_nothing_and_keeps_one_checkpoint(tmp_path: Path) -> None:
    """A save at the end of an epoch replaces the file of its middle, which must not count as an older one."""
    plain, clock, words = tmp_path / "plain", tmp_path / "clock", ["--epochs", 3, "--epochs-per-checkpoint", 2]
    succeed("train.py", *flags("WaveGlow", plain), *words)
    words += ["--keep-checkpoints", 1, "--checkpoint-every-minutes", 1e-9]
    out = succeed("train.py", *flags("WaveGlow", clock), *words)
    assert out.count("still in mid-epoch: saved") == 3  # each epoch's first of two steps; its end has its own saves
    assert checkpoints(clock) == [f"checkpoint_WaveGlow_{name}.pt" for name in ("2", "best", "last")]
    assert (last(clock)["epoch"], last(clock)["saved"]) == (2, [2])
    assert differences(last(plain), last(clock)) == [] and losses(plain) == losses(clock)


@pytest.mark.slow
def test_the_clock_starts_anew_at_each_save(tmp_path: Path, monkeypatch) -> None:
    """Steps of 25 s, and saves after a minute: after the fourth step of eight, and after that of the next epoch."""
    clock, step = [0.0], common.training.loop.train_step

    def slow_step(*words: Any) -> Any:
        clock[0] += 25
        return step(*words)

    monkeypatch.setattr(common.training.loop, "train_step", slow_step)
    monkeypatch.setattr(common.run.interrupt.time, "monotonic", lambda: clock[0])
    words = ["--epochs", 2, "-bs", 1, "--checkpoint-every-minutes", 1, "--epochs-per-checkpoint", 1]
    out = succeed("train.py", *flags("WaveGlow", tmp_path, 8), *words)
    assert out.count("still in mid-epoch: saved") == 2


@pytest.mark.slow
def test_the_best_checkpoint_has_the_lowest_validation_loss(tmp_path: Path) -> None:
    words = ["--epochs", 6, "--epochs-per-checkpoint", 1, "-lr", 0.02, *SEEING]
    succeed("train.py", *flags("WaveGlow", tmp_path), *words)
    steps = read_steps(tmp_path / "nvlog.json")
    loss, epoch = min((data["val_loss"], *step) for step, data in steps if len(step) == 1 and "val_loss" in data)
    best, whole = (load_checkpoint(tmp_path / f"checkpoint_WaveGlow_{name}.pt") for name in ("best", epoch))
    assert (best["epoch"], best["val_loss"]) == (epoch, loss)
    assert differences(best["state_dict"], whole["state_dict"]) == []
    assert "optimizer" not in best
    load_model("WaveGlow", tmp_path / "checkpoint_WaveGlow_best.pt")


@pytest.mark.slow
def test_patience_ends_a_run_without_improvement(tmp_path: Path) -> None:
    words = [*flags("WaveGlow", tmp_path), "--epochs", 50, "-lr", 1e-30, *SEEING, "--early-stop-patience", 2]
    out = succeed("train.py", *words)
    assert "--early-stop-patience 2: no better validation loss than" in out and "since epoch 0" in out
    assert last(tmp_path)["epoch"] == 2
    assert last(tmp_path)["best"]["since"] == 2
    assert read_steps(tmp_path / "nvlog.json")[-1][0] == ()
    before = last(tmp_path)
    assert "no better validation loss than" in succeed("train.py", *words, "--resume-from-last")
    assert differences(before, last(tmp_path)) == []  # not an epoch more


@pytest.mark.slow
def test_a_limit_of_time_ends_a_run_with_an_epoch_and_its_validation(tmp_path: Path) -> None:
    words = [*flags("WaveGlow", tmp_path), "--epochs", 2000, "--epochs-per-validation", 1000]
    out = succeed("train.py", *words, "--max-minutes", 0.06)
    ended = last(tmp_path)
    assert f"--max-minutes 0.06: epoch {ended['epoch']} is the last" in out and ended["epoch_complete"]
    steps = read_steps(tmp_path / "nvlog.json")
    validated = [step[0] for step, data in steps if len(step) == 1 and "val_loss" in data]
    assert validated[0] == 0 and validated[-1] == ended["epoch"]
    epochs = ended["time_plan"]["epochs"]
    assert epochs == ended["epoch"] + 1 < 2000
    words.append("--resume-from-last")
    assert "raise --max-minutes, now 0.06, to go on" in succeed("train.py", *words, "--max-minutes", 0.06)
    assert differences(ended, last(tmp_path)) == []
    succeed("train.py", *words, "--max-minutes", 60, "--epochs", epochs + 1)
    assert last(tmp_path)["epoch"] == epochs


@pytest.mark.slow
def test_a_limit_of_time_that_an_epoch_exceeds_ends_the_run_within_it(tmp_path: Path, monkeypatch) -> None:
    """An epoch of hours would ignore a limit of minutes."""
    words = [*flags("WaveGlow", tmp_path), "-bs", 1, "--epochs", 3, "--max-minutes", 30, "--resume-from-last"]
    left = itertools.chain([30.0], itertools.repeat(0.0))  # minutes: at the start, and from the first step on
    monkeypatch.setattr(TimePlan, "over_in", property(lambda plan: next(left)))
    out = succeed("train.py", *words)
    assert "--max-minutes 30 ends before epoch 0 does\nstopped in mid-epoch: saved" in out
    ended = last(tmp_path)
    assert (ended["epoch"], ended["iteration"], ended["epoch_complete"]) == (0, 1, False)
    assert read_steps(tmp_path / "nvlog.json")[-1][0] == ()
    assert "nothing left to train: epochs done: 0; raise --max-minutes, now 30" in succeed("train.py", *words)


@pytest.mark.slow
def test_a_warm_start_loads_only_weights(tmp_path: Path) -> None:
    words = [*flags("WaveGlow", tmp_path), "--epochs", 1, "-lr", 1e-30]
    words += ["--warm-start", train_tiny_model("WaveGlow")]
    out = succeed("train.py", *words, "--ignore-layers", "^upsample", r"WN\.3\.start")
    assert "as a warm start at epoch 0; 5 tensors start anew" in out
    taken, old = last(tmp_path)["state_dict"], load_checkpoint(train_tiny_model("WaveGlow"))["state_dict"]
    fresh = {name for name, value in old.items() if not torch.equal(taken[name], value)}
    assert {name.rsplit(".", 1)[0] for name in fresh} == {"upsample", "WN.3.start"}
    assert read_steps(tmp_path / "nvlog.json")[0][0] == (0, 0)
    assert last(tmp_path)["iteration"] == 2
    # the same command goes on from its own checkpoint, not from the start
    out = succeed("train.py", *words, "--resume-from-last", "--epochs", 2)
    assert "resuming at epoch 1" in out and "warm start" not in out


def test_a_dry_run_prints_the_plan_and_writes_no_files(tmp_path: Path) -> None:
    words = flags("WaveGlow", tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    out = succeed("train.py", *words, "--dry-run", "--epochs", 7, "--lr-schedule", "cosine")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    parameters = sum(v.numel() for v in load_checkpoint(train_tiny_model("WaveGlow"))["state_dict"].values())
    assert f"WaveGlow: {parameters:,} parameters" in out
    assert "a step: 2 clips x 1 process x 1 batch = 2 clips" in out
    assert "an epoch: 2 steps; 7 epochs: 14 steps" in out
    assert "mels (2, 10, 17), audio (2, 4096)" in out
    (sizes,) = re.findall(r"weights (\d+\.\d+) MB, gradients (\d+\.\d+) MB, Adam's averages (\d+\.\d+) MB", out)
    megabytes = parameters * 4e-6
    assert list(map(float, sizes)) == pytest.approx([megabytes, megabytes, 2 * megabytes], abs=0.01)


def test_out_of_memory_is_an_error_with_a_hint(tmp_path: Path, monkeypatch) -> None:
    def too_much(*_: Any) -> Any:
        return torch.empty(1 << 56)  # more than any machine has

    monkeypatch.setattr(common.training.loop, "train_step", too_much)
    result = run("train.py", *flags("WaveGlow", tmp_path, 8), "-bs", 8)
    assert result.code == 1
    assert result.err.startswith("error: out of memory: ")
    assert "lower --batch-size from 8 to 4 and set --grad-accumulation-steps 2" in result.err
    assert "Traceback" not in result.err


@pytest.mark.slow
def test_bfloat16_on_a_cpu_without_its_instructions_is_float32_and_a_note(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: False)
    out = succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 2, "--amp")
    assert "--amp: bfloat16 is slower than float32 on this CPU: computing in float32" in out
    assert losses(tmp_path) == losses(train_tiny_model("WaveGlow").parent)


@pytest.mark.slow
def test_float16_on_a_cpu_scales_the_loss_and_counts_skipped_steps(tmp_path: Path) -> None:
    words = ["--epochs", 3, "--amp", "--amp-dtype", "float16"]
    succeed("train.py", *flags("WaveGlow", tmp_path), *words)
    scale = last(tmp_path)["scaler"]["scale"]
    skipped = sum(data.get("train_skipped_steps", 0) for _, data in read_steps(tmp_path / "nvlog.json"))
    assert scale == 65536 / 2**skipped
    assert [event.value for event in events(tmp_path, "WaveGlow").Scalars("train/loss_scale")][-1] == scale
    plain = losses(train_tiny_model("WaveGlow").parent)
    assert by_step(tmp_path)[0]["train_loss"] == pytest.approx(plain[0][1]["train_loss"], rel=0.02, abs=0.01)
