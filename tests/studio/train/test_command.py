"""A project of tiny models from plan to voice: SIGKILL and a resume change no bit, and the voice speaks."""

import itertools
import json
import re
import signal
import subprocess
import sys
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
from common.quality import recogniser
from common.run.interrupt import StopRequest
from studio import share
from studio.plan import __main__ as planning
from studio.plan import commands
from studio.plan.__main__ import minutes_before
from studio.plan.commands import sharpen_command, train_command
from studio.plan.file import Group, Plan, read_plan, write_plan
from studio.prepare import __main__ as prepare
from studio.project import Project
from studio.train import __main__ as train
from studio.train.progress import LOG, RunLog
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
from tests.studio.projects import EVERY, FLAGS, add_runs, make_project, plan_groups, store_plan
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


def tiny_flags(epochs: int = 4, **values: object) -> dict[str, Group]:
    best_by = {"Tacotron2": "coverage", "WaveGlow": "mel_distance"}
    own = {"Tacotron2": {}, "WaveGlow": {"segment_length": 4096}}
    models = {}
    for name in MODELS:
        start = {"warm_start": str(train_tiny_model(name)), "best_by": best_by[name], "epochs": epochs}
        models[name] = FLAGS | start | own[name] | values
    if find_spec("pyworld"):  # of requirements/eval.txt
        others = {"warm_start": None, "best_by": "loss", "epochs": 2, "n_mel_channels": 10}
        models["PulseNoise"] = {name: value for name, value in models["WaveGlow"].items() if name != "segment_length"}
        models["PulseNoise"] |= others
    return models


def train_here(command: list[str], threads: int, stop: object, watch: Callable[[], None]) -> bool:
    """Run train.py, or the script that sharpens mels, in this process, which spares its start."""
    print(succeed("scripts/sharpen_mels.py", *command[3:]) if command[1] == "-m" else succeed("train.py", *command[2:]))
    watch()
    return True


@pytest.fixture
def in_process(monkeypatch) -> None:
    monkeypatch.setattr(train, "run_training", train_here)


def epochs_in(log: Path) -> int:
    return max((step[0] for step, _ in read_steps(log) if len(step) == 2), default=-1) if log.exists() else -1


def reports_of(folder: Path) -> dict[int, dict[str, float]]:
    return RunLog.read(folder / LOG).reports


def train_waveglow(project: Project, every: int = 1, **flags: object) -> bool:
    plan = store_plan(project, {"WaveGlow": tiny_flags()["WaveGlow"] | flags}, every=every)
    return train.train_model("WaveGlow", plan, project, NO_STOP)


def test_kill_and_resume_give_the_bits_of_an_uninterrupted_run_and_a_voice(tmp_path: Path, monkeypatch, capsys) -> None:
    whole, killed = (make_project(Project(name=name, projects=tmp_path)) for name in ("whole", "killed"))
    flags = tiny_flags(EPOCHS["Tacotron2"])
    short = flags["WaveGlow"] | {"epochs": EPOCHS["WaveGlow"]} | dict.fromkeys(EVERY, 2)
    store_plan(whole, flags | {"WaveGlow": short}, every=20)
    store_plan(killed, {"Tacotron2": flags["Tacotron2"]}, every=20)
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
        for module in (recogniser, voice):  # nothing of requirements/eval.txt
            patch.setattr(module, "find_spec", lambda name: None)
        assert train.main(argv) == 0
    assert "Not measured: words, because no recogniser of English (en) is installed" in capsys.readouterr().out

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
    files |= {"samples/phrases.txt"}
    assert {path.relative_to(killed.voice).as_posix() for path in killed.voice.rglob("*.*")} == files


