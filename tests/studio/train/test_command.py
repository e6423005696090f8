"""A project of tiny models from plan to voice: SIGKILL and a resume change no bit, and the voice speaks."""

import itertools
import json
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from common import precision
from common.checkpoint.files import load_checkpoint, save_checkpoint
from common.errors import DataError, UsageError
from common.run.interrupt import StopRequest
from studio import share
from studio.plan import __main__ as planning
from studio.plan import commands
from studio.plan.commands import sharpen_command, train_argv, train_command
from studio.plan.file import Plan, read_plan, write_plan
from studio.prepare import __main__ as prepare
from studio.project import Project
from studio.train import __main__ as train
from studio.train.process import RunEnding, run_training
from studio.train.progress import LOG, ModelProgress, RunLog, TrainingProgress, digest
from studio.voice import voice
from studio.voice.voice import best_checkpoint, sharpened, write_model
from tests.recipe import (
    MODELS,
    alive,
    children,
    close_terminal,
    read_steps,
    run,
    start,
    succeed,
    train_tiny_model,
    wait_for,
)
from tests.studio.projects import SETTINGS, add_runs, make_project
from tests.test_train import differences

pytestmark = pytest.mark.slow


NO_STOP: Any = SimpleNamespace(is_requested=False)  # by any signal
EPOCHS = {"Tacotron2": 20, "WaveGlow": 2}  # of the run that is killed, early in Tacotron2's


@pytest.fixture
def project(prepared: Project) -> Project:
    return prepared


@pytest.fixture
def flags(project: Project) -> list[str]:
    return [project.name, "--projects", str(project.projects)]


def tiny_plan(project: Project, epochs: int = 4, **values: object) -> Plan:
    best_by = {"Tacotron2": "coverage", "WaveGlow": "mel_distance"}
    options = {"Tacotron2": {}, "WaveGlow": {"segment_length": 4096}}
    plain = replace(SETTINGS, epochs=epochs, reasons={})
    models = {
        name: replace(plain, warm_start=str(train_tiny_model(name)), best_by=best_by[name], options=options[name])
        for name in MODELS
    }
    models = {name: replace(settings, **values) for name, settings in models.items()}
    if find_spec("pyworld"):  # of requirements/eval.txt
        others = {"warm_start": None, "best_by": "loss", "epochs": 2, "options": {"n_mel_channels": 10}}
        models["PulseNoise"] = replace(models["WaveGlow"], **others)
    plan = Plan(seed=1, threads=1, cpu=True, models=models)
    write_plan(project.plan, plan)
    return plan


def train_here(
    command: list[str], threads: int, left: float, stop: object, spend: Callable[[float], None]
) -> RunEnding:
    """Run train.py, or the script that sharpens mels, in this process, which spares its start."""
    print(succeed("scripts/sharpen_mels.py", *command[3:]) if command[1] == "-m" else succeed("train.py", *command[2:]))
    spend(1.0)
    return RunEnding.FINISHED


@pytest.fixture
def in_process(monkeypatch) -> None:
    monkeypatch.setattr(train, "run_training", train_here)


def epochs_in(log: Path) -> int:
    return max((step[0] for step, _ in read_steps(log) if len(step) == 2), default=-1) if log.exists() else -1


def reports_of(folder: Path) -> dict[int, dict[str, float]]:
    return RunLog.read(folder / LOG).reports


def progress_of(project: Project) -> TrainingProgress:
    return TrainingProgress(project.progress)


def train_waveglow(project: Project, plan: Plan, progress: TrainingProgress | None = None) -> bool:
    return train.train_model("WaveGlow", plan, project, progress or progress_of(project), NO_STOP)


