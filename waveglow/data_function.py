"""WaveGlow's data: rows of a filelist to (mel, audio) pairs of one random segment each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.data.filelist import Utterance
from common.errors import UsageError
from common.sound.audio_processing import load_audio
from common.sound.stft import AudioConfig, TacotronSTFT
from common.spec import Key, Options, from_options

# B batch, N samples, T frames, M mels


@dataclass(frozen=True, kw_only=True)
class WaveGlowDataConfig:
    """Options of the dataset and the defaults of their flags."""

    dataset_path: str = "./"
    segment_length: int = 8000
    groups: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.segment_length < self.groups or self.segment_length % self.groups:
            raise UsageError(f"--segment-length: {self.segment_length}, expected a multiple of --groups {self.groups}")


class Item(NamedTuple):
    """A segment: mel (M, T), audio (N,), how many of the N samples are not padding, and the file they came from."""

    mel: Tensor
    audio: Tensor
    samples: int
    name: str


class WaveGlowBatch(NamedTuple):
    """Segments of equal length: mels (B, M, T), audio (B, N) in [-1, 1]; `samples` counts what is not padding."""

    mels: Tensor
    audio: Tensor
    samples: Tensor
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.mels, self.audio

    @property
    def targets(self) -> Tensor:
        return self.audio

    @property
    def num_items(self) -> Tensor:
        return self.samples.sum()


class MelAudioDataset:
    """Pairs of log-mel and audio; which segment of a clip is drawn depends on seed, epoch and index alone."""

    def __init__(self, options: Options, utterances: list[Utterance]) -> None:
        self.config = from_options(WaveGlowDataConfig, options)
        self.audio = from_options(AudioConfig, options)
        self.utterances = utterances
        self.lengths = [self.config.segment_length] * len(utterances)
        self.stft = TacotronSTFT.from_config(self.audio)

    def __len__(self) -> int:
        return len(self.utterances)

    def __getitem__(self, key: Key) -> Item:
        path = Path(self.config.dataset_path, self.utterances[key.item].path)
        audio = load_audio(path, self.audio.sampling_rate)
        length = self.config.segment_length
        start = self._start(key, len(audio) - length)
        segment = audio[start : start + length]
        padded = F.pad(segment, (0, length - len(segment)))
        return Item(self.stft.mel_spectrogram(padded[None])[0], padded, len(segment), str(path))

    def _start(self, key: Key, room: int) -> int:
        if room <= 0:
            return 0
        generator = torch.Generator().manual_seed(hash((self.config.seed, *key)) % 2**63)
        return int(torch.randint(room + 1, (), generator=generator))

    def collate(self, items: list[Item]) -> WaveGlowBatch:
        """Stack segments to a batch."""
        return WaveGlowBatch(
            mels=torch.stack([item.mel for item in items]),
            audio=torch.stack([item.audio for item in items]),
            samples=torch.tensor([item.samples for item in items]),
            names=tuple(item.name for item in items),
        )
