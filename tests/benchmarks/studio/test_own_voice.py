"""Figures of own voices: checkpoints and epochs, coverage of diphones, detection of several speakers."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studio import asterisk, own_voice
from benchmarks.studio.diphones import Coverage, choose, coverage, diphones
from benchmarks.studio.speakers import CLIPS, SHARES, SetOutcome, Voice, main, measure, report, sources
from common.errors import DataError
from common.quality.report import Line, System
from common.quality.words import Errors
from common.run.nvlog import NvLog
from studio.project import Project
from studio.voice.verdict import SPEAKER


def line(errors: Errors, likeness: float, opinion: float, limit: float) -> Line:
    values = {"mos": opinion, "ran_to_limit": limit, SPEAKER: likeness}
    return Line("", np.zeros(10), "", values, {"wer": errors}, {})


def test_figures_of_a_checkpoint_are_those_by_hand() -> None:
    lines = [line(Errors(1, 4), 1.0, 2.0, 0.0), line(Errors(30, 6), 0.5, 3.0, 1.0)]
    lines.append(line(Errors(0, 0), np.nan, 2.5, 0.0))  # too short for an embedding
    row = own_voice.summarise("epoch 1", System("", lines, 1.0))
    assert (row.wrong, row.capped) == (31 / 10, 7 / 10)
    assert (row.opinion, row.endless) == (2.5, 1)
    assert row.likeness == pytest.approx((1 + 0.5) / 2)


def test_an_epoch_that_a_resumed_run_repeats_counts_once(tmp_path: Path) -> None:
    project = Project(name="asterisk", projects=tmp_path)
    folder = project.run(own_voice.ACOUSTIC.name)
    folder.mkdir(parents=True)
    with NvLog(folder / "nvlog.json") as log:
        for step, value in (((1,), 60.0), ((2,), 61.0), ((2, 1), 5.0), ((2,), 62.0)):
            log.log(step, {own_voice.SECONDS: value})
    assert own_voice.epoch_values(project, own_voice.SECONDS) == {1: 60.0, 2: 62.0}


PRONUNCIATIONS = {"see": [["S", "IY1"], ["IH0"]], "a": [["AH0"]], "two": [["T", "UW1"]]}


def test_pairs_cross_words_and_the_choice_takes_what_adds_most_to_their_coverage() -> None:
    pairs = [("_", "S"), ("S", "IY"), ("IY", "AH"), ("AH", "_"), ("_", "T"), ("T", "UW"), ("UW", "_")]
    assert diphones("See a, 2!", PRONUNCIATIONS) == pairs
    assert diphones("See zzz a", PRONUNCIATIONS) == [("_", "S"), ("S", "IY"), ("AH", "_")]  # no pronunciation
    counts = Counter({("_", "S"): 6, ("S", "IY"): 5, ("T", "UW"): 5, ("IY", "_"): 4})
    assert coverage(["See."], counts, PRONUNCIATIONS) == Coverage(2, 3, 15 / 20)
    counts = Counter(dict.fromkeys(diphones("See two a.", PRONUNCIATIONS), 9))
    assert choose(["See.", "Two.", "See two a.", "See two."], 2, counts, PRONUNCIATIONS)[0] == "See two a."
    assert choose(["See."], 5, counts, PRONUNCIATIONS) == ["See."]


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
        SetOutcome(("a",), 0.0, 0.9, 0.0), SetOutcome(("a",), 0.0, 0.7, 0.075), SetOutcome(("b",), 0.0, 0.7, 0.2),
        SetOutcome(("a", "b"), 0.2, 0.5, 0.2), SetOutcome(("b", "a"), 0.2, 0.9, 0.0),
        SetOutcome(("a", "b"), 0.5, 0.5, 0.5),
    ]  # fmt: skip
    lines = report([voice("a", "a", 0)] * 2, ["c (flite is not installed)"], outcomes, ["--sets", "3"]).splitlines()
    assert lines[0].startswith("`python -m benchmarks.studio.speakers --sets 3`, ")
    assert lines[0].endswith(f": 2 voices, sets of {CLIPS} clips")
    assert "left out: c (flite is not installed)" in lines
    assert "| one voice: a likeness below 0.8 | 2 of 3 |" in lines
    assert "| one voice: refused | 1 of 3 |" in lines
    assert "| two voices, 20 % of the second: refused | 1 of 2 |" in lines
    assert "| two voices, 50 % of the second: refused | 1 of 1 |" in lines
    assert lines[-2:] == ["false alarms: a 1, b 1", "missed: b + a 1"]


def test_voices_that_are_not_installed_are_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(asterisk.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(DataError) as error:
        main(["--output", str(tmp_path / "out"), "--asterisk", str(tmp_path / "prompts")])
    assert "0 voices are available" in str(error.value)
    names = [source.name for source in sources(tmp_path)]
    assert len(names) == len(set(names)) and all(f"{name} (" in str(error.value) for name in names)
    assert "flite-slt (flite is not installed)" in str(error.value)
