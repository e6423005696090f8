"""Sizes, device and precision of the speed benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from common import precision


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the models and of their inputs."""

    tacotron2: str = ""  # flags of the model
    waveglow: str = ""
    training_channels: tuple[int, ...] = (256, 512)
    inference_channels: int = 256
    batches: tuple[int, ...] = (8,)  # batch sizes of Tacotron 2's training
    symbols: int = 100
    frames: int | None = 400  # of each clip; None: lengths as in LJSpeech
    segments: int = 1  # batch size of WaveGlow's training
    segment_length: int = 8000
    input_length: int = 128  # symbols to speak
    decoder_frames: int = 600
    vocoder_frames: int = 400


CPU = Sizes()
GPU = Sizes(batches=(104, 128), frames=None, segments=10)
QUICK = Sizes(
    tacotron2="--symbols-embedding-dim 16 --encoder-embedding-dim 16 --prenet-dim 16 --attention-rnn-dim 24"
    " --attention-dim 8 --decoder-rnn-dim 24 --postnet-embedding-dim 16",
    waveglow="--flows 4 --early-every 2 --wn-layers 2",
    training_channels=(8, 16),
    inference_channels=8,
    batches=(2,),
    symbols=10,
    frames=20,
    segment_length=2048,
    input_length=12,
    decoder_frames=20,
    vocoder_frames=20,
)


class Setting(NamedTuple):
    """Sizes, device and precision of a measurement; `amp` applies to training and to whole sentences."""

    sizes: Sizes
    device: torch.device
    amp: bool
    train_flags: str = ""  # further flags of train.py, for our way alone

    @property
    def reference_amp(self) -> bool:
        """True if references use half precision too: only on a GPU, as the published recipe has none on a CPU."""
        return self.amp and self.device.type != "cpu"

    @property
    def numbers(self) -> str:
        """Name of the precision in a row's title."""
        ours, reference = (type_name(self.device, half) for half in (self.amp, self.reference_amp))
        return ours if ours == reference else f"{ours} (reference: {reference})"


def type_name(device: torch.device, half: bool) -> str:
    """Name of float32 (TF32 on a GPU that has it), or of the half precision that is faster on the device."""
    return str(precision.half_dtype(device, half) or torch.float32).removeprefix("torch.")
