"""SIGKILL to training runs: `python -m tests.kills` has the method, and the larger counts of docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import SETTINGS, attack

pytestmark = pytest.mark.slow

EPOCHS = 5


@pytest.mark.parametrize("setting", SETTINGS)
def test_killed_runs_are_resumed_to_the_bits_of_an_undisturbed_one(setting: str, tmp_path: Path) -> None:
    kills = 2 if SETTINGS[setting].in_write else 1
    report = attack(setting, kills, EPOCHS, tmp_path, seed=1)
    assert (report.files + report.links if SETTINGS[setting].in_write else report.kills) >= kills
