"""The log of a training as it grows, resumes and begins anew."""

import json
import math
from dataclasses import replace

import pytest

from common.run.nvlog import NvLog
from studio.train.progress import RunLog, describe, reason_of
from tests.studio.projects import OPTIONS, STEPS, write_step


def test_a_log_is_read_while_it_grows(tmp_path):
    path, reader = tmp_path / "nvlog.json", RunLog(tmp_path / "nvlog.json")
    assert reader.update() is False and reader.step == 0 and reader.seconds_per_step is None
    with NvLog(path, progress=False) as log:
        log.parameters({"epochs": 3})
        write_step(log, 1, 3.0, 9.0)
        assert reader.update() and (reader.step, reader.epoch, reader.steps_per_epoch) == (1, 0, STEPS)
        assert reader.update() is False
        write_step(log, 2, math.nan)
        log.log((0, 1, 0), {"val_loss": 7.0})  # a batch of the validation
        log.log((0,), {"val_loss": 2.5})
        log.log((0,), {"evaluation_wer": 0.5, "evaluation_coverage": 1.0})
        write_step(log, 3, 1.0)
        assert reader.update()
        assert reader.losses.training[1] == 3.0 and math.isnan(reader.losses.training[2])
        assert reader.losses.validation == {2: 2.5}
        assert reader.report == (0, {"wer": 0.5, "coverage": 1.0})
        assert reader.reports == {0: {"wer": 0.5, "coverage": 1.0, "val_loss": 2.5}}
        assert reader.seconds_per_step == 0.5 and (reader.step, reader.epoch) == (3, 1)
        with path.open("a") as file:
            file.write('DLLL {"type": "LOG", "step": [1, 1], "da')  # a record that is being written
        assert reader.update() is False and reader.step == 3
        with path.open("a") as file:
            file.write('ta": {"glob_iter/iters_per_epoch": "3/2", "train_loss": 0.25}}\ntext\nDLLL []\n')
        assert reader.update() and reader.losses.training[4] == 0.25
    with NvLog(path, progress=False) as log:  # a resumed run repeats a step
        write_step(log, 3, 0.5)
    assert RunLog(path).update()
    reader.update()
    assert (reader.losses.training[3], len(reader.losses.training)) == (0.5, 4)
    path.rename(tmp_path / "nvlog_1.json")
    with NvLog(path, progress=False) as log:
        write_step(log, 1, 4.0)
    assert reader.update() and reader.losses.training == {1: 4.0} and reader.report is None


def test_epochs_are_those_that_the_run_plans_once_it_has_measured_one(tmp_path):
    """Of the 3 epochs of a plan with a time limit, train.py finds room for 2."""
    run = replace(OPTIONS.run, epochs=3, max_minutes=0.1, early_stop_patience=7)
    options, log = replace(OPTIONS, run=run), RunLog(tmp_path / "nvlog.json")
    with NvLog(log.path, progress=False) as writer:
        write_step(writer, 1, 3.0)
        log.update()
        words = f"step 1 of at most {3 * STEPS}, epoch 1 of at most 3, loss 3.0000.\n0.50 s a step, about 2 s left"
        assert words in describe("Model", log, options)
        write_step(writer, 2, 3.0, seconds=20.0)
        log.update()
        assert "10.25 s a step, about 6 s left at most" in describe("Model", log, options)  # not 4 x 10 s
        writer.log((0,), {"train_loss": 3.0, "planned_epochs": 2})
        log.update()
        assert f"step 2 of {2 * STEPS}, epoch 1 of 2, loss" in describe("Model", log, options)
        assert not log.finished


@pytest.mark.parametrize(
    ("steps", "planned", "reason"),
    [(6, 3, "all 3 epochs"), (4, 2, "its time limit of 6 s"), (3, 3, "its time limit of 6 s"), (4, 3, "no gain in 7 reports")],
)  # fmt: skip
def test_a_log_tells_why_a_run_ended(tmp_path, steps: int, planned: int, reason: str) -> None:
    """By epochs, by the time that has room for no further epoch or ends in the middle of one, or by patience."""
    options = replace(OPTIONS, run=replace(OPTIONS.run, epochs=3, max_minutes=0.1, early_stop_patience=7))
    for _ in range(2):  # the second run finds nothing to train
        with NvLog(tmp_path / "nvlog.json", progress=False) as writer:
            for step in range(1, steps + 1):
                write_step(writer, step, 3.0)
                if step % STEPS == 0:
                    writer.log((step // STEPS - 1,), {"planned_epochs": planned})
            writer.log((), {"run_time": 1.0})
    log = RunLog.read(tmp_path / "nvlog.json")
    assert log.finished and reason_of(log, options) == reason
    assert describe("Model", log, options).endswith(f"Finished: {reason}.")


def test_the_time_of_a_log_is_that_of_all_its_runs(tmp_path) -> None:
    records = [
        {"elapsedtime": f"{seconds:.6f}", "type": "LOG", "step": [0, 0], "data": {}} for seconds in (0.5, 7, 0.25, 9)
    ]
    (tmp_path / "nvlog.json").write_text("".join(f"DLLL {json.dumps(record)}\n" for record in records))
    assert RunLog.read(tmp_path / "nvlog.json").seconds == 16.0
