"""Figures of a dry run for other programs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from models import load_model
from tests.recipe import MODELS, flags, run, succeed, train_tiny_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("model", MODELS)
def test_ten_steps_and_the_memory_of_a_clip(tmp_path: Path, model: str) -> None:
    path = tmp_path / "figures.json"
    succeed("train.py", *flags(model, tmp_path), "--dry-run", "--measure", path)
    figures = json.loads(path.read_text())
    weights = sum(weight.numel() for weight in load_model(model, train_tiny_model(model)).parameters())
    assert (figures["model"], figures["parameters"], figures["clips"]) == (model, weights, 5)
    assert (figures["clips_per_step"], figures["steps_per_epoch"]) == (2, 2)
    assert len(figures["step_seconds"]) == 10 and min(figures["step_seconds"]) > 0
    # weights and both averages of Adam are float32
    assert figures["always"] >= 3 * 4 * weights and figures["clip"] > 0
    assert figures["available"] > figures["always"] + 2 * figures["clip"]
    assert figures["report_seconds"] == 0  # no --evaluate-every
    assert not list(tmp_path.glob("*.pt"))


def test_the_time_of_a_report_is_measured_and_nothing_is_written(tmp_path: Path) -> None:
    path, began = tmp_path / "figures.json", time.time()
    reports = ["--epochs-per-validation", "1", "--evaluate-every", "1", "--evaluate-lines", "2"]
    reports += ["--evaluate-without", "asr", "mos", "likeness"]
    succeed("train.py", *flags("Tacotron2", tmp_path), *reports, "--dry-run", "--measure", path)
    figures = json.loads(path.read_text())
    passed = time.time() - figures["began"]
    assert 0 < figures["report_seconds"] < passed < time.time() - began
    assert figures["report_seconds"] + sum(figures["step_seconds"]) < passed
    assert {file.suffix for file in tmp_path.iterdir()} == {".txt", ".json"}  # the lists of the test, and the figures


def test_a_batch_that_cannot_fit_is_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    succeed("train.py", *flags("Tacotron2", tmp_path), "-bs", 10**9, "--dry-run", "--measure", path)
    figures = json.loads(path.read_text())
    assert figures["step_seconds"] == [] and figures["clips_per_step"] == 5


def test_measuring_needs_a_dry_run(tmp_path: Path) -> None:
    result = run("train.py", *flags("WaveGlow", tmp_path), "--measure", tmp_path / "figures.json")
    assert result.code == 2 and "--measure: of no use without --dry-run" in result.err