def check_voice(project: Project, tmp_path: Path) -> None:
    """Check the files of a voice, its card, and that inference and the zip file take it."""
    config = json.loads((project.voice / "config.json").read_text())
    assert config["name"] == "whole" and config["vocoder"] in ("waveglow", "pulse-noise", "griffin-lim")
    card = (project.voice / "README.md").read_text()
    judged = bool(find_spec("moonshine_onnx") and find_spec("jiwer"))
    assert "| clips for training | 5 |" in card and ("WER %" in card) == judged
    assert all(f"- {line}\n" in card for line in config["verdict"]["lines"]) and "2 validation lines" in card
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
    name, flags = "Tacotron2", tiny_flags(10**5)["Tacotron2"]
    store_plan(project, {name: flags}, every=1)
    command = [sys.executable, "-m", "studio.train", project.name, "--projects", tmp_path]
    assert close_terminal(command, project.run(name) / "nvlog.json", '"step": [1, 0]') == 129
    done = epochs_in(project.run(name) / "nvlog.json") + 1
    store_plan(project, {name: flags | {"epochs": done}}, every=1)
    process = start(*command)
    assert process.stdout
    lines = list(itertools.takewhile(lambda line: not line.startswith("speaking validation lines"), process.stdout))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and "stopped before the verdict: " in out, (lines, out, err)
    assert not (project.voice / "config.json").exists()


@pytest.mark.usefixtures("in_process")
def test_a_changed_plan_trains_on_and_done_epochs_name_the_ways_to(project: Project, capsys) -> None:
    """It printed a line that nobody saw, and trained nothing."""
    last = project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt"

    def train_to(epochs: int, **flags: object) -> str:
        assert train_waveglow(project, epochs=epochs, **flags)
        assert load_checkpoint(last)["epoch"] == epochs - 1
        return capsys.readouterr().out

    for epochs, named in ((1, "its one epoch"), (2, "all 2 epochs")):
        out = train_to(epochs)
        assert f"WaveGlow: trains to epoch {epochs}" in out and f"WaveGlow: trained ({named}); " in out
        assert f"Report of epoch {epochs}: " in out and "to train on" not in out
    out = train_to(2, early_stop_patience=11)
    assert "nothing left to train: epochs done: 2; raise --epochs" in out
    assert "to train on, raise `epochs`, `max_minutes` or `early_stop_patience` in " in out
    assert f"or run python -m studio.plan --minutes M mine --projects {project.projects}\n" in out
    first, *others = project.training_list.read_text().splitlines(keepends=True)
    project.training_list.write_text("".join([first.replace("|", "|well "), *others]))  # an edited transcript
    assert "nothing left to train" in train_to(2)
    train_to(3)
    last.resolve().write_bytes(last.read_bytes()[:5000])  # train.py chooses the one before
    assert "checkpoint_WaveGlow_1.pt: resuming at epoch 2" in train_to(4)


@pytest.mark.usefixtures("in_process")
def test_a_time_limit_ends_with_an_epoch_and_its_report(project: Project, capsys) -> None:
    """The voice was the one of an earlier report, since the last epochs had none."""
    assert train_waveglow(project, epochs=100_000, max_minutes=0.05)
    last = load_checkpoint(project.run("WaveGlow") / "checkpoint_WaveGlow_last.pt")
    assert last["epoch_complete"] and max(reports_of(project.run("WaveGlow"))) == last["epoch"]
    out = capsys.readouterr().out
    assert f"epoch {last['epoch']} is the last" in out and "WaveGlow: trained (its time limit of 3 s); " in out
    assert minutes_before(project.run("WaveGlow"), "WaveGlow") == last["time_plan"]["spent"] / 60 > 0
    assert train_waveglow(project, epochs=100_000, max_minutes=0.05)
    assert "nothing left to train" in capsys.readouterr().out


def test_the_voice_has_the_sharpened_postnet_of_the_best_checkpoint(project: Project, capfd, monkeypatch) -> None:
    plan, name = store_plan(project, tiny_flags(), sharpen_minutes=5.0), "Tacotron2"

    def sharpen(plan: Plan, stop: object = NO_STOP) -> bool:
        assert train.sharpen("WaveGlow", plan, project, stop)  # which has no mels to sharpen
        return train.sharpen(name, plan, project, stop)

    def has_best_weights(plan: Plan) -> bool:
        write_model(project, name, plan)
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
        assert command[place + 1] in ("5.0", "6.0")
        return [*command[:place], "--steps", "3", *command[place + 2 :]]

    monkeypatch.setattr(train, "sharpen_command", three_steps)
    with monkeypatch.context() as patch:
        patch.setattr(train, "run_training", train_here)
        assert sharpen(plan) and not has_best_weights(plan)
        assert "Tacotron2: sharpens its mels, for 5 min\n" in capfd.readouterr().out
        longer = replace(plan, studio=replace(plan.studio, sharpen_minutes=6.0))
        first, second = (sharpened(project, name, minutes) for minutes in (5.0, 6.0))
        before = first.stat()
        assert sharpen(plan) and first.stat() == before
        assert sharpen(longer) and second.exists() and not first.exists()
    best = best_checkpoint(project, name)
    save_checkpoint(best, load_checkpoint(best) | {"epoch": 9})  # another one
    assert has_best_weights(longer)
    assert not sharpen(longer, SimpleNamespace(is_requested=True)) and second.exists()


