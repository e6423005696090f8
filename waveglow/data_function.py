"""Data of WaveGlow: convert filelist rows to pairs of mel and audio, of one random segment each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import default_collate

from common.audio.audio_processing import load_audio
from common.audio.stft import SILENCE
from common.data.filelist import BadRows, Utterance, read_filelist
from common.data.mels import ClipDataset, audio_seconds, check_settings, length_problem, load_mel, mel_path_of
from common.errors import DataError, UsageError
from common.options import POSITIVE, Check, check_fields, from_options, option
from common.spec import Key, Options, Published
from common.utils import to_gpu

# Key of dither's random numbers, beside those of the segment's start; a string's hash differs from run to run.
DITHER = 1

# B batch, N samples, T frames, M mels


@dataclass(frozen=True, kw_only=True)
class WaveGlowDataConfig:
    """Options of the dataset. Raises UsageError for values that cannot work, each by its flag."""

    segment_length: int = option(8000, "samples that an epoch takes from each clip")
    groups: int = 8
    longest_clip: float = option(
        600.0,
        "longest clip allowed; a longer one is an error, found before training, since each clip is read whole for a segment",
        metavar="SECONDS",
        check=POSITIVE,
    )
    load_mel_from_disk: bool = option(
        False,
        "cut mels from those of scripts/prepare_mels.sh: FOLDER/mels/ID.pt for FOLDER/wavs/ID.wav",
        action=argparse.BooleanOptionalAction,
    )
    dither: float = option(
        0.0,
        "standard deviation of white noise added to the audio, not to its mel; 0.0005 saves a small model, or one trained on clean "
        "audio, from modelling inaudible noise",
        check=Check(lambda deviation: 0 <= deviation < 1, "a standard deviation from 0 to below 1; 0.0005 is -66 dB"),
    )
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.segment_length < self.groups or self.segment_length % self.groups:
            raise UsageError(f"--segment-length: {self.segment_length}, expected a multiple of --groups {self.groups}")


class SegmentItem(NamedTuple):
    """A segment: mel (M, T), audio (N,), the number of samples without padding, and the path of its file."""

    mel: Tensor
    audio: Tensor
    samples: int
    name: str


class WaveGlowBatch(NamedTuple):
    """Segments of equal length: mels (B, M, T), audio (B, N) in [-1, 1]; `samples` counts them without padding."""

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


class MelAudioDataset(ClipDataset):
    """Pairs of log-mel and audio. The random segment of a clip depends on seed, epoch and index alone."""

    def __init__(self, options: Options, utterances: list[Utterance]) -> None:
        super().__init__(options, utterances)
        self.config = from_options(WaveGlowDataConfig, options)
        shortest = 0 if self.config.load_mel_from_disk else self.audio.filter_length // 2 + 1
        if self.config.segment_length < shortest:
            raise UsageError(
                f"--segment-length: {self.config.segment_length}, expected at least {shortest} for the mels of "
                f"--filter-length {self.audio.filter_length}"
            )
        self.lengths = [self.config.segment_length] * len(utterances)
        if self.config.load_mel_from_disk:
            self._check_mels()

    def problem_of(self, item: int, samples: int | None) -> str | None:
        """A clip may be too long, or too short for a frame."""
        path = self.path(item)
        return length_problem(
            path, audio_seconds(path, self.audio, self.audio.hop_length, samples), self.config.longest_clip
        )

    def __getitem__(self, key: Key) -> SegmentItem:
        path = self.path(key.item)
        audio = load_audio(path, self.audio.sampling_rate)
        length = self.config.segment_length
        start = self._start(key, len(audio) - length)
        if self.config.load_mel_from_disk:
            start -= start % self.audio.hop_length  # the cached mel's frames are centred at multiples of the hop
        segment = audio[start : start + length]
        padded = F.pad(segment, (0, length - len(segment)))
        noise = self.config.dither * torch.randn(length, generator=self._generator(key, DITHER))
        return SegmentItem(self._mel(path, audio, start, padded), padded + noise, len(segment), str(path))

    def mel_paths(self) -> list[Path]:
        """List the stored mels of the clips, if they are read."""
        return [mel_path_of(self.path(item)) for item in range(len(self))] if self.config.load_mel_from_disk else []

    def _check_mels(self) -> None:
        """Raise BadRows, which lists all clips without a cached mel."""
        mels = self.mel_paths()
        absent = {
            item: f"no file {path}; `bash scripts/prepare_mels.sh` makes mels, or leave --load-mel-from-disk out"
            for item, path in enumerate(mels)
            if not path.is_file()
        }
        if absent:
            raise BadRows(absent)
        check_settings((path.parent for path in mels), self.audio)

    def _mel(self, path: Path, audio: Tensor, start: int, segment: Tensor) -> Tensor:
        """Return the segment's log-mel: computed, or cut from the clip's cached mel and padded with silence."""
        if not self.config.load_mel_from_disk:
            return self.stft.mel_spectrogram(segment[None])[0]
        mel_path, hop_length = mel_path_of(path), self.audio.hop_length
        mel = load_mel(mel_path, self.audio.n_mel_channels)
        expected = len(audio) // hop_length + 1
        if mel.shape[1] != expected:
            raise DataError(
                f"{mel_path}: {mel.shape[1]} frames, expected {expected} for {path}: "
                "it is of other audio or other settings; delete it and prepare mels again"
            )
        frames = len(segment) // hop_length + 1
        cut = mel[:, start // hop_length :][:, :frames]
        return F.pad(cut, (0, frames - cut.shape[1]), value=SILENCE)

    def _start(self, key: Key, room: int) -> int:
        if room <= 0:
            return 0
        return int(torch.randint(room + 1, (), generator=self._generator(key)))

    def _generator(self, key: Key, *use: int) -> torch.Generator:
        return torch.Generator().manual_seed(hash((self.config.seed, *key, *use)) % 2**63)

    def collate(self, items: list[SegmentItem]) -> WaveGlowBatch:
        """Stack segments into a batch."""
        return WaveGlowBatch(
            mels=torch.stack([item.mel for item in items]),
            audio=torch.stack([item.audio for item in items]),
            samples=torch.tensor([item.samples for item in items]),
            names=tuple(item.name for item in items),
        )


# --- scripts written for the published recipe ---


class MelAudioLoader(MelAudioDataset):
    """Clips (mel (M, T), audio (N,), N), each time another segment; the options are attributes of `args`."""

    def __init__(self, dataset_path: str, audiopaths_and_text: str, args: argparse.Namespace) -> None:
        super().__init__({**vars(args), "dataset_path": dataset_path}, read_filelist(audiopaths_and_text))

    def __getitem__(self, index: Any) -> Any:
        """Read a segment of a clip. Raises DataError for a bad file."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        segment = super().__getitem__(Key(int(torch.randint(2**31, ())), index))
        return segment.mel, segment.audio, len(segment.audio)


def batch_to_gpu(batch: tuple[Tensor, ...]) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Return a batch on the GPU, or the CPU without one: inputs (mels, audio), the target, audio, and the number of samples."""
    mels, audio, samples = map(to_gpu, batch)
    return (mels, audio), audio, samples.sum()


def collate_of(n_frames_per_step: int) -> Callable[[list[Any]], Any]:
    """Return what stacks clips of a MelAudioLoader, which has no steps."""
    return default_collate


PUBLISHED = Published(loader=MelAudioLoader, collate=collate_of, batch_to_gpu=batch_to_gpu, arguments_of=tuple)
