"""Audio, mels and checkpoints of unknown origin: the kept inputs of their readers, and a short run of the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.replay import fuzz_for_a_while, kept_inputs, replay

TARGETS = ("sound", "mel", "checkpoint", "safetensors")


@pytest.mark.parametrize(("target", "name"), kept_inputs(*TARGETS))
def test_kept_inputs(target: str, name: str) -> None:
    replay(target, name)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_fuzzing(target: str, tmp_path: Path) -> None:
    fuzz_for_a_while(target, tmp_path)
