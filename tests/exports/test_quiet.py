"""The command prints its own lines alone: no warning of PyTorch or of another package reaches the terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exports.aotinductor import COMPILERS
from exports.targets import TARGETS, WITHOUT_PACKAGES
from exports.voice import RUNNERS
from tests.exports.conftest import skip_without_packages
from tests.recipe import ROOT, train_tiny_model

pytestmark = pytest.mark.slow


def command(*words: object) -> list[str]:
    """Run the command as a user does; return its lines. Nothing may be on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "exports", *map(str, words)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "target", sorted(set(TARGETS) - {"web"})
)  # web needs packages of npm; its steps are those of onnx
def test_an_export_and_its_run_print_their_own_lines(target: str, tmp_path: Path) -> None:
    if target not in WITHOUT_PACKAGES:
        skip_without_packages()
    if target == "aotinductor" and not any(map(shutil.which, COMPILERS)):
        pytest.skip(f"no C++ compiler ({', '.join(COMPILERS)})")
    voice = ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    first, *files = command(target, "-o", tmp_path / "export", *voice)
    assert first.startswith("voice: ")
    if target == "tensorrt":
        files.pop()  # the note that an engine needs a GPU of its own
    assert all(line.startswith(str(tmp_path / "export")) for line in files), files
    if target not in RUNNERS or target == "tensorrt":
        return
    (tmp_path / "phrase.txt").write_text("Two.\n")
    for program in ([], ["--programs"]) if target == "torchscript" else ([],):
        words = ["run", tmp_path / "export", "-i", tmp_path / "phrase.txt", "-o", tmp_path / "speech", *program]
        assert command(*words)[1].startswith(str(tmp_path / "speech" / "audio_0.wav"))
