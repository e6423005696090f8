"""Half precision on a CPU: train.py and inference.py print a note if they use float32 for lack of bfloat16 instructions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.recipe import flags, succeed, train_tiny_model

pytestmark = pytest.mark.slow

NOTE = "bfloat16 is slower than float32 on this CPU: computing in float32"

WEIGHTS = "large weights of a single row's products are read in float16"


@pytest.fixture
def has_bfloat16(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Fake the CPU feature that oneDNN reports, and hide any GPU."""
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: request.param)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return request.param


def notes(printed: str) -> list[str]:
    """Select the lines of an output that contain "bfloat16"."""
    return [line for line in printed.splitlines() if "bfloat16" in line]


@pytest.mark.parametrize("has_bfloat16", [True, False], indirect=True)
def test_training_prints_the_note(tmp_path: Path, has_bfloat16: bool) -> None:
    half, single = ([*flags("WaveGlow", tmp_path / name), "--epochs", 1] for name in ("half", "single"))
    assert notes(succeed("train.py", *half, "--amp")) == ([] if has_bfloat16 else [f"--amp: {NOTE}"])
    assert notes(succeed("train.py", *single)) == []


@pytest.mark.parametrize("has_bfloat16", [True, False], indirect=True)
def test_inference_prints_the_note(tmp_path: Path, has_bfloat16: bool) -> None:
    (tmp_path / "phrases.txt").write_text("Two.\n")
    words = ["-i", tmp_path / "phrases.txt", "-o", tmp_path, "--max-decoder-steps", 3]
    words += ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    assert notes(succeed("inference.py", *words, "--fp16")) == ([] if has_bfloat16 else [f"--fp16: {NOTE}; {WEIGHTS}"])
    assert notes(succeed("inference.py", *words)) == []
