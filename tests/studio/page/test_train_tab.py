"""The view of a training: time left, losses, and the pictures and sounds of the newest report."""

import numpy as np
import pytest
import torch

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")

from common.data.pictures import figure_pixels, plot_losses
from common.errors import DataError
from common.run.nvlog import NvLog
from studio.page import train_tab
from studio.page.train_tab import TrainingView, newest_model
from studio.project import Project
from tests.studio.projects import FLAGS, store_plan, write_step


@pytest.fixture
def project(prepared: Project) -> Project:
    others = {"warm_start": None, "best_by": "loss", "max_minutes": 0.6, "epochs": 1000}
    store_plan(prepared, {"Tacotron2": FLAGS, "WaveGlow": FLAGS | others})
    return prepared


def log_of(project: Project, name: str) -> NvLog:
    folder = project.run(name)
    return NvLog(folder / "nvlog.json", folder / "tensorboard" / name, progress=False)


def test_progress_curves_pictures_and_sounds(project, monkeypatch):
    monkeypatch.setattr(train_tab, "CURVE_SECONDS", 1e6)  # a busy machine would need the usual ten
    view = TrainingView()
    assert view.look(project, "Tacotron2").words == "Tacotron2: no step yet."
    figure = plot_losses({1: 1.0}, {})
    sound = torch.sin(torch.arange(2205) / 10)
    with log_of(project, "Tacotron2") as log:
        write_step(log, 1, 3.0)
        for step in (1, 2):
            log.figure("validation/alignment", figure, step)
            log.audio("evaluation/1", step * sound / 4, step, 22050)
            log.audio("evaluation/0", sound, step, 22050)
    sight = view.look(project, "Tacotron2")
    assert "step 1 of 8, epoch 1 of 4, loss 3.0000.\n0.50 s a step, about 4 s left at most." in sight.words  # 7 x 0.5
    np.testing.assert_array_equal(sight.losses, figure_pixels(plot_losses({1: 3.0}, {}, "Tacotron2: loss")))
    np.testing.assert_allclose(sight.report.alignment, figure_pixels(figure), atol=1)
    texts = [line.split("|")[1] for line in project.validation_list.read_text().splitlines()]
    assert [speech.text for speech in sight.report.speeches] == texts
    assert {(speech.step, speech.rate) for speech in sight.report.speeches} == {(2, 22050)}
    np.testing.assert_allclose(sight.report.speeches[1].samples / 32767, sound / 2, atol=1e-3)
    again = view.look(project, "Tacotron2", sight.keys)
    assert again == (sight.keys, sight.words, None, None, True)
    with log_of(project, "Tacotron2") as log:
        write_step(log, 2, 2.0)
        later = view.look(project, "Tacotron2", sight.keys)
        assert "step 2 of 8" in later.words and later.losses is None  # the next curve waits for some seconds
        log.log((0,), {"val_loss": 2.5})
    later = view.look(project, "Tacotron2", sight.keys)
    assert later.losses is not None and later.report is not None


def test_words_for_the_newest_model_its_time_left_and_its_newest_report(project):
    assert newest_model(project) == "PulseNoise"
    with log_of(project, "WaveGlow") as log:
        write_step(log, 1, 3.0)
        log.log((0,), {"evaluation_wer": 0.5, "evaluation_wer_capped": 0.25})
    assert newest_model(project) == "WaveGlow"
    view = TrainingView()
    words, report = view.look(project, "WaveGlow").words, "Report of epoch 1: wrong words 25 %."
    assert "about 36 s left at most" in words and words.endswith(report)  # 0.6 min, not 1,999 x 0.5 s
    with log_of(project, "WaveGlow") as log:
        log.log((), {"run_time": 1.0})
    assert view.look(project, "WaveGlow").words.endswith(f"Finished: its time limit of 36 s.\n{report}")
    project.plan.write_text("{")  # a damaged file is passed over
    assert view.look(project, "WaveGlow").words.endswith(report)


def test_a_link_out_of_the_project_is_not_read(project, tmp_path):
    (tmp_path / "outside").mkdir()
    (project.root / "runs").mkdir()
    project.run("Tacotron2").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="leads out of the project"):
        TrainingView().look(project, "Tacotron2")
