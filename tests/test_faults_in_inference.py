"""Faults of machines and of weights in inference: memory, overflow, disks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from common.training.checkpoint import load_checkpoint
from tests.recipe import train_tiny_model
from tests.test_errors import speech, stderr_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("model", "weight", "name"),
    [("Tacotron2", "decoder.linear_projection.linear_layer.weight", "mels"), ("WaveGlow", "WN.3.end.weight", "audio")],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_finite_weights_that_overflow_are_named_with_the_line(
    tmp_path: Path, model: str, weight: str, name: str, streamed: bool
) -> None:
    path, checkpoint = tmp_path / "large.pt", load_checkpoint(train_tiny_model(model))
    large = checkpoint["state_dict"][weight]
    checkpoint["state_dict"][weight] = torch.full_like(large, 3e38)
    torch.save(checkpoint, path)
    words = [*speech(tmp_path, "Two."), f"--{model.lower()}", path, "--seed", 1]
    words += ["--stream", tmp_path / "sound.raw"] if streamed else []
    assert stderr_of(1, "inference.py", *words) == (
        f"error: {tmp_path}/phrases.txt:1: NaN or infinite {name}: the weights of {path} overflow with this text; "
        "take another checkpoint"
    )
    assert not list((tmp_path / "speech").glob("*.wav"))
