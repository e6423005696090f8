"""SIGKILL to training runs: `python -m tests.kills` has the method, and the larger counts of docs/reliability.md."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.kills import SETTINGS
from tests.recipe import ROOT

pytestmark = pytest.mark.slow

KILLS, EPOCHS = 2, 12


@pytest.mark.parametrize("setting", SETTINGS)
def test_killed_runs_are_resumed_to_the_bits_of_an_undisturbed_one(setting: str) -> None:
    """The command forks, which this process must not: PyTorch's threads do not pass to a fork."""
    command = [sys.executable, "-m", "tests.kills", "--settings", setting]
    command += f"--kills {KILLS} --epochs {EPOCHS}".split()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    hits = re.fullmatch(
        rf"{setting}: (\d+) kills, (\d+) inside the write of a file.*, (\d+) inside that of a link; .*\n", done.stdout
    )
    assert hits, done.stdout
    in_write = int(hits[2]) + int(hits[3])
    assert (in_write if SETTINGS[setting].in_write else int(hits[1])) >= KILLS
