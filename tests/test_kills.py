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
    "amp, shard": SETTINGS["amp"]._replace(words=f"{SETTINGS['amp'].words} --shard --num-workers 1", processes=2),
}


@pytest.mark.parametrize("setting", CASES.values(), ids=CASES)
def test_killed_runs_are_resumed_to_the_bits_of_an_undisturbed_one(setting: Setting, tmp_path: Path) -> None:
    kills = 2 if setting.in_write else 1
    report = attack(setting, kills, EPOCHS, tmp_path, seed=3)
    assert (report.files + report.links if setting.in_write else report.kills) >= kills


def test_a_launch_that_is_killed_leaves_nobody() -> None:
    event, outcome = trial(Event("SIGKILL"), list(LAYOUTS)[-1], True, random.Random(5))
    assert fault(event, outcome) == "", outcome
