"""A project of tiny models from plan to voice: SIGKILL and a resume change no bit, and the voice speaks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from common import precision
from common.checkpoint.files import load_checkpoint
from models import REGISTRY
from studio import share
from studio.plan.commands import train_argv
from studio.plan.file import ModelPlan, Plan, write_plan
from studio.project import Project, lock_project
from studio.train import __main__ as train
from studio.train.process import RunEnding, run_training
from studio.train.progress import Progress, digest, read_reports
from tests.recipe import MODELS, ROOT, read_steps, run, succeed, train_tiny_model
from tests.studio.projects import make_project
from tests.test_train import differences

pytestmark = pytest.mark.slow


class NoStop:
    """A stop request that no signal makes."""

    is_requested = False


def tiny_plan(project: Project, epochs: int = 4, **values: object) -> Plan:
    """Write a plan that fine-tunes the tiny models, without any package."""
    models = {
        name: ModelPlan(
            warm_start=str(train_tiny_model(name)),
            batch_size=2,
            grad_accumulation_steps=1,
            epochs=epochs,
            learning_rate=1e-3,
            lr_schedule="cosine",
            warmup_steps=0,
            report_every=2,
            report_lines=2,
            best_by={"Tacotron2": "coverage", "WaveGlow": "mel_distance"}[name],
            patience=50,
            hours=None,
            options={"segment_length": 4096} if name == "WaveGlow" else {},
        )
        for name in MODELS
    }
    models = {name: replace(settings, **values) for name, settings in models.items()}
    plan = Plan(seed=1, threads=1, cpu=True, models=models)
    write_plan(project.plan, plan)
    return plan


def start(project: Project) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "studio.train", project.name, "--projects", str(project.projects)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_progress(process: subprocess.Popen[str], log: Path) -> None:
    """Wait until a run has logged the first step of an epoch that the log did not have before."""
    deadline, before = time.monotonic() + 200, epochs_in(log)
    while epochs_in(log) <= max(before, 1):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.02)


def epochs_in(log: Path) -> int:
    """Return the last epoch with a step in a log; -1 without one."""
    return max((step[0] for step, _ in read_steps(log) if len(step) == 2), default=-1) if log.exists() else -1


def test_kill_and_resume_give_the_bits_of_an_uninterrupted_run_and_a_voice_that_speaks(tmp_path: Path) -> None:
    whole = make_project(Project(name="whole", projects=tmp_path))
    killed = make_project(Project(name="killed", projects=tmp_path))
    for project in (whole, killed):
        tiny_plan(project, 40, report_every=10)
    assert train.main([whole.name, "--projects", str(tmp_path)]) == 0

    for number in (signal.SIGKILL, signal.SIGINT):
        process = start(killed)
        wait_for_progress(process, killed.run("Tacotron2") / "nvlog.json")
        process.send_signal(number)
        process.communicate(timeout=100)
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    process = start(killed)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out

    for name in MODELS:
        ours, theirs = (
            load_checkpoint(project.run(name) / f"checkpoint_{name}_last.pt") for project in (killed, whole)
        )
        assert differences(ours["state_dict"], theirs["state_dict"]) == []
        assert differences(ours["optimizer"], theirs["optimizer"]) == []
        assert ours["epoch"] == theirs["epoch"] == 39
        assert read_reports(killed.run(name)) == read_reports(whole.run(name))
        file = f"{REGISTRY[name].flag}.safetensors"
        voices = [load_checkpoint(project.voice / file) for project in (killed, whole)]
        assert differences(*voices) == []
    check_voice(whole, tmp_path)


def check_voice(project: Project, tmp_path: Path) -> None:
    """Check the files of a voice, its card, and that inference and the zip file take it."""
    config = json.loads((project.voice / "config.json").read_text())
    assert config["name"] == "whole" and config["vocoder"] in ("waveglow", "griffin-lim")
    card = (project.voice / "README.md").read_text()
    assert ("| clips of training | 5 |" in card and "No recogniser" in card) or "WER %" in card
    assert "| 39 |" in card  # the last report
    assert (
        "Tacotron2, selected by text that attention reads among epochs with a validation loss at most 0.1 above the lowest:"
        in card
    )
    assert len(list((project.voice / "samples").glob("*.wav"))) == 2
    share.main([project.name, "--projects", str(tmp_path)])
    with zipfile.ZipFile(project.root / "whole.zip") as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "unpacked")
    (tmp_path / "phrase.txt").write_text("Good morning.\n")
    words = ["-i", tmp_path / "phrase.txt", "-o", tmp_path / "spoken", "--cpu", "--seed", 1]
    succeed("inference.py", *words, "--voice", tmp_path / "unpacked" / "whole")
    assert (tmp_path / "spoken" / "audio_0.wav").stat().st_size > 44
    first = (project.root / "whole.zip").read_bytes()
    share.main([project.name, "--projects", str(tmp_path)])
    assert (project.root / "whole.zip").read_bytes() == first


def test_a_budget_ends_a_run_after_a_save_and_the_next_command_trains_no_more(tmp_path: Path, capfd) -> None:
    project = make_project(Project(name="short", projects=tmp_path))
    plan = tiny_plan(project, 100_000)
    words, spent = train_argv("WaveGlow", plan, project), list[float]()
    assert run_training(words, 1, 40.0, NoStop(), spent.append) is RunEnding.BUDGET  # type: ignore[arg-type]
    assert "saved" in capfd.readouterr().out
    assert sum(spent) >= 40.0
    assert load_checkpoint(project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt")["iteration"] > 0
    assert run_training(words, 1, 0.0, NoStop(), spent.append) is RunEnding.BUDGET  # type: ignore[arg-type]
    plan = tiny_plan(project, 100_000, hours=1 / 3600)
    progress = Progress(project.root / "runs" / "progress.json")
    progress.begin("WaveGlow", digest("WaveGlow", plan, project))
    progress.spend("WaveGlow", 8.0)
    log = project.run("WaveGlow") / "nvlog.json"
    before, steps = (
        os.stat(log).st_mtime,
        sum(data["train_iter_time"] for step, data in read_steps(log) if len(step) == 2),
    )
    assert train.train_model("WaveGlow", plan, project, progress, NoStop())  # type: ignore[arg-type]
    assert Progress(progress.path).of("WaveGlow").reason == "its budget of 1 s"
    words = f"WaveGlow: trained (its budget of 1 s); 8 s in all: {steps:.0f} s of steps, "
    assert words in capfd.readouterr().out
    assert train.train_model("WaveGlow", plan, project, progress, NoStop())  # type: ignore[arg-type]
    assert os.stat(log).st_mtime == before
    out = capfd.readouterr().out
    assert (
        "WaveGlow: nothing to do, its plan has ended (its budget of 1 s); to train on, raise `epochs`, `hours`" in out
    )
    assert f"or run python -m studio.plan --minutes M short --projects {tmp_path}\n" in out


def test_a_changed_plan_trains_on_after_a_budget_is_spent(tmp_path: Path, capfd) -> None:
    """It printed a line that nobody saw, and trained nothing."""
    project = make_project(Project(name="more", projects=tmp_path))
    progress = Progress(project.root / "runs" / "progress.json")
    for epochs in (1, 2):
        plan = tiny_plan(project, epochs, hours=0.5, report_every=1)
        assert train.train_model("WaveGlow", plan, project, progress, NoStop())  # type: ignore[arg-type]
        assert "WaveGlow: trains to epoch" in capfd.readouterr().out
        assert load_checkpoint(project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt")["epoch"] == epochs - 1
        progress.spend("WaveGlow", 1800.0)  # all of it
    state = Progress(progress.path).of("WaveGlow")
    assert state.seconds > 3600 and 1800 < state.spent < 3600


def test_a_budget_ends_with_an_epoch_and_its_report(tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The voice was the one of an earlier report, since the last epochs had none."""
    monkeypatch.setattr(train, "START", 295.0)  # so that a machine may be slow to start, and the test ends soon
    project = make_project(Project(name="report", projects=tmp_path))
    plan = tiny_plan(project, 100_000, hours=300 / 3600)
    progress = Progress(project.root / "runs" / "progress.json")
    assert train.train_model("WaveGlow", plan, project, progress, NoStop())  # type: ignore[arg-type]
    last = load_checkpoint(project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt")
    assert last["epoch_complete"] and read_reports(project.run("WaveGlow"))[-1].epoch == last["epoch"]
    assert f"epoch {last['epoch']} is the last" in capfd.readouterr().out
    assert Progress(progress.path).of("WaveGlow").reason == "its budget of 5 min"


def test_epochs_that_are_done_name_the_ways_to_train_on(tmp_path: Path, capfd) -> None:
    """It named --epochs, a flag of train.py."""
    project = make_project(Project(name="done", projects=tmp_path))
    progress = Progress(project.root / "runs" / "progress.json")
    for patience in (10, 11):
        plan = tiny_plan(project, 2, patience=patience)
        assert train.train_model("WaveGlow", plan, project, progress, NoStop())  # type: ignore[arg-type]
    out = capfd.readouterr().out
    assert "WaveGlow: trained (all 2 epochs); " in out and "--epochs" not in out
    assert "WaveGlow: nothing to train, all 2 epochs are done; to train on, raise `epochs`, `hours`" in out


def test_a_damaged_checkpoint_leaves_the_choice_to_train_py(tmp_path: Path, capfd) -> None:
    project = make_project(Project(name="damaged", projects=tmp_path))
    progress = Progress(project.root / "runs" / "progress.json")
    for epochs in (3, 4):
        plan = tiny_plan(project, epochs, report_every=1)
        assert train.train_model("WaveGlow", plan, project, progress, NoStop())  # type: ignore[arg-type]
        last = project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt"
        assert load_checkpoint(last)["epoch"] == epochs - 1
        last.resolve().write_bytes(last.read_bytes()[:5000])
    assert "checkpoint_WaveGlow_1.pt: resuming at epoch 2" in capfd.readouterr().out


def test_changed_clips_train_on_after_the_end_of_a_plan(tmp_path: Path, capfd) -> None:
    """An edited transcript made no difference to a model whose budget was spent."""
    project = make_project(Project(name="edited", projects=tmp_path))
    progress = Progress(project.root / "runs" / "progress.json")
    plan = tiny_plan(project, 100_000, hours=3 / 3600)
    for _ in range(2):
        assert train.train_model("Tacotron2", plan, project, progress, NoStop())  # type: ignore[arg-type]
        assert "Tacotron2: trains to epoch" in capfd.readouterr().out
        assert train.train_model("Tacotron2", plan, project, progress, NoStop())  # type: ignore[arg-type]
        assert "Tacotron2: nothing to do" in capfd.readouterr().out
        first, *others = project.training_list.read_text().splitlines(keepends=True)
        project.training_list.write_text("".join([first.replace("|", "|well "), *others]))


def test_a_run_that_fails_ends_the_command_with_its_reason(tmp_path: Path) -> None:
    project = make_project(Project(name="bad", projects=tmp_path))
    tiny_plan(project)
    shutil.rmtree(project.clips)
    result = subprocess.run(
        [sys.executable, "-m", "studio.train", "bad", "--projects", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "no file clips/" in result.stderr and "train.py ended with exit code 1" in result.stderr


def test_a_training_refuses_another_run_on_its_project(tmp_path: Path) -> None:
    """Two trainings would count the same time twice; a preparation would replace the clips of a training."""
    project = make_project(Project(name="busy", projects=tmp_path))
    tiny_plan(project)
    words = [["studio.train", "busy"], ["studio.prepare", "--name", "busy", "--apply"]]
    with lock_project(project):
        for command in words:
            command = [sys.executable, "-m", *command, "--projects", str(tmp_path)]
            result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert result.returncode == 1, result.stdout
            assert (
                result.stderr
                == f"error: {project.root}: another studio.prepare or studio.train is at work on it; wait for its end\n"
            )
    assert not project.run("Tacotron2").exists()


def test_missing_projects_and_plans_name_the_command_to_run(tmp_path: Path) -> None:
    for module, wanted in (("plan", "prepare FOLDER --name"), ("train", "plan"), ("share", "train")):
        result = subprocess.run(
            [sys.executable, "-m", f"studio.{module}", "none", "--projects", str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 1, result.stderr
        assert f"no such file; run python -m studio.{wanted} none --projects {tmp_path} first" in result.stderr


def test_plan_measures_and_train_py_takes_its_words(tmp_path: Path, capsys) -> None:
    from studio.plan import __main__ as command

    project = make_project(Project(name="planned", projects=tmp_path))
    starts = [str(train_tiny_model(name)) for name in MODELS]
    command.main(
        [project.name, "--projects", str(tmp_path), "--from", *starts, "--cpu", "--minutes", "30", "--find-lr"]
    )
    out = capsys.readouterr().out
    assert "an estimate from 10 measured steps and one report" in out and "all 5 clips in one step" in out
    assert f"edit it, then run python -m studio.train planned --projects {tmp_path}\n" in out
    content = json.loads(project.plan.read_text())
    measured = content["notes"]["machine"]["Tacotron2"]
    assert measured["report_seconds"] > 0 and measured["start_seconds"] > 0
    assert content["models"]["Tacotron2"]["batch_size"] == 5
    for name, settings in content["models"].items():
        tested = json.loads((project.root / "learning_rate" / f"learning_rate_{name}.json").read_text())
        assert settings["learning_rate"] == pytest.approx(tested["suggestion"], rel=0.05)
        assert "range test" in settings["reasons"]["learning_rate"]
        assert (project.root / "learning_rate" / f"learning_rate_{name}.png").exists()
    assert content["models"]["WaveGlow"]["hours"] == pytest.approx(0.2)
    options = [settings["options"] for settings in content["models"].values()]
    assert [values.get("amp", False) for values in options] == [precision.has_fast_half(torch.device("cpu"))] * 2
    assert content["models"]["Tacotron2"]["options"]["p_convolution_dropout"] == 0.1  # the start is a small model
    from studio.plan.file import read_plan

    words = train_argv("Tacotron2", read_plan(project.plan), project)
    assert "5 clips x 1 processes" in run("train.py", *words, "--dry-run").out
