"""Other models than the two: pulse-noise from end to end, and an acoustic model that is one entry in the registry."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import pytest
import torch
from scipy.io import wavfile
from torch import Tensor, nn

import models
from common.checkpoint.files import load_checkpoint
from common.spec import AcousticInference, ModelSpec, TrainingDefaults
from tests.recipe import flags, read_steps, speech_flags, succeed


@pytest.mark.skipif(find_spec("pyworld") is None, reason="pyworld, of requirements/eval.txt, is not installed")
def test_a_third_model_trains_resumes_and_speaks(tmp_path: Path) -> None:
    words = flags("PulseNoise", tmp_path)
    succeed("train.py", *words, "--epochs", 1)
    assert "resuming at epoch 1" in succeed("train.py", *words, "--epochs", 3, "--resume-from-last")
    checkpoint = load_checkpoint(tmp_path / "checkpoint_PulseNoise_last.pt")
    assert (checkpoint["epoch"], checkpoint["config"]["n_mel_channels"]) == (2, 10)
    steps = [data for step, data in read_steps(tmp_path / "nvlog.json") if len(step) == 1 and "train_loss" in data]
    assert steps[2]["train_loss"] < steps[0]["train_loss"]
    others = ["--pulse-noise", tmp_path / "checkpoint_PulseNoise_last.pt", "--vocoder", "pulse-noise"]
    succeed("inference.py", *speech_flags(tmp_path), *others)  # beside the checkpoint of another vocoder
    assert {"pulse_noise_latency", "tacotron2_latency"} <= set(read_steps(tmp_path / "nvlog.json")[-1][1])
    rate, samples = wavfile.read(tmp_path / "audio_0.wav")
    assert rate == 22050 and 99 * 256 <= len(samples) <= 100 * 256 and np.abs(samples).max() > 100


TRAINING = TrainingDefaults(
    epochs=5, learning_rate=1e-2, batch_size=2, batch_size_amp=2, weight_decay=0.0, grad_clip_thresh=1.0
)


LETTERS = {"a": 20, "b": 40, "c": 60}
QUIET = float(np.log(1e-5))


@dataclass(frozen=True)
class BeeperConfig:
    n_mel_channels: int = 80


class Beeper(nn.Module):
    """Says ids as tones; stops one step after the longest text."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = BeeperConfig(**config)
        self.loudness = nn.Parameter(torch.tensor(0.0))

    def infer(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps = ids.shape[1] + 1
        mels = torch.full((len(ids), steps, self.config.n_mel_channels), QUIET)
        mels[:, :-1].scatter_(2, ids[:, :, None], self.loudness.item())
        alignments = torch.eye(steps)[:, :-1].expand(len(ids), -1, -1)
        return mels.repeat_interleave(3, dim=1).transpose(1, 2), 3 * lengths, alignments


def letters(texts: list[str], options: Any) -> tuple[Tensor, Tensor]:
    ids = [torch.tensor([LETTERS[letter] for letter in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor([len(text) for text in texts])


def refuse(*_: Any) -> Any:
    raise AssertionError("inference trains nothing")


BEEPER = ModelSpec(
    name="Beeper",
    build=Beeper,
    add_arguments=lambda parser: None,
    add_training_arguments=lambda parser: None,
    config_from_options=lambda options: {key: options[key] for key in ("n_mel_channels",) if key in options},
    training=TRAINING,
    make_dataset=refuse,
    make_loss=refuse,
    preview=refuse,
    inference=AcousticInference(encode=letters, spell=lambda text, options: list(text)),
)


def test_line_i_of_the_input_is_audio_i_whatever_the_lengths(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(models.REGISTRY, "Beeper", BEEPER)
    checkpoint = tmp_path / "beeper.pt"
    torch.save({"config": {"n_mel_channels": 80}, "state_dict": Beeper().state_dict()}, checkpoint)
    lines = ["b" * 5, "a" * 20, "c" * 9, "b" * 14, "a" * 7]
    (tmp_path / "phrases.txt").write_text("".join(f"{line}\n" for line in lines))
    words = ["-i", tmp_path / "phrases.txt", "-o", tmp_path, "--beeper", checkpoint, "--vocoder", "griffin-lim"]
    printed = succeed("inference.py", *words)
    assert "never stopped" not in printed
    centres = librosa.mel_frequencies(n_mels=82, fmin=0, fmax=8000)[1:-1]
    for i, line in enumerate(lines):
        rate, samples = wavfile.read(tmp_path / f"audio_{i}.wav")
        assert (rate, len(samples)) == (22050, 3 * len(line) * 256)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        loudest = spectrum.argmax() * 22050 / len(samples)
        assert abs(centres - loudest).argmin() == LETTERS[line[0]]
    assert set(read_steps(tmp_path / "nvlog.json")[-1][1]) >= {"beeper_items_per_sec", "beeper_latency"}
