"""SIGKILL to training runs: `python -m tests.kills` has the method, and the larger counts of docs/reliability.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills import SETTINGS, Setting, attack

pytestmark = pytest.mark.slow

EPOCHS = 3
CASES = {  # all that the settings have, in fewer runs
    "write": SETTINGS["write"],
    "amp, two processes": SETTINGS["amp"]._replace(processes=2),
    "shard, two processes": Setting("WaveGlow", "-bs 1 --shard --num-workers 1", processes=2),
}


@pytest.mark.parametrize("setting", CASES.values(), ids=CASES)
def test_killed_runs_are_resumed_to_the_bits_of_an_undisturbed_one(setting: Setting, tmp_path: Path) -> None:
    kills = 2 if setting.in_write else 1
    report = attack(setting, kills, EPOCHS, tmp_path, seed=3)
    assert (report.files + report.links if setting.in_write else report.kills) >= kills
