"""The benchmark of the loaders: every model and source, with and without processes."""

import json
import math

import pytest

from benchmarks import loaders
from benchmarks.sizes import MARK
from models import RECIPE

pytestmark = pytest.mark.slow


def test_a_trial_measures_every_loader(capsys) -> None:
    """Both models, both sources; the cores at the goal are those of the measured rate."""
    loaders.main(["--quick"])
    *_, last = capsys.readouterr().out.splitlines()
    rows = json.loads(last.removeprefix(MARK))["rows"]
    measured = [(row["model"], row["source"], row["workers"]) for row in rows]
    assert measured == [(model, source, n) for model in RECIPE for source in ("wav", "stored mels") for n in (0, 1)]
    for row in rows:
        of_core = row["per_cpu_sec"] if row["workers"] == 0 else row["items_per_sec"]
        assert row["needed"] == math.ceil(loaders.GOALS[row["model"]] / of_core) >= 1
