"""Pulse-noise's entry in the registry. The model is imported only where it is used: most runs use another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from common.audio.stft import AudioConfig, TacotronSTFT
from common.draws import Draws
from common.options import given_fields
from common.spec import Advice, ModelSpec, Options, Preview, TrainingDefaults, VocoderInference

if TYPE_CHECKING:
    from common.data.filelist import Utterance
    from pulse_noise.data_function import PitchDataset, PulseNoiseBatch
    from pulse_noise.loss_function import PitchLoss
    from pulse_noise.model import PulseNoise

STEPS, CLIPS_A_MINUTE = 1500, 12  # steps that suffice for one speaker; clips of five seconds
BATCH_SIZE = 16


def build(**config: Any) -> PulseNoise:
    """Build the model."""
    from pulse_noise.model import PulseNoise

    return PulseNoise(**config)


def make_dataset(options: Options, utterances: list[Utterance]) -> PitchDataset:
    """The clips of a filelist."""
    from pulse_noise.data_function import PitchDataset

    return PitchDataset(options, utterances)


def make_loss(options: Options) -> PitchLoss:
    """The criterion."""
    from pulse_noise.loss_function import PitchLoss

    return PitchLoss()


def config_from_options(options: Options) -> dict[str, Any]:
    """The config keys that are among the options: those of the audio."""
    return given_fields(AudioConfig, options)


def advise(minutes: float, weights: int, gpu: bool) -> Advice:
    """Choose as many epochs as make STEPS."""
    epochs = max(1, math.ceil(STEPS * BATCH_SIZE / max(1.0, CLIPS_A_MINUTE * minutes)))
    options = {"batch_size": BATCH_SIZE, "epochs": epochs, "learning_rate": 2e-3}
    return Advice(options, f"about {STEPS} steps, which take minutes on a CPU, learn the pitch of one speaker")


def draw_noise(model: PulseNoise, mels: Tensor, draws: Draws | None) -> Tensor:
    """Draw white noise (B, N) for log-mels (B, M, T), N = (T - 1) * hop_length; without draws from PyTorch's generator."""
    samples = (mels.shape[2] - 1) * model.config.hop_length
    if draws is None:
        return torch.randn(len(mels), samples, device=mels.device)
    return draws.normal(samples)


def vocode(model: PulseNoise, mels: Tensor, sigma: float, draws: Draws | None) -> Tensor:
    """Vocode log-mels (B, M, T) into audio (B, N); `sigma` has no effect."""
    return model.infer(mels, draw_noise(model, mels, draws))


def stream(
    model: PulseNoise, mels: Tensor, sigma: float, finish: Callable[[Tensor], Tensor], draws: Draws | None
) -> Iterator[Tensor]:
    """Yield the audio of `vocode` for one item in parts (1, n)."""
    return model.stream(mels, draw_noise(model, mels, draws))


def preview(model: PulseNoise, batch: PulseNoiseBatch, outputs: Tensor, stft: TacotronSTFT) -> Preview:
    """The sound of a validation's first crop, and how often the network's voicing differs from WORLD's."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, (batch.mels.shape[2] - 1) * model.config.hop_length, generator=generator)
    audio = model.infer(batch.mels[:1], noise.to(batch.mels.device))[0].cpu()
    voicing = ((outputs[:, -1] > 0) != batch.voiced).float().mean().item()  # host sync, once a validation
    return Preview(figures={}, sounds={"vocoded": audio}, scalars={"voicing_error": voicing})


SPEC = ModelSpec(
    name="PulseNoise",
    flag="pulse-noise",
    file_stem="pitch",
    train_command="python train.py -m PulseNoise --training-files FILELIST",
    build=build,
    add_arguments=lambda parser: None,
    add_training_arguments=lambda parser: None,
    config_from_options=config_from_options,
    training=TrainingDefaults(
        epochs=100,
        learning_rate=2e-3,
        batch_size=BATCH_SIZE,
        batch_size_amp=BATCH_SIZE,
        weight_decay=0.0,
        grad_clip_thresh=1.0,
    ),
    make_dataset=make_dataset,
    make_loss=make_loss,
    preview=preview,
    advise=advise,
    takes_minutes=True,
    training_packages=("pyworld",),
    inference=VocoderInference(
        denoiser=lambda model, audio: lambda sound, strength: sound, has_noise=False, vocode=vocode, stream=stream
    ),
)
