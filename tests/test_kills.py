"""SIGKILL to training runs: `python -m tests.kills` has the method, and the larger counts of docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import SETTINGS, attack

pytestmark = pytest.mark.slow

KILLS, EPOCHS = 2, 5


@pytest.mark.parametrize("setting", SETTINGS)
def test_killed_runs_are_resumed_to_the_bits_of_an_undisturbed_one(setting: str, tmp_path: Path) -> None:
    report = attack(setting, KILLS, EPOCHS, tmp_path, seed=1)
    in_write = report.files + report.links
    assert (in_write if SETTINGS[setting].in_write else report.kills) >= KILLS
