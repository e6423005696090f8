"""Clips for the pitch network: random crops of log-mels with the pitch that WORLD finds in the recording.

Crops are blurred, shifted in level and mixed with noise, so that the network reads predicted mels as well as those of recordings.
"""

# B batch, M mels, T frames

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.audio.audio_processing import load_audio
from common.audio.stft import SILENCE
from common.data.filelist import Utterance
from common.data.mels import ClipDataset, audio_seconds, length_problem
from common.options import from_options
from common.quality.likeness import track_pitch
from common.spec import Key, Options
from pulse_noise.loss_function import PitchTargets
from pulse_noise.model import PulseNoiseConfig

CROP = 120  # frames
LONGEST = 60.0  # seconds of a clip
LARGEST_NOISE, LARGEST_SHIFT = 0.3, 1.0  # of log-mels, in augmentation
BLURS = (1, 3, 5), (1, 3)  # frames, and bands, of the mean that blurs a crop
STORED = 4000  # clips whose mels and pitch stay in memory


class PitchClip(NamedTuple):
    """Log-mels (M, T) and the pitch (T,) in Hz, 0 where unvoiced."""

    mels: Tensor
    pitch: Tensor


class PitchItem(NamedTuple):
    """A crop of a clip, and the clip's file."""

    clip: PitchClip
    name: str


class PulseNoiseBatch(NamedTuple):
    """Crops: log-mels (B, M, T) with their targets (B, T)."""

    mels: Tensor
    places: Tensor
    voiced: Tensor
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.mels,)

    @property
    def targets(self) -> PitchTargets:
        return PitchTargets(self.places, self.voiced)

    @property
    def num_items(self) -> Tensor:
        return torch.tensor(self.voiced.numel())


class PitchDataset(ClipDataset):
    """Crops of log-mels and pitch. A crop and its augmentation depend on seed, epoch and index alone."""

    keeps_clips = True  # so the first epoch, which measures them, takes longer than the others

    def __init__(self, options: Options, utterances: list[Utterance]) -> None:
        super().__init__(options, utterances)
        self.config = from_options(PulseNoiseConfig, options)
        self.seed = options.get("seed") or 0
        self.lengths = [CROP] * len(utterances)
        self._clips: dict[int, PitchClip] = {}

    def problem_of(self, item: int, samples: int | None) -> str | None:
        """A clip may be too long, or too short for a frame."""
        path = self.path(item)
        return length_problem(path, audio_seconds(path, self.audio, self.audio.filter_length, samples), LONGEST)

    def __getitem__(self, key: Key) -> PitchItem:
        generator = torch.Generator().manual_seed(hash((self.seed, *key)) % 2**63)
        clip = self._clip(key.item)
        start = int(torch.randint(max(1, len(clip.pitch) - CROP + 1), (), generator=generator))
        mels, pitch = clip.mels[:, start : start + CROP], clip.pitch[start : start + CROP]
        missing = CROP - len(pitch)
        crop = PitchClip(F.pad(augment(mels, generator), (0, missing), value=SILENCE), F.pad(pitch, (0, missing)))
        return PitchItem(crop, str(self.path(key.item)))

    def _clip(self, item: int) -> PitchClip:
        """Measure a clip once; the first STORED of them stay in memory."""
        if item in self._clips:
            return self._clips[item]
        audio = load_audio(self.path(item), self.audio.sampling_rate)
        mels = self.stft.mel_spectrogram(audio[None])[0]
        period = 1000 * self.audio.hop_length / self.audio.sampling_rate  # milliseconds of a frame
        pitch = torch.from_numpy(track_pitch(audio.numpy(), self.audio.sampling_rate, period)).float()
        clip = PitchClip(mels, F.pad(pitch, (0, max(0, mels.shape[1] - len(pitch))))[: mels.shape[1]])
        if len(self._clips) < STORED:
            self._clips[item] = clip
        return clip

    def collate(self, items: list[PitchItem]) -> PulseNoiseBatch:
        """Stack crops into a batch."""
        pitch = torch.stack([item.clip.pitch for item in items])
        low, high = math.log(self.config.lowest_pitch), math.log(self.config.highest_pitch)
        places = (pitch.clamp(min=1).log() - low) / (high - low) * (self.config.pitches - 1)
        return PulseNoiseBatch(
            mels=torch.stack([item.clip.mels for item in items]),
            places=places.clamp(0, self.config.pitches - 1),
            voiced=pitch > 0,
            names=tuple(item.name for item in items),
        )


def augment(mels: Tensor, generator: torch.Generator) -> Tensor:
    """Blur log-mels (M, T) over frames and bands, shift their level and add noise."""
    frames, bands = (sizes[int(torch.randint(len(sizes), (), generator=generator))] for sizes in BLURS)
    padded = F.pad(mels[None], (frames // 2, frames // 2, bands // 2, bands // 2), mode="replicate")
    blurred = F.avg_pool2d(padded, (bands, frames), stride=1)[0]
    strength, shift = torch.rand(2, generator=generator).tolist()
    noise = torch.randn(blurred.shape, generator=generator)
    return blurred + LARGEST_NOISE * strength * noise + LARGEST_SHIFT * (2 * shift - 1)
