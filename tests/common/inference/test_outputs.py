"""Messages about the sound of a line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from common.inference.outputs import write_sound
from common.inference.stages import Speech


@pytest.mark.parametrize(
    ("finished", "ending"),
    [(True, "1.00 s  Hi."), (False, "1.00 s  Hi.  (never stopped by itself: cut at the decoder's limit)")],
)
def test_the_message_names_length_and_faults(tmp_path: Path, finished: bool, ending: str) -> None:
    speech = Speech(torch.zeros(22050), 22050, torch.zeros(80, 1), torch.zeros(1, 3), finished, pieces=1)
    assert write_sound(tmp_path / "a.wav", "Hi.", speech).endswith(ending)
