"""Pulse-noise: a small network reads pitch and voicing from log-mels, and a source and a filter turn all three into audio."""

# B batch, M mels, T frames, N samples, P pitches

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.audio_processing import check_mels, predict_peak
from common.audio.parts import parts_in_context, scaled
from common.audio.stft import AudioConfig, TacotronSTFT
from common.errors import UsageError
from pulse_noise.synthesis import PulseNoiseSynthesis, Source, interpolate, make_source

NEAREST = 2  # pitches on either side of the likeliest whose mean is the pitch
SHARPNESS, THRESHOLD = 6.0, 0.3  # of the voicing's logit
FIRST_PART, LONGEST_PART = 32, 352  # frames of a stream's parts
GROWTH = 3  # each is so many times as long as the one before, which plays meanwhile
CONTEXT = 3  # windows around a part: the transforms, the fit and the refinement reach no farther


@dataclass(frozen=True, kw_only=True)
class PulseNoiseConfig(AudioConfig):
    """Keyword arguments of PulseNoise: the audio, and the network's dimensions."""

    channels: int = 96
    pitches: int = 128
    lowest_pitch: float = 50.0  # Hz
    highest_pitch: float = 600.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels < 1 or self.pitches < 2 or not 0 < self.lowest_pitch < self.highest_pitch:
            raise UsageError("the pitch network needs channels, at least two pitches, and a lowest below a highest one")


class PulseNoise(nn.Module):
    """Logits of pitch and voicing from log-mels in training, audio in inference.

    The network is three convolutions that see 5 frames on either side. Pitches are spaced evenly on a logarithmic scale.
    """

    def __init__(self, **config: object) -> None:
        super().__init__()
        self.config = PulseNoiseConfig(**config)  # type: ignore[arg-type]
        mels, channels = self.config.n_mel_channels, self.config.channels
        self.layers = nn.Sequential(
            nn.Conv1d(mels, channels, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(channels, self.config.pitches + 1, 1),
        )
        self._synthesis: PulseNoiseSynthesis | None = None

    def forward(self, log_mels: Tensor) -> Tensor:
        """Logits (B, P + 1, T) of log-mels (B, M, T): of each pitch, and last of voicing."""
        return self.layers((log_mels + 5) / 2)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def log_pitches(self) -> Tensor:
        """Logarithms (P,) of the pitches in Hz."""
        low, high = math.log(self.config.lowest_pitch), math.log(self.config.highest_pitch)
        return torch.linspace(low, high, self.config.pitches, device=self.device)

    def read_pitch(self, log_mels: Tensor) -> tuple[Tensor, Tensor]:
        """Log pitch, of no meaning where speech is unvoiced, and voicing in [0, 1], (T,) each, of log-mels (1, M, T)."""
        logits = self(log_mels)[0].float()
        shares = logits[:-1].softmax(0)
        order = torch.arange(len(shares), device=logits.device)[:, None]
        shares = shares * ((order - shares.argmax(0)).abs() <= NEAREST)
        log_pitch = (shares * self.log_pitches()[:, None]).sum(0) / shares.sum(0)
        before, here, after = (
            F.pad(log_pitch[None], (1, 1), mode="replicate")[0, i : i + log_pitch.shape[0]] for i in range(3)
        )
        median = torch.maximum(torch.minimum(before, here), torch.minimum(torch.maximum(before, here), after))
        return median, torch.sigmoid(SHARPNESS * (logits[-1] - THRESHOLD))

    @torch.no_grad()
    def infer(self, mels: Tensor, noise: Tensor) -> Tensor:
        """Audio (B, N) in [-1, 1] of log-mels (B, M, T) and white noise (B, N) of unit variance, N = (T - 1) * hop_length."""
        return torch.stack([next(self.stream(mel[None], own[None], mel.shape[1]))[0] for mel, own in zip(mels, noise)])

    @torch.no_grad()
    def stream(
        self, mels: Tensor, noise: Tensor, first: int = FIRST_PART, longest: int = LONGEST_PART
    ) -> Iterator[Tensor]:
        """Yield the audio of `infer` for one item in parts (1, n), of `first` frames and then of more, up to `longest`.

        The source is made at once, so that pulses and noise go on from part to part; each part's filter is fitted with
        CONTEXT on either side. Raises DataError for mels of another shape, too few of them, or NaN.
        """
        with torch.autocast(mels.device.type, enabled=False):
            synthesis, hop = self.synthesis(), self.config.hop_length
            check_mels(mels, synthesis.stft)
            mel = mels[0].float()
            log_pitch, voicing = self.read_pitch(mel[None])
            log_pitch = interpolate(log_pitch, voicing > 0.5)
            source = make_source(log_pitch, voicing, noise[0].float(), self.config.sampling_rate, hop)
            peak = predict_peak(mel[None], synthesis.stft).clamp(min=1)
            context = CONTEXT * self.config.filter_length // hop
            for near, own in parts_in_context(mel.shape[1] - 1, context, first, longest, GROWTH):
                around = Source(*(part[scaled(near, hop)] for part in source))
                audio = synthesis(mel[:, near.start : near.stop + 1], around)
                yield (audio[None, scaled(own, hop)] / peak).clamp(-1, 1)

    def synthesis(self) -> PulseNoiseSynthesis:
        """The filter, on the device of the weights."""
        if self._synthesis is None or self._synthesis.basis.device != self.device:
            self._synthesis = PulseNoiseSynthesis(TacotronSTFT.from_config(self.config).to(self.device))
        return self._synthesis
