"""Stopped training runs: `python -m tests.kills` and `tests.stops` have the method, and the counts of docs/reliability.md."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kills import SETTINGS, Setting, attack
from tests.stops import LAYOUTS, Event, fault, trial

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


@pytest.mark.parametrize("event", [Event("SIGTERM", "all"), Event("SIGKILL")])
def test_a_stopped_launch_ends_whole_and_leaves_nobody(event: Event) -> None:
    event, outcome = trial(event, list(LAYOUTS)[-1], event.name == "SIGKILL", random.Random(5))
    assert fault(event, outcome) == "", outcome
