"""A dry run's numbers against what a step then takes, and its figures for other programs."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import train
from common.audio.stft import AudioConfig
from common.progress import size
from common.run import memory
from common.run.distributed import Dist
from common.spec import Preview
from common.training.arguments import parse_training_arguments
from common.training.forecast import describe_plan, forecast, longest_batch, time_report
from common.training.loader import Loaders
from common.training.loop import train_step
from common.training.optimization import Pace
from data_functions import get_loaders
from models import REGISTRY
from tests.common.training.points import change, loader, make_state
from tests.recipe import ROOT, flags, fresh_state, succeed

CPU = Dist(0, 0, 1, torch.device("cpu"))


def build_run(model: str, folder: Path, *words: object):
    options, spec = parse_training_arguments([*flags(model, folder, 8), *map(str, words)], REGISTRY, "")
    loaders = get_loaders(spec, options, CPU)
    state = train.make_state(spec, options, CPU, loaders.pace)[0]
    state.loaders = loaders
    return state, loaders.training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words"),
    [("WaveGlow", ["--wn-channels", 64]), ("Tacotron2", ["--postnet-embedding-dim", 256, "--attention-rnn-dim", 128])],
)
def test_the_estimated_peak_is_near_the_one_of_a_step(tmp_path: Path, model: str, words: list[object]) -> None:
    state, loader = build_run(model, tmp_path, "-bs", 6, *words)
    said = "\n".join(describe_plan(state))
    found = re.search(r"estimated peak: ([\d.]+) MB, with 6 such clips", said)
    assert found, said
    weights = memory.state_bytes(state.model).weights
    batch = longest_batch(loader, 6)
    measured = memory.measure_peak(CPU.device, lambda: train_step(state, [batch]))  # Adam's averages are made in it
    assert float(found[1]) * 1e6 == pytest.approx(measured + weights, rel=0.3)


def test_a_peak_has_each_clip_once(monkeypatch) -> None:
    """A step takes 70 bytes, and 30 for a clip."""
    monkeypatch.setattr("common.training.forecast.longest_batch", lambda loader, clips: clips)
    monkeypatch.setattr("common.training.forecast._peak", lambda state, clips: 70 + 30 * clips)
    state = make_state()
    state.loaders = Loaders(loader(4, 2), loader(4, 2, training=False), Pace(2, 2, 2))  # type: ignore[arg-type]
    found = forecast(state, 6)
    assert (found.activations, found.peak - found.always) == (30, 70 + 6 * 30)


def test_the_longest_clips_make_the_batch_and_nothing_is_trained(tmp_path: Path) -> None:
    state, loader = build_run("Tacotron2", tmp_path, "--epochs", 5, "--lr-schedule", "cosine", "-lr", 0.5)
    lengths = sorted(loader.dataset.dataset.lengths)  # type: ignore[attr-defined]
    assert longest_batch(loader, 3).text_lengths.tolist() == lengths[:-4:-1]  # type: ignore[attr-defined]
    change(state, dist=Dist(0, 0, 4, torch.device("cpu")), pace=Pace(2, 8, 4))
    before = {name: value.clone() for name, value in state.model.named_parameters()}
    said = describe_plan(state)
    for name, value in state.model.named_parameters():
        assert torch.equal(value, before[name]) and value.grad is None
    parameters = sum(weight.numel() for weight in state.model.parameters())
    assert said[0].endswith(f"each process sends {size(2 * 3 / 4 * 4 * parameters)} of float32 gradients")
    assert said[2].startswith("learning rate: 0.5 in the first step, 0.0122 in the last")  # 0.5 (1 + cos(0.9 pi)) / 2


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Tacotron2", "PulseNoise"])
def test_ten_steps_a_report_and_the_memory_of_a_clip_are_measured_and_nothing_is_written(
    tmp_path: Path, model: str
) -> None:
    """PulseNoise measures the pitch of its clips in the first epoch, which takes longer than the others."""
    if model == "PulseNoise" and find_spec("pyworld") is None:
        pytest.skip("pyworld, of requirements/eval.txt, is not installed")
    path, began = tmp_path / "figures.json", time.time()
    sentences = ROOT / "filelists" / "sentences_audio_text_train_filelist.txt"  # longer to read than to train
    words = ["--training-files", sentences, "--epochs-per-validation", 1, "--evaluate-every", 1, "--evaluate-lines", 2]
    words += ["--evaluate-without", "asr", "mos", "likeness"]
    succeed("train.py", *flags(model, tmp_path), *words, "--dry-run", "--measure", path)
    figures = json.loads(path.read_text())
    passed = time.time() - figures["began"]
    assert 0 < figures["validation_seconds"] < figures["report_seconds"] < passed < time.time() - began
    assert (figures["first_seconds"] > 0) == (model == "PulseNoise")
    assert figures["report_seconds"] + sum(figures["step_seconds"]) < passed
    weights = sum(weight.numel() for weight in fresh_state(model, tmp_path).model.parameters())
    clips = len(sentences.read_text().splitlines())
    assert (figures["model"], figures["parameters"], figures["clips"]) == (model, weights, clips)
    assert (figures["clips_per_step"], figures["steps_per_epoch"]) == (2, clips // 2)
    assert len(figures["step_seconds"]) == 10 and min(figures["step_seconds"]) > 0
    # weights and both averages of Adam are float32
    assert figures["always"] >= 3 * 4 * weights and figures["clip"] > 0
    assert figures["available"] > figures["always"] + 2 * figures["clip"]
    assert {file.suffix for file in tmp_path.iterdir()} == {".txt", ".json"}  # the lists of the test, and the figures


def test_a_validation_is_timed_apart_from_its_checkup() -> None:
    class Checkup:
        audio = AudioConfig()

        def __call__(self, *_: object) -> None:
            time.sleep(0.3)

    state = make_state()
    state.loaders = Loaders(loader(4, 2), loader(4, 2, training=False), Pace(2, 2, 2))  # type: ignore[arg-type]
    change(state, spec=dataclasses.replace(state.setup.spec, preview=lambda *_: Preview({}, {}, {})))
    validating, checking = time_report(state, Checkup())  # type: ignore[arg-type]
    assert 0 < validating < 0.3 <= checking


@pytest.mark.slow
def test_a_batch_that_cannot_fit_is_not_tried(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    succeed("train.py", *flags("Tacotron2", tmp_path), "-bs", 10**9, "--dry-run", "--measure", path)
    figures = json.loads(path.read_text())
    assert (figures["step_seconds"], figures["report_seconds"], figures["clips_per_step"]) == ([], 0, 5)