def test_kill_and_resume_give_the_bits_of_an_uninterrupted_run_and_a_voice(tmp_path: Path, monkeypatch, capsys) -> None:
    whole, killed = (make_project(Project(name=name, projects=tmp_path)) for name in ("whole", "killed"))
    plan = tiny_plan(whole, EPOCHS["Tacotron2"], report_every=20)
    short = replace(plan.models["WaveGlow"], epochs=EPOCHS["WaveGlow"], report_every=2)
    write_plan(whole.plan, replace(plan, models=plan.models | {"WaveGlow": short}))
    write_plan(killed.plan, replace(plan, models={"Tacotron2": plan.models["Tacotron2"]}))
    with monkeypatch.context() as patch:
        patch.setattr(train, "run_training", train_here)
        assert train.main([whole.name, "--projects", str(tmp_path)]) == 0

    log, argv = killed.run("Tacotron2") / "nvlog.json", [killed.name, "--projects", str(tmp_path)]
    process = start(sys.executable, "-m", "studio.train", *argv)
    wait_for(process, lambda: epochs_in(log) > 1)
    process.kill()
    process.communicate()
    reached = epochs_in(log)

    class StopSoon(StopRequest):
        """A Ctrl-C in an epoch that the killed run did not reach."""

        exit_code = 130
        is_requested = property(lambda self: epochs_in(log) > reached)

    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequest", StopSoon)
        assert train.main(argv) == 130
    assert f"stopped: python -m studio.train killed --projects {tmp_path} resumes it\n" in capsys.readouterr().out
    assert not killed.voice.exists()
    (killed.voice / "samples").mkdir(parents=True)
    for name in ("waveglow.safetensors", "samples/sample_9.wav"):  # of an earlier voice, perhaps of another speaker
        (killed.voice / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(train, "run_training", train_here)
        for module in (commands, voice):  # nothing of requirements/eval.txt
            patch.setattr(module, "find_spec", lambda name: None)
        assert train.main(argv) == 0
    assert "Not measured: words, because no recogniser is installed" in capsys.readouterr().out

    check_equal(killed, whole)
    check_voice(whole, tmp_path)


def check_equal(killed: Project, whole: Project) -> None:
    """Check that two projects have the same Tacotron2: its checkpoint, its reports, and the file of the voice."""
    name = "Tacotron2"
    ours, theirs = (load_checkpoint(project.run(name) / f"checkpoint_{name}_last.pt") for project in (killed, whole))
    assert differences(ours["state_dict"], theirs["state_dict"]) == []
    assert differences(ours["optimizer"], theirs["optimizer"]) == []
    assert ours["epoch"] == theirs["epoch"] == EPOCHS[name] - 1
    assert reports_of(killed.run(name)) == reports_of(whole.run(name)) != {}
    voices = [load_checkpoint(project.voice / "tacotron2.safetensors") for project in (killed, whole)]
    assert differences(*voices) == []
    files = {"README.md", "config.json", "tacotron2.safetensors", "samples/sample_1.wav", "samples/sample_2.wav"}
    assert {path.relative_to(killed.voice).as_posix() for path in killed.voice.rglob("*.*")} == files


def check_voice(project: Project, tmp_path: Path) -> None:
    """Check the files of a voice, its card, and that inference and the zip file take it."""
    config = json.loads((project.voice / "config.json").read_text())
    assert config["name"] == "whole" and config["vocoder"] in ("waveglow", "pulse-noise", "griffin-lim")
    card = (project.voice / "README.md").read_text()
    judged = bool(find_spec("moonshine_onnx") and find_spec("jiwer"))
    assert "| clips for training | 5 |" in card and ("WER %" in card) == judged
    assert all(f"- {line}\n" in card for line in config["verdict"]["lines"]) and "on 2 validation lines" in card
    assert f"| {EPOCHS['Tacotron2'] - 1} |" in card  # the last report
    assert len(list((project.voice / "samples").glob("*.wav"))) == 2
    share.main([project.name, "--projects", str(tmp_path)])
    with zipfile.ZipFile(project.root / "whole.zip") as archive:
        assert archive.testzip() is None
        assert ("whole/pitch.safetensors" in archive.namelist()) == bool(find_spec("pyworld"))
        archive.extractall(tmp_path / "unpacked")
    (tmp_path / "phrase.txt").write_text("Good morning.\n")
    words = ["-i", tmp_path / "phrase.txt", "-o", tmp_path / "spoken", "--cpu", "--seed", 1]
    succeed("inference.py", *words, "--voice", tmp_path / "unpacked" / "whole")
    assert (tmp_path / "spoken" / "audio_0.wav").stat().st_size > 44
    first = (project.root / "whole.zip").read_bytes()
    share.main([project.name, "--projects", str(tmp_path)])
    assert (project.root / "whole.zip").read_bytes() == first


def test_a_closed_terminal_and_a_request_during_the_verdict_are_stops(tmp_path: Path) -> None:
    project = make_project(Project(name="closed", projects=tmp_path))
    plan, name = tiny_plan(project, 10**5, report_every=1), "Tacotron2"
    write_plan(project.plan, replace(plan, models={name: plan.models[name]}))
    command = [sys.executable, "-m", "studio.train", project.name, "--projects", tmp_path]
    assert close_terminal(command, project.run(name) / "nvlog.json", '"step": [1, 0]') == 129
    done = epochs_in(project.run(name) / "nvlog.json") + 1
    write_plan(project.plan, replace(plan, models={name: replace(plan.models[name], epochs=done)}))
    process = start(*command)
    assert process.stdout
    lines = list(itertools.takewhile(lambda line: not line.startswith("speaking validation lines"), process.stdout))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "stopped before the verdict: " in out, (lines, out, err)
    assert not (project.voice / "config.json").exists()


def test_a_budget_ends_a_run_after_a_save_and_the_next_command_trains_no_more(project, capfd, monkeypatch) -> None:
    command = train_command(train_argv("WaveGlow", tiny_plan(project, 100_000), project))
    spent = list[float]()
    log = project.run("WaveGlow") / "nvlog.json"

    class Clock:
        """A clock that leaps by 1,000 s once the run trains."""

        sleep = staticmethod(time.sleep)
        monotonic = staticmethod(lambda: time.monotonic() + 1000 * (epochs_in(log) > 0))

    with monkeypatch.context() as patch:
        patch.setattr("studio.train.process.time", Clock)
        assert run_training(command, 1, 900.0, NO_STOP, spent.append) is RunEnding.BUDGET
    out = capfd.readouterr().out
    assert "saved" in out and "DLL " not in out and 1000 <= sum(spent) < 1200
    assert load_checkpoint(project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt")["iteration"] > 0
    count = len(spent)
    assert run_training(command, 1, 0.0, NO_STOP, spent.append) is RunEnding.BUDGET and len(spent) > count
    plan, progress = tiny_plan(project, 100_000, hours=1 / 3600), progress_of(project)
    progress.begin("WaveGlow", digest("WaveGlow", plan, project))
    progress.spend("WaveGlow", 8.0)
    before = log.stat().st_mtime
    steps = sum(data["train_iter_time"] for step, data in read_steps(log) if len(step) == 2)
    assert train_waveglow(project, plan)
    assert progress_of(project).of("WaveGlow").reason == "its time limit of 1 s"
    assert f"8 s in all: {steps:.0f} s of steps, " in capfd.readouterr().out
    assert train_waveglow(project, plan) and log.stat().st_mtime == before
    out = capfd.readouterr().out
    assert "nothing to do, its plan is complete (its time limit of 1 s); to train on, raise `epochs`" in out
    assert f"or run python -m studio.plan --minutes M mine --projects {project.projects}\n" in out


@pytest.mark.usefixtures("in_process")
def test_a_changed_plan_trains_on_and_done_epochs_name_the_ways_to(project: Project, capsys) -> None:
    """It printed a line that nobody saw, and trained nothing; and it named --epochs, a flag of train.py."""
    last = project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt"

    def train_to(epochs: int, **values: object) -> str:
        assert train_waveglow(project, tiny_plan(project, epochs, report_every=1, **values))
        assert load_checkpoint(last)["epoch"] == epochs - 1
        return capsys.readouterr().out

    for epochs, named in ((1, "its one epoch"), (2, "all 2 epochs")):
        out = train_to(epochs, hours=0.5)
        assert f"WaveGlow: trains to epoch {epochs}" in out and f"WaveGlow: trained ({named}); " in out
        assert f"Report of epoch {epochs}: " in out
        progress_of(project).spend("WaveGlow", 1800.0)  # all of it
    state = progress_of(project).of("WaveGlow")
    assert state.seconds == 3602 and state.spent == 1801
    assert "WaveGlow: nothing to train, 2 epochs done; to train on, raise `epochs`, `hours`" in train_to(2, patience=11)
    first, *others = project.training_list.read_text().splitlines(keepends=True)
    project.training_list.write_text("".join([first.replace("|", "|well "), *others]))  # an edited transcript
    assert "WaveGlow: nothing to train" in train_to(2, patience=11)
    train_to(3)
    last.resolve().write_bytes(last.read_bytes()[:5000])  # train.py chooses the one before
    assert "checkpoint_WaveGlow_1.pt: resuming at epoch 2" in train_to(4)


@pytest.mark.usefixtures("in_process")
def test_a_budget_ends_with_an_epoch_and_its_report(project: Project, capsys, monkeypatch) -> None:
    """The voice was the one of an earlier report, since the last epochs had none."""
    monkeypatch.setattr(train, "START", 297.0)  # so that the test ends soon
    assert train_waveglow(project, tiny_plan(project, 100_000, hours=300 / 3600))
    last = load_checkpoint(project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt")
    assert last["epoch_complete"] and max(reports_of(project.run("WaveGlow"))) == last["epoch"]
    assert f"epoch {last['epoch']} is the last" in capsys.readouterr().out
    assert progress_of(project).of("WaveGlow").reason == "its time limit of 5 min"


def test_the_voice_has_the_sharpened_postnet_of_the_best_checkpoint(project: Project, capfd, monkeypatch) -> None:
    plan, name = tiny_plan(project, sharpen_minutes=5.0), "Tacotron2"

    def sharpen(plan: Plan, stop: object = NO_STOP) -> bool:
        return train.sharpen(name, plan, project, stop)

    def has_best_weights(plan: Plan) -> bool:
        write_model(project, name, plan.models[name])
        best = load_checkpoint(best_checkpoint(project, name))["state_dict"]
        voice = load_checkpoint(project.voice / "tacotron2.safetensors")["state_dict"]
        changed = [key for key in best if not torch.equal(best[key], voice[key])]
        assert all(key.startswith("postnet.") for key in changed)
        return not changed

    add_runs(project)
    project.voice.mkdir()

    def three_steps(*arguments: object) -> list[str]:
        command = sharpen_command(*arguments)
        place = command.index("--minutes")
        assert command[place + 1] == str(arguments[-1])
        return [*command[:place], "--steps", "3", *command[place + 2 :]]

    monkeypatch.setattr(train, "sharpen_command", three_steps)
    with monkeypatch.context() as patch:
        patch.setattr(train, "run_training", train_here)
        assert sharpen(plan) and not has_best_weights(plan)
        assert "Tacotron2: sharpens its mels, for 5 min\n" in capfd.readouterr().out
        longer = replace(plan, models={name: replace(plan.models[name], sharpen_minutes=6.0)})
        first, second = (sharpened(project, name, minutes) for minutes in (5.0, 6.0))
        before = first.stat()
        assert sharpen(plan) and first.stat() == before
        assert sharpen(longer) and second.exists() and not first.exists()
    best = best_checkpoint(project, name)
    save_checkpoint(best, load_checkpoint(best) | {"epoch": 9})  # another one
    assert has_best_weights(longer)
    assert not sharpen(longer, SimpleNamespace(is_requested=True)) and second.exists()


def test_a_project_without_its_checkpoints_trains_again(project: Project, flags: list[str], monkeypatch) -> None:
    """Its plan was complete, and no voice could be made of it."""
    plan, progress, found = tiny_plan(project), progress_of(project), list[ModelProgress]()
    for name in plan.models:
        progress.finish(name, digest(name, plan, project), "all 4 epochs")
    monkeypatch.setattr(train, "train_model", lambda name, *words: found.append(words[2].of(name)))
    train.main(flags)
    assert found == [ModelProgress()]
    project.progress.write_text('{"WaveGlow": {"seconds": "long"}}')
    with pytest.raises(DataError, match=r"progress\.json: cannot be read \(.*'long'\); delete it"):
        train.main(flags)


def test_what_would_end_a_training_later_ends_the_command_before_it(project, flags, tmp_path, capfd) -> None:
    """The second model's mistakes came after hours of training of the first."""
    plan = tiny_plan(project)
    for change, words in (
        ({"warm_start": str(tmp_path / "gone.pt")}, r"gone\.pt"),
        ({"options": {"segment_lenght": 1}}, "segment-lenght"),
        ({"options": {"learning_rate": 1}}, r"models\.WaveGlow\.options: learning_rate: studio\.train sets"),
    ):
        changed = plan.models | {"WaveGlow": replace(plan.models["WaveGlow"], **change)}
        write_plan(project.plan, replace(plan, models=changed))
        with pytest.raises((DataError, UsageError, SystemExit)) as caught:
            train.main(flags)
        assert re.search(words, f"{caught.value} {capfd.readouterr().err}")
    write_plan(project.plan, replace(plan, models={"WaveGlow": plan.models["WaveGlow"]}))
    with pytest.raises(DataError, match=r"plan\.json: models: expected Tacotron2, without which no voice speaks"):
        train.main(flags)
    write_plan(project.plan, plan)
    clip = next(project.clips.glob("*.wav"))
    clip.rename(tmp_path / "away.wav")
    with pytest.raises(DataError, match=r"no file clips/"):
        train.main(flags)
    assert not project.run("Tacotron2").exists()
    clip.write_text("no sound")
    with pytest.raises(DataError, match=r"train\.py ended with exit code 1, for the reason above"):
        train.main(flags)
    assert clip.name in capfd.readouterr().err


def test_one_command_at_a_time_works_on_a_project(project: Project, flags: list[str]) -> None:
    """Two trainings would count the same time twice; a preparation would replace the clips of a training."""
    tiny_plan(project)
    project.state.mkdir()
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(project.state / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        message = f"{project.root}: another studio.prepare or studio.train is working on it; wait until it ends"
        for main, more in ((train.main, []), (prepare.main, ["--apply", "--name"])):
            with pytest.raises(DataError, match=message):
                main([*more, *flags])
        holder.stdin.close()
    assert not project.run("Tacotron2").exists()


def test_plan_measures_and_train_py_takes_its_arguments(
    project: Project, flags: list[str], capsys, monkeypatch
) -> None:
    def run_train_py(command: list[str], **_: object) -> SimpleNamespace:
        result = run("train.py", *command[2:])
        return SimpleNamespace(returncode=result.code, stderr=result.err)

    monkeypatch.setattr(commands, "subprocess", SimpleNamespace(run=run_train_py))  # train.py in this process
    for module in (planning, commands):  # nothing of requirements/eval.txt
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    starts = [str(train_tiny_model(name)) for name in MODELS]
    planning.main([*flags, "--from", *starts, "--cpu", "--minutes", "1", "--find-lr"])
    out = capsys.readouterr().out
    assert f"edit it, then run python -m studio.train mine --projects {project.projects}\n" in out
    content = json.loads(project.plan.read_text())
    measured = content["notes"]["machine"]["Tacotron2"]
    assert measured["report_seconds"] > 0 and measured["start_seconds"] > 0
    assert content["models"]["Tacotron2"]["batch_size"] == 5
    for name, settings in content["models"].items():
        tested = json.loads((project.root / "learning_rate" / f"learning_rate_{name}.json").read_text())
        assert settings["learning_rate"] == pytest.approx(tested["suggestion"], rel=0.05)
        assert (project.root / "learning_rate" / f"learning_rate_{name}.png").exists()
    hours = [settings["hours"] for settings in content["models"].values()]
    assert 0 < sum(hours) <= 1 / 60
    assert list(content["models"]) == ["Tacotron2", "WaveGlow"] and "PulseNoise: left out, not installed" in out
    options = [settings["options"] for settings in content["models"].values()]
    assert {values.get("amp", False) for values in options} == {precision.has_fast_half(torch.device("cpu"))}
    assert content["models"]["Tacotron2"]["options"]["p_convolution_dropout"] == 0.1  # the start is a small model
    argv = train_argv("Tacotron2", read_plan(project.plan), project)
    assert "5 clips x 1 process " in run("train.py", *argv, "--dry-run").out


def test_a_measurement_ends_with_its_command() -> None:
    """After SIGTERM it went on alone."""
    code = (
        "from studio.plan import commands as m; m.train_command = lambda argv: ['sleep', '99']; m.run_train([], 1, '')"
    )
    command = start(sys.executable, "-c", code)
    wait_for(command, lambda: bool(children(command.pid)))
    (measurement,) = alive(children(command.pid))
    command.terminate()
    command.communicate()
    measurement.wait(timeout=30)
