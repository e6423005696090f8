"""evaluate.py and train.py --evaluate-every on tiny models: measures, their files, and refusals."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluate
from common.audio.stft import AudioConfig
from common.checkpoint.files import load_checkpoint
from common.errors import UsageError
from common.inference.vocoders import LoadedModel
from common.training.checkup import Checkup
from common.training.options import DataConfig, EvaluationConfig
from models import REGISTRY
from synthesizer import Synthesizer
from tests.recipe import ROOT, clips, flags, read_steps, run, skip_without_evaluators, succeed, train_tiny_model

ALL = ["--without", "asr", "mos", "likeness"]


def words(folder: Path, *more: object) -> list[object]:
    clips(folder)
    models = ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    return ["-i", folder / "validation.txt", "--dataset-path", ROOT, "-o", folder / "report", "--cpu", *models, *more]


def systems_of(folder: Path) -> dict[str, dict]:
    return {system["name"]: system for system in json.loads((folder / "report/report.json").read_text())["systems"]}


@pytest.mark.slow
def test_the_report_has_all_systems_and_their_anchors(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pt"
    shutil.copy(train_tiny_model("Tacotron2"), copy)
    others = ["--other-tacotron2", copy]
    out = succeed("evaluate.py", *words(tmp_path, *ALL, *others, "--precompute"))
    assert "note: --precompute has no effect here" in out
    voices = list(json.loads((tmp_path / "report/report.json").read_text())["settings"])
    assert [(name.split(": ")[0], "copy.pt" in name) for name in voices] == [("voice", False), ("other voice", True)]
    systems = systems_of(tmp_path)
    sources = ("true mels", "Tacotron2", "other Tacotron2")
    assert list(systems) == ["recordings", *(f"{name}, {of}" for name in sources for of in ("griffin-lim", "WaveGlow"))]
    assert all(name in out for name in systems)
    ours, theirs = systems["Tacotron2, WaveGlow"], systems["other Tacotron2, WaveGlow"]
    assert ours["summary"] == theirs["summary"]  # the same weights and seed
    assert len(ours["lines"]) == 2 and {"focus", "coverage", "ran_to_limit", "duration_ratio"} <= set(ours["summary"])
    recorded = systems["recordings"]
    assert recorded["summary"]["duration_ratio"][0] == 1 and "focus" not in recorded["summary"]
    assert ours["real_time_factor"] > 0 and recorded["real_time_factor"] is None
    page = (tmp_path / "report/report.html").read_text()
    assert page.count("<audio") == 2 * len(systems) and page.count("<section>") == 2


@pytest.mark.slow
def test_phrases_without_recordings_have_no_anchors_and_the_other_voice_its_own_vocoder(tmp_path: Path) -> None:
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("One.\nTwo three.\nFour.\n")
    through = ["--vocoder", "griffin-lim", "--other-waveglow", train_tiny_model("WaveGlow"), "--lines", 2]
    succeed("evaluate.py", *words(tmp_path, *ALL, *through)[2:], "-i", phrases)
    systems = systems_of(tmp_path)
    assert list(systems) == ["Tacotron2, griffin-lim", "other Tacotron2, griffin-lim", "other Tacotron2, WaveGlow"]
    assert [line["text"] for line in systems["Tacotron2, griffin-lim"]["lines"]] == ["One.", "Two three."]
    seeded = ["--other-vocoder", "griffin-lim", "--lines", 1, "--seed", 6]
    succeed("evaluate.py", *words(tmp_path, *ALL, *seeded)[2:], "-i", phrases)
    others = systems_of(tmp_path)
    assert list(others) == ["Tacotron2, griffin-lim", "Tacotron2, WaveGlow", "other Tacotron2, griffin-lim"]
    of_one = [found["Tacotron2, griffin-lim"]["lines"][0]["values"]["focus"] for found in (systems, others)]
    assert of_one[0] != of_one[1]  # the prenet's dropout has another seed
    both = ["--other-vocoder", "griffin-lim", "--other-waveglow", train_tiny_model("WaveGlow")]
    assert "needs no --other-waveglow" in run("evaluate.py", *words(tmp_path, *ALL, *both)).err
    assert run("evaluate.py", *words(tmp_path, *ALL, "--other-tacotron2", tmp_path / "none.pt")).code == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("One.\n" * 10 + "{AH9}\n" + "One.\n" * 10 + "{HH AA9}\n", r"list\.txt:11: [^\n]*\n.*list\.txt:22: "),
        ("nothing.wav|One.\n", "no file nothing.wav"),
        ("nothing.wav|One.|Two.\n", r"2 '\|' in the line"),
        ("a.pt|One.\n", "names cached mels, such as a.pt, expected audio"),
    ],
)
def test_lists_that_cannot_be_evaluated_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "list.txt").write_text(content)
    (tmp_path / "a.pt").touch()
    lists = ["-i", tmp_path / "list.txt", "--dataset-path", tmp_path, "--lines", 2]
    result = run("evaluate.py", *words(tmp_path, *ALL, *lists))
    assert result.code == 1 and re.search(message, result.err)


def test_recordings_are_needed_for_what_compares_with_them(tmp_path: Path) -> None:
    (tmp_path / "mels.txt").write_text("a.pt|One.\n")
    config = EvaluationConfig(evaluate_every=1, evaluate_lines=1, best_by="mcd")
    message = r"--best-by mcd: compares with recordings, .* names cached mels, such as a\.pt"
    with pytest.raises(UsageError, match=message):
        Checkup(config, DataConfig(validation_files=tmp_path / "mels.txt"), AudioConfig(), is_main=True)


def test_lines_know_how_they_are_read_aloud(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("Room 7.\n5 + 7 = 12\n")
    acoustic = LoadedModel(REGISTRY["Tacotron2"], None, {"text_cleaners": ["english_cleaners"]})
    ours = Synthesizer(acoustic, None, device=torch.device("cpu"))
    items = evaluate.read_items(evaluate.EvaluationOptions(input=tmp_path / "phrases.txt"), ours)
    assert [item.spoken_form for item in items] == ["room seven.", "five plus seven equals twelve"]
    assert [item.text for item in items] == ["Room 7.", "5 + 7 = 12"]


@pytest.mark.slow
def test_evaluators_score_every_system(tmp_path: Path) -> None:
    skip_without_evaluators()
    out = succeed("evaluate.py", *words(tmp_path, "--vocoder", "griffin-lim", "--lines", 1))
    systems = systems_of(tmp_path)
    assert list(systems) == ["recordings", "true mels, griffin-lim", "Tacotron2, griffin-lim"]
    recorded, copied, synthesised = (system["summary"] for system in systems.values())
    assert recorded["wer"][0] < 0.3 < synthesised["wer"][0]  # a model that trained for a few steps says nothing
    assert recorded["mos"][0] > copied["mos"][0]
    assert "mcd" not in recorded and 0 < copied["mcd"][0] < synthesised["mcd"][0]
    assert re.search(r"WER %.*CER %.*MOS.*MCD dB.*voicing %", out, re.S)


class LoudnessScore:
    """Stands in for the predictor of opinion scores; test_evaluators_score_every_system has the real one."""

    def __call__(self, audio: np.ndarray, rate: int) -> float:
        return 1.0 + float(np.abs(audio).mean())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
def test_training_lets_the_model_speak_and_chooses_the_best_by_it(tmp_path: Path, model: str, monkeypatch) -> None:
    pytest.importorskip("speechmos", reason="of requirements/eval.txt")
    monkeypatch.setattr("common.inference.evaluation.OpinionScore", LoudnessScore)
    evaluating = ["--evaluate-every", 2, "--evaluate-lines", 1, "--best-by", "mos", "--epochs-per-validation", 1]
    evaluating += ["--evaluate-without", "asr", "likeness"]
    succeed("train.py", *flags(model, tmp_path), *evaluating, "--epochs", 4)
    found = {step: data for step, data in read_steps(tmp_path / "nvlog.json") if "evaluation_mos" in data}
    assert list(found) == [(0,), (2,), (3,)]  # every second epoch, and the last
    best = max(found, key=lambda step: found[step]["evaluation_mos"])
    assert load_checkpoint(tmp_path / f"checkpoint_{model}_best.pt")["epoch"] == best[0]
    if model == "Tacotron2":
        return  # the rest is the same for every model, and WaveGlow trains faster
    more = ["--epochs", 5, "--epochs-per-validation", 1, "--resume-from-last"]
    assert "resuming at epoch 4" in succeed("train.py", *flags(model, tmp_path), *more)
    chosen = load_checkpoint(tmp_path / f"checkpoint_{model}_best.pt")  # scores and losses are not compared
    assert chosen["epoch"] == 4 and chosen["best"]["by"] == "loss" and chosen["val_loss"] == chosen["best"]["loss"]
    train_losses = [
        [data["train_loss"] for step, data in read_steps(folder / "nvlog.json") if len(step) == 2]
        for folder in (tmp_path, train_tiny_model(model).parent)
    ]
    assert train_losses[0][:4] == train_losses[1]  # training does not depend on it
