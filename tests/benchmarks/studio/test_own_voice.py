"""The figures of a checkpoint against counts by hand, and the log of a run that was resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.studio import own_voice
from common.quality.report import Line, System
from common.quality.words import Errors
from common.run.nvlog import NvLog
from studio.project import Project

RATE = 16000


def embed(audio: np.ndarray, rate: int) -> np.ndarray:
    """A vector of length 1 whose angle is the mean of the audio."""
    angle = float(np.mean(audio))
    return np.array([np.cos(angle), np.sin(angle)])


def line(errors: Errors, angle: float, opinion: float, limit: float) -> Line:
    values = {"mos": opinion, "ran_to_limit": limit}
    return Line("", np.full(RATE, angle), "", values, {"wer": errors}, {})


def test_figures_of_a_checkpoint_are_those_by_hand() -> None:
    lines = [line(Errors(1, 4), 0.0, 2.0, 0.0), line(Errors(30, 6), np.pi / 3, 3.0, 1.0)]
    lines.append(line(Errors(0, 0), 1.0, 2.5, 0.0)._replace(sound=np.zeros(10)))  # too short for an embedding
    row = own_voice.summarise("epoch 1", System("", lines, 1.0), np.array([1.0, 0.0]), embed, RATE)
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