def test_what_would_end_a_training_later_ends_the_command_before_it(project, flags, tmp_path, capfd) -> None:
    """The second model's mistakes came after hours of training of the first."""
    models = tiny_flags()
    for change, words in (
        ({"warm_start": str(tmp_path / "gone.pt")}, r"gone\.pt"),
        ({"segment_lenght": 1}, "segment-lenght"),
        ({"output": str(tmp_path)}, r"plan\.json: WaveGlow\.output: .* again if the project has moved"),
        (
            {"training_files": str(project.validation_list)},
            r"WaveGlow\.training_files: .*val\.txt, expected .*train\.txt",
        ),
        (
            {"validation_files": str(project.training_list)},
            r"WaveGlow\.validation_files: .*train\.txt, expected .*val\.txt",
        ),
        (
            {"best_by": "wer", "evaluate_without": ["mos"]},
            "WaveGlow.best_by: wer counts words, and no recogniser of English",
        ),
    ):
        write_plan(project.plan, plan_groups(project, models | {"WaveGlow": models["WaveGlow"] | change}))
        with pytest.MonkeyPatch.context() as patch, pytest.raises((DataError, UsageError)) as caught:
            patch.setattr(recogniser, "find_spec", lambda name: None)  # nothing of requirements/eval.txt
            train.main(flags)
        assert re.search(words, str(caught.value))
    store_plan(project, {"WaveGlow": models["WaveGlow"]})
    with pytest.raises(DataError, match=r"plan\.json: expected Tacotron2, without which no voice speaks"):
        train.main(flags)
    store_plan(project, models)
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
    """Two trainings would write the same files; a preparation would replace the clips of a training."""
    store_plan(project, tiny_flags())
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
    for module in (planning, recogniser):  # nothing of requirements/eval.txt
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    starts = [str(train_tiny_model(name)) for name in MODELS]
    planning.main([*flags, "--from", *starts, "--cpu", "--minutes", "1", "--find-lr"])
    out = capsys.readouterr().out
    assert f"edit it, then run python -m studio.train mine --projects {project.projects}\n" in out
    content = json.loads(project.plan.read_text())
    measured = content["notes"]["machine"]["Tacotron2"]
    assert measured["report_seconds"] > 0 and measured["start_seconds"] > 0
    plan, models = read_plan(project.plan), [name for name in content if name in MODELS]
    assert models == ["Tacotron2", "WaveGlow"] and "PulseNoise: left out, not installed" in out
    assert content["Tacotron2"]["batch_size"] == 5
    for name in models:
        tested = json.loads((project.root / "learning_rate" / f"learning_rate_{name}.json").read_text())
        assert content[name]["learning_rate"] == pytest.approx(tested["suggestion"], rel=0.05)
        assert (project.root / "learning_rate" / f"learning_rate_{name}.png").exists()
        assert content[name]["warm_start"] in out and content["notes"]["reasons"][name]["warm_start"]
    assert 0 < sum(content[name]["max_minutes"] for name in models) <= 1
    halves = {options.precision.amp for options in plan.models.values()}
    assert halves == {precision.has_fast_half(torch.device("cpu"))}
    assert content["Tacotron2"]["p_convolution_dropout"] == 0.1  # the start is a small model
    command = train_command("Tacotron2", project.plan, "--dry-run")
    assert "5 clips x 1 process " in run("train.py", *command[2:]).out
    assert f"-m Tacotron2 --config-file {project.plan}\n" in out


def test_a_measurement_ends_with_its_command() -> None:
    """After SIGTERM it went on alone."""
    code = "from studio.plan import commands as m; m.train_command = lambda *_: ['sleep', '99']; m.run_train('', {}, 1, '')"
    command = start(sys.executable, "-c", code)
    wait_for(command, lambda: bool(children(command.pid)))
    (measurement,) = alive(children(command.pid))
    command.terminate()
    command.communicate()
    measurement.wait(timeout=30)
