"""The .safetensors file beside the last checkpoint of a run: its weights, its readers, and its removal with the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy.io import wavfile

from common.checkpoint import files as checkpoint
from common.checkpoint.files import load_checkpoint, prune
from tests.recipe import flags, succeed, train_tiny_model

pytestmark = pytest.mark.slow
safetensors = pytest.importorskip("safetensors.torch")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


@pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
def test_the_end_of_a_run_writes_the_weights_that_inference_uses(tmp_path: Path, model: str) -> None:
    words = [*flags(model, tmp_path), "--ema-decay", 0.5]
    succeed("train.py", *words, "--epochs", 2)
    assert files(tmp_path) == [f"checkpoint_{model}_1.safetensors"]
    path = tmp_path / f"checkpoint_{model}_1.safetensors"
    whole = load_checkpoint(path.with_suffix(".pt"))
    weights = safetensors.load_file(path)  # the format's own reader
    assert list(weights) and weights.keys() == whole["ema_state_dict"].keys()
    assert all(torch.equal(value, whole["ema_state_dict"][name]) for name, value in weights.items())
    entries = load_checkpoint(path)
    assert all(entries[key] == whole[key] for key in ("epoch", "iteration", "seed", "config", "data"))


def test_inference_reads_it_as_it_reads_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "phrases.txt").write_text("Two.\n")
    sounds = []
    for suffix in (".pt", ".safetensors"):
        words: list[object] = ["-i", tmp_path / "phrases.txt", "-o", tmp_path / suffix, "--cpu", "--seed", 1]
        for model in ("Tacotron2", "WaveGlow"):
            path = train_tiny_model(model).resolve().with_suffix(suffix)
            words += [f"--{model.lower()}", path]
        succeed("inference.py", *words)
        sounds.append(wavfile.read(tmp_path / suffix / "audio_0.wav")[1].tolist())
    assert len(sounds[0]) > 1000 and sounds[0] == sounds[1]


def test_runs_that_are_not_at_their_end_or_measure_speed_write_none(tmp_path: Path, monkeypatch) -> None:
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1, "--bench-class", "perf-train")
    assert files(tmp_path) == []
    monkeypatch.setattr(checkpoint.importlib.util, "find_spec", lambda name: None)  # as without the package
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1)
    assert files(tmp_path) == [] and (tmp_path / "checkpoint_WaveGlow_0.pt").exists()


def test_it_goes_with_its_checkpoint(tmp_path: Path) -> None:
    words = [*flags("WaveGlow", tmp_path), "--keep-checkpoints", 1, "--epochs-per-checkpoint", 1]
    succeed("train.py", *words, "--epochs", 1)
    succeed("train.py", *words, "--epochs", 2, "--resume-from-last")
    assert files(tmp_path) == ["checkpoint_WaveGlow_1.safetensors"]
    assert prune(tmp_path, "WaveGlow", [1, 2], 1) == [2] and files(tmp_path) == []
