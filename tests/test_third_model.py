"""Models of other kinds, as somebody would write them: each is one entry in the registry."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import librosa
import numpy as np
import pytest
import torch
from scipy.io import wavfile
from torch import Tensor, nn

import models
from common.audio.audio_processing import load_audio
from common.checkpoint.files import load_checkpoint
from common.data.mels import ClipDataset
from common.spec import AcousticInference, Key, ModelSpec, Preview, TrainingDefaults, VocoderInference
from tests.recipe import flags, read_steps, succeed, train_tiny_model

pytestmark = pytest.mark.slow

# A vocoder, one linear layer from a mel frame to its samples.


@dataclass(frozen=True)
class HummerConfig:
    n_mel_channels: int = 80
    hop_length: int = 256


class Hummer(nn.Module):
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = HummerConfig(**config)
        self.samples = nn.Linear(self.config.n_mel_channels, self.config.hop_length)

    def forward(self, mels: Tensor) -> Tensor:
        return torch.tanh(self.samples(mels.transpose(1, 2))).flatten(1)

    def infer(self, mels: Tensor, sigma: float) -> Tensor:
        return self(mels)


class HummerBatch(NamedTuple):
    mels: Tensor
    audio: Tensor
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.mels,)

    @property
    def targets(self) -> Tensor:
        return self.audio

    @property
    def num_items(self) -> Tensor:
        return torch.tensor(self.audio.numel())


class HummerDataset(ClipDataset):
    def __init__(self, options: Any, utterances: list) -> None:
        super().__init__(options, utterances)
        self.lengths = [1] * len(utterances)

    def __getitem__(self, key: Key) -> tuple[Tensor, Tensor, str]:
        path = self.path(key.item)
        audio = load_audio(path, 22050)[: 16 * 256]
        return self.stft.mel_spectrogram(audio[None])[0, :, :16], audio, str(path)

    def collate(self, items: list) -> HummerBatch:
        mels, audio, names = zip(*items, strict=True)
        return HummerBatch(torch.stack(mels), torch.stack(audio), names)


class HummerLoss(nn.Module):
    def __init__(self, power: float) -> None:
        super().__init__()
        self.power = power

    def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
        return {"error": (outputs - targets).abs().pow(self.power).mean()}

    def forward(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> Tensor:
        return self.terms(outputs, targets)["error"]


TRAINING = TrainingDefaults(
    epochs=5, learning_rate=1e-2, batch_size=2, batch_size_amp=2, weight_decay=0.0, grad_clip_thresh=1.0
)
HUMMER = ModelSpec(
    name="Hummer",
    build=Hummer,
    add_arguments=lambda parser: None,
    add_training_arguments=lambda parser: parser.add_argument("--power", type=float, default=2.0, help="of the error"),
    config_from_options=lambda options: {
        key: options[key] for key in ("n_mel_channels", "hop_length") if key in options
    },
    training=TRAINING,
    make_dataset=HummerDataset,
    make_loss=lambda options: HummerLoss(options["power"]),
    preview=lambda model, batch, outputs, stft: Preview({}, {"hummed": outputs[0]}, {}),
    inference=VocoderInference(denoiser=lambda model, audio: lambda sound, strength: sound),
)


def test_a_third_model_is_one_entry_in_the_registry(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(models.REGISTRY, "Hummer", HUMMER)
    words = [*flags("Hummer", tmp_path), "--power", 1.5]
    succeed("train.py", *words, "--epochs", 1)
    out = succeed("train.py", *words, "--epochs", 2, "--resume-from-last")
    assert "Hummer: 2,816 parameters" in out  # 10 x 256 weights and 256 biases
    assert "resuming at epoch 1" in out
    checkpoint = load_checkpoint(tmp_path / "checkpoint_Hummer_last.pt")
    assert (checkpoint["epoch"], checkpoint["config"]) == (1, {"n_mel_channels": 10, "hop_length": 256})
    steps = [data for step, data in read_steps(tmp_path / "nvlog.json") if len(step) == 1 and "train_loss" in data]
    assert steps[1]["train_loss"] < steps[0]["train_loss"]
    (tmp_path / "phrases.txt").write_text("Two.\n")
    words = ["-i", tmp_path / "phrases.txt", "-o", tmp_path, "--tacotron2", train_tiny_model("Tacotron2")]
    words += ["--hummer", tmp_path / "checkpoint_Hummer_last.pt"]
    others = ["--waveglow", train_tiny_model("WaveGlow"), "--vocoder", "hummer"]  # where several have a checkpoint
    for more in ([], others):
        succeed("inference.py", *words, *more)
        numbers = read_steps(tmp_path / "nvlog.json")[-1][1]
        assert {"hummer_latency", "hummer_items_per_sec", "tacotron2_latency"} <= set(numbers)
        rate, samples = wavfile.read(tmp_path / "audio_0.wav")
        assert (rate, len(samples)) == (22050, 100 * 256)
        # the same linear layer hums: samples repeat with the frames' rhythm, one hop after the other
        assert np.abs(samples).max() > 100


# An acoustic model: letter after letter, a tone of three frames on the letter's mel channel.

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
