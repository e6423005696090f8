"""Pulse-noise for runtimes without complex numbers and scattered sums: the same synthesis on other tools."""

# M mels, T frames, F frequency bins, N samples

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from common.audio.audio_processing import predict_peak
from common.audio.stft import STFT, AudioConfig, TacotronSTFT
from exports.parts import EXAMPLE_FRAMES, ConvSTFT, ExportPart
from pulse_noise.model import PulseNoise
from pulse_noise.synthesis import TAPS, PulseNoiseSynthesis, Source, to_samples


class ComplexPair:
    """Complex numbers as two real tensors, with the operations of PulseNoiseSynthesis and retrieve_phases."""

    def __init__(self, real: Tensor, imaginary: Tensor) -> None:
        self.real, self.imaginary = real, imaginary

    def __add__(self, other: ComplexPair) -> ComplexPair:
        return ComplexPair(self.real + other.real, self.imaginary + other.imaginary)

    def __sub__(self, other: ComplexPair) -> ComplexPair:
        return ComplexPair(self.real - other.real, self.imaginary - other.imaginary)

    def __mul__(self, factor: Tensor | float) -> ComplexPair:
        return ComplexPair(self.real * factor, self.imaginary * factor)

    __rmul__ = __mul__

    def __getitem__(self, index: int | None) -> ComplexPair:
        return ComplexPair(self.real[index], self.imaginary[index])

    def abs(self) -> Tensor:
        """Magnitudes."""
        return (self.real.square() + self.imaginary.square()).sqrt()

    def sgn(self) -> ComplexPair:
        """Numbers of magnitude 1 and the same phase; 0 for 0."""
        return self * self.abs().clamp(min=torch.finfo(torch.float32).tiny).reciprocal()


class PairSTFT(ConvSTFT):
    """A ConvSTFT with the methods of common.audio.stft.STFT, on Pairs."""

    def __init__(self, stft: STFT) -> None:
        super().__init__(stft)
        self.window = nn.Buffer(stft.window.clone())

    def spectrum(self, audio: Tensor) -> ComplexPair:
        """Spectrum (B, F, T) of audio (B, N)."""
        return ComplexPair(*self(audio).chunk(2, dim=1))

    def from_spectrum(self, spectrum: ComplexPair) -> Tensor:
        """Audio (B, (T - 1) * hop) of a spectrum (B, F, T)."""
        audio = self.inverse(torch.cat((spectrum.real, spectrum.imaginary), dim=1))
        return audio[:, : -(self.size // 2)]


def interpolate(values: Tensor, known: Tensor) -> Tensor:
    """pulse_noise.synthesis.interpolate, by comparing all places with each other."""
    frames = torch.arange(values.shape[0], device=values.device)
    known = known | ~known.any()  # where none is known, all stay as they are
    places = torch.where(known, frames, -1)
    before = torch.where(frames[:, None] >= places, places, -1).amax(1)
    places = torch.where(known, frames, values.shape[0])
    after = torch.where(frames[:, None] <= places, places, values.shape[0]).amin(1)
    left, right = torch.where(before < 0, after, before), torch.where(after >= values.shape[0], before, after)
    share = (frames - left).to(values.dtype) / (right - left).clamp(min=1)
    return values[left] * (1 - share) + values[right] * share


def pulse_train(f0: Tensor, rate: int) -> Tensor:
    """pulse_noise.synthesis.pulse_train with a pulse, mostly of no height, at every sample, and their sum as a convolution."""
    middles = (f0[1:] + f0[:-1]) / 2
    phase = F.pad(torch.cumsum(middles / rate, 0), (1, 0)) + 0.5
    before, after = phase[:-1], phase[1:]
    crosses = after.floor() > before.floor()
    share = torch.where(crosses, (after.floor() - before) / (after - before), torch.zeros_like(before)).float()
    height = torch.where(crosses, (rate / f0[:-1]).sqrt(), torch.zeros_like(before)).float()
    offsets = torch.arange(-TAPS // 2 + 1, TAPS // 2 + 1, device=f0.device)[:, None]
    distance = offsets - share
    window = 0.5 + 0.5 * torch.cos(2 * math.pi * distance / TAPS)
    angle = math.pi * distance
    sinc = torch.where(angle.abs() < 1e-6, torch.ones_like(angle), angle.sin() / angle)
    values = F.pad(sinc * window * height, (0, 1))  # (TAPS, N)
    return F.conv_transpose1d(values[None], torch.eye(TAPS, device=f0.device)[:, None])[
        0, 0, TAPS // 2 - 1 : -TAPS // 2
    ]


class VocodePulseNoise(nn.Module):
    """PulseNoise.infer of one item as a forward."""

    def __init__(self, model: PulseNoise) -> None:
        super().__init__()
        self.model, self.stft = model, TacotronSTFT.from_config(model.config)
        self.stft.stft = PairSTFT(self.stft.stft)  # type: ignore[assignment]
        self.synthesis = PulseNoiseSynthesis(self.stft)

    def forward(self, mels: Tensor, z: Tensor) -> Tensor:
        """Log-mels (1, M, T), white noise (1, N) -> audio (1, N), N = (T - 1) * hop_length."""
        hop, samples = self.model.config.hop_length, z.shape[1]
        log_pitch, voicing = self.model.read_pitch(mels)
        f0 = to_samples(interpolate(log_pitch, voicing > 0.5).double(), hop, samples).exp()
        pulses = pulse_train(f0, self.model.config.sampling_rate)
        audio = self.synthesis(mels[0], Source(pulses, z[0], to_samples(voicing, hop, samples)))
        return (audio[None] / predict_peak(mels, self.stft).clamp(min=1)).clamp(-1, 1)


@torch.no_grad()
def pulse_noise_parts(model: PulseNoise, audio: AudioConfig) -> Iterator[ExportPart]:
    """The only part of a PulseNoise in evaluation mode; it takes one item."""
    hop, frames = model.config.hop_length, Dim("frames", min=audio.filter_length // 2 // audio.hop_length + 2)
    inputs = {
        "mels": torch.zeros(1, model.config.n_mel_channels, EXAMPLE_FRAMES),
        "z": torch.zeros(1, (EXAMPLE_FRAMES - 1) * hop),
    }
    axes = {"mels": {2: frames}, "z": {1: hop * frames - hop}}
    yield ExportPart("pulse_noise", VocodePulseNoise(model).eval(), inputs, axes, {"audio": {1: "samples"}})
