"""The trials of docs/reliability.md: a stop, a late end and other bits are told apart."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks import stops


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyworld") is None, reason="pyworld, of requirements/eval.txt, is not installed")
def test_a_training_that_is_asked_to_stop_goes_on_to_the_same_bits(monkeypatch) -> None:
    name = "pulse-noise with a loader"
    monkeypatch.setattr(stops, "PATIENCE", 120.0)  # of a busy machine
    whole = stops.undisturbed(name)
    found = stops.trial("SIGTERM", "all", name, 0.6, whole)
    assert found["faults"] == [] and found["job"] == name
    assert stops.table([found]).count("| 1 |") == 2
    other = stops.trial("SIGKILL", "main", name, 0.6, whole | {"digest": "another"})
    assert other["faults"] == ["other bits"]


def test_what_does_not_end_is_late_and_what_is_left_is_killed(monkeypatch) -> None:
    monkeypatch.setattr(stops, "PATIENCE", 1.0)
    with stops.workplace("export", False) as folder:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        (folder / "err").touch()
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline()
        stops.strike("SIGTERM", "all", folder, process.pid)
        assert stops.wait(process, folder, 1.0) == ["late"] and process.returncode == -signal.SIGKILL
        assert stops.read_steps(folder / "out") == (0, 0, 0)
    assert not folder.exists()
