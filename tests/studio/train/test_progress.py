"""The log of a training as it grows, resumes and begins anew."""

import math
from dataclasses import replace

from common.run.nvlog import NvLog
from studio.train.progress import ModelProgress, RunLog, describe
from tests.studio.projects import SETTINGS, STEPS, write_step


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
    """Of the 3 epochs of a plan with hours, train.py finds room for 2."""
    plan, log = replace(SETTINGS, epochs=3, hours=1.0), RunLog(tmp_path / "nvlog.json")
    with NvLog(log.path, progress=False) as writer:
        write_step(writer, 1, 3.0)
        log.update()
        assert f"step 1 of at most {3 * STEPS}, epoch 1 of at most 3, loss" in describe(
            "Model", log, plan, ModelProgress()
        )
        writer.log((0,), {"train_loss": 3.0, "planned_epochs": 2})
        log.update()
        assert f"step 1 of {2 * STEPS}, epoch 1 of 2, loss" in describe("Model", log, plan, ModelProgress())
