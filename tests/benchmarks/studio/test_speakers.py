"""benchmarks/studio/speakers.py on directions of known angles, and without any voice installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.studio import asterisk
from benchmarks.studio.speakers import CLIPS, SHARES, SetOutcome, Voice, main, measure, report, sources
from common.errors import DataError


def voice(name: str, speaker: str, axis: int) -> Voice:
    """60 clips around an axis; noise of 0.03 in 256 dimensions turns each by 25 degrees."""
    points = np.eye(256)[axis] + 0.03 * np.random.default_rng(axis).standard_normal((60, 256))
    return Voice(name, speaker, points / np.linalg.norm(points, axis=1, keepdims=True))


def test_right_angles_are_always_detected_and_one_direction_never() -> None:
    voices = [voice("a-en", "a", 0), voice("a-es", "a", 1), voice("b", "b", 2)]
    outcomes = list(measure(voices, 5, np.random.default_rng(0)))
    single, pairs = outcomes[:15], outcomes[15:]
    assert [(o.others, o.is_refused) for o in single] == [(0.0, False)] * 15
    expected = [("a-en", "b"), ("a-es", "b"), ("b", "a-en"), ("b", "a-es")]  # never two of one speaker
    assert [(o.voices, o.share) for o in pairs] == [(names, share) for names in expected for share in SHARES]
    assert all(o.others == o.share and o.is_refused and abs(o.likeness) < 0.2 for o in pairs)
    assert list(measure(voices, 5, np.random.default_rng(0))) == outcomes


def test_the_report_counts_false_alarms_and_misses() -> None:
    outcomes = [
        SetOutcome(("a",), 0.0, 0.9, 0.0),
        SetOutcome(("a",), 0.0, 0.7, 0.075),
        SetOutcome(("b",), 0.0, 0.7, 0.2),
        SetOutcome(("a", "b"), 0.2, 0.5, 0.2),
        SetOutcome(("b", "a"), 0.2, 0.9, 0.0),
        SetOutcome(("a", "b"), 0.5, 0.5, 0.5),
    ]
    lines = report([voice("a", "a", 0)] * 2, ["c (flite is not installed)"], outcomes, ["--sets", "3"]).splitlines()
    assert lines[0].startswith("`python -m benchmarks.studio.speakers --sets 3`, ")
    assert lines[0].endswith(f": 2 voices, sets of {CLIPS} clips")
    assert "left out: c (flite is not installed)" in lines
    assert "| one voice: a likeness below 0.8 | 2 of 3 |" in lines
    assert "| one voice: refused | 1 of 3 |" in lines
    assert "| two voices, 20 % of the second: refused | 1 of 2 |" in lines
    assert "| two voices, 50 % of the second: refused | 1 of 1 |" in lines
    assert lines[-2:] == ["false alarms: a 1, b 1", "missed: b + a 1"]


def test_voices_that_are_not_installed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(asterisk.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(DataError) as error:
        main(["--output", str(tmp_path / "out"), "--asterisk", str(tmp_path / "prompts")])
    assert "0 voices are available" in str(error.value)
    names = [source.name for source in sources(tmp_path)]
    assert len(names) == len(set(names)) and all(f"{name} (" in str(error.value) for name in names)
    assert "flite-slt (flite is not installed)" in str(error.value)
