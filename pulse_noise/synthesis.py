"""Source-filter synthesis: log-mels, pitch and voicing become audio.

The source is a train of pulses at the pitch, mixed with noise where speech is unvoiced. The filter is a smooth spectral envelope
for each frame, fitted so that their product has the given mels. Two rounds of Griffin-Lim then correct the magnitudes.
"""

# M mels, T frames, F frequency bins, N samples, K cosines of the envelope

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.audio.audio_processing import retrieve_phases
from common.audio.stft import TacotronSTFT

TAPS = 32  # of the windowed sinc that places a pulse between two samples
BREATH, BREATH_FROM, BREATH_TO = 0.7, 1500.0, 6000.0  # largest noise share of voiced speech; Hz over which it rises
SHARPENING = 0.3  # of mels over time, against the blur of predictions
STEPS = (1.0, 0.7, 0.7, 0.7)  # of the envelope's fit; whole ones overshoot where neighbouring mels differ most
RIDGE = 1e-4  # weight of the squared cosines in it, times their squared order
FADE = 300.0  # Hz above the highest mel filter over which the output fades
REFINEMENTS, MOMENTUM = 2, 0.99


class Source(NamedTuple):
    """Pulses and white noise (N,), each of unit power, and the voicing (N,) in [0, 1] that mixes them."""

    pulses: Tensor
    noise: Tensor
    voicing: Tensor


def make_source(log_pitch: Tensor, voicing: Tensor, noise: Tensor, rate: int, hop: int) -> Source:
    """Build the source of a clip.

    Args:
        log_pitch: (T,) of the pitch in Hz, for unvoiced frames too.
        voicing: (T,) in [0, 1].
        noise: (N,) white, of unit variance, N = (T - 1) * hop.
        rate: sampling rate in Hz.
        hop: samples from frame to frame.
    """
    n_samples = len(noise)
    log_f0 = to_samples(log_pitch.double(), hop, n_samples)
    return Source(pulse_train(log_f0.exp(), rate), noise, to_samples(voicing, hop, n_samples))


def pulse_train(f0: Tensor, rate: int) -> Tensor:
    """Pulses (N,) for a pitch (N,) in Hz: one where the phase, the integral of f0, crosses an integer, at its fractional place.

    Each has the amplitude sqrt(rate / f0), which makes the mean power 1.
    """
    middles = (f0[1:].double() + f0[:-1].double()) / 2  # the trapezoidal rule
    phase = F.pad(torch.cumsum(middles / rate, 0), (1, 0)) + 0.5  # the first pulse comes half a period after the start
    crossings = torch.nonzero(phase[1:].floor() > phase[:-1].floor())[:, 0]
    before, after = phase[crossings], phase[crossings + 1]
    places = crossings + (after.floor() - before) / (after - before)
    offsets = torch.arange(-TAPS // 2 + 1, TAPS // 2 + 1, device=f0.device)
    samples = places.floor().long()[:, None] + offsets
    distance = (samples - places[:, None]).float()
    window = 0.5 + 0.5 * torch.cos(2 * math.pi * distance / TAPS)
    values = torch.sinc(distance) * window * (rate / f0[crossings].float()).sqrt()[:, None]
    inside = (samples >= 0) & (samples < len(f0))
    pulses = torch.zeros(len(f0), device=f0.device)
    return pulses.index_put((samples[inside],), values[inside], accumulate=True)


def to_samples(frames: Tensor, hop: int, n_samples: int) -> Tensor:
    """Interpolate values (T,) at frames, linearly, to samples (N,)."""
    place = torch.arange(n_samples, device=frames.device) / hop
    index = place.long().clamp(max=frames.shape[0] - 2)
    share = (place - index).to(frames.dtype)
    return frames[index] * (1 - share) + frames[index + 1] * share


class PulseNoiseSynthesis:
    """The filter and everything behind it: a source and log-mels become audio."""

    def __init__(self, stft: TacotronSTFT) -> None:
        config = stft.config
        self.stft, device = stft, stft.mel_basis.device
        frequencies = torch.linspace(0, config.sampling_rate / 2, config.filter_length // 2 + 1, device=device)
        self.breath = BREATH * ((frequencies - BREATH_FROM) / (BREATH_TO - BREATH_FROM)).clamp(0, 1)
        self.fade = 1 - ((frequencies - config.mel_fmax) / FADE).clamp(0, 1)
        warped = (_mel(frequencies) / _mel(torch.tensor(config.mel_fmax))).clamp(max=1)
        order = torch.arange(config.n_mel_channels, device=device)
        self.cosines = torch.cos(math.pi * warped[:, None] * order)  # (F, K)
        self.basis = stft.mel_basis.float()
        self.weight = self.basis.sum(0)[:, None].clamp(min=1e-12)
        self.step, self.decay = self._fixed_step()

    def _fixed_step(self) -> tuple[Tensor, Tensor]:
        """What a step of the fit adds to the cosines (K) for the error of each log-mel (M, K), and takes off them for each (K, K).

        This is the Gauss-Newton step of a flat envelope over a flat source. Others differ from it only within the width of a mel
        filter, so one inverse serves all frames.
        """
        basis, cosines = self.basis.double(), self.cosines.double()
        slopes = basis @ cosines / basis.sum(1, keepdim=True).clamp(min=1e-12)  # (M, K), of log-mels
        ridge = RIDGE * (1 + torch.arange(cosines.shape[1], device=basis.device).double().square()).diag()
        inverse = (slopes.T @ slopes + ridge).inverse()
        return (slopes @ inverse).float(), (ridge @ inverse).float()

    def __call__(self, log_mels: Tensor, source: Source) -> Tensor:
        """Audio (N,) from log-mels (M, T) and the source of T frames."""
        voiced, unvoiced, level = self.spectra(source)
        envelope = self.fit(log_mels, level)
        audio = self.stft.stft.from_spectrum(((voiced + unvoiced) * envelope * self.fade[:, None])[None])
        return self.refine(audio, log_mels)[0]

    def spectra(self, source: Source) -> tuple[Tensor, Tensor, Tensor]:
        """Spectra (F, T) of pulses and of noise, and the expected magnitude of their sum."""
        stft, breath = self.stft.stft, self.breath[:, None]
        pulses, voiced_noise, unvoiced_noise = stft.spectrum(
            torch.stack(
                (
                    source.voicing.sqrt() * source.pulses,
                    source.voicing.sqrt() * source.noise,
                    (1 - source.voicing).sqrt() * source.noise,
                )
            )
        )
        voiced = (1 - breath).sqrt() * pulses
        noise = unvoiced_noise + breath.sqrt() * voiced_noise
        power = stft.window.square()
        share = self._frame_means(1 - source.voicing, power)
        level = voiced.abs().square() + math.pi / 4 * power.sum() * (share + breath * (1 - share))
        return voiced, noise, level.sqrt()

    def _frame_means(self, values: Tensor, weights: Tensor) -> Tensor:
        """Means (T,) of values (N,) over each frame under a window's weights."""
        size, hop = len(weights), self.stft.config.hop_length
        padded = F.pad(values[None, None], (size // 2, size // 2), mode="reflect")
        return F.conv1d(padded, (weights / weights.sum())[None, None], stride=hop)[0, 0]

    def fit(self, log_mels: Tensor, level: Tensor) -> Tensor:
        """Envelope (F, T) with which a source of magnitudes (F, T) has the log-mels (M, T)."""
        blurred = F.avg_pool1d(F.pad(log_mels[None], (1, 1), mode="replicate"), 3, stride=1)[0]
        target = (log_mels + SHARPENING * (log_mels - blurred)).T  # (T, M)
        magnitude = level.T  # (T, F)
        c = target.new_zeros(target.shape[0], self.cosines.shape[1])
        for share in STEPS:
            mels = (magnitude * (c @ self.cosines.T).exp()) @ self.basis.T
            error = target - mels.clamp(min=1e-10).log()
            c = c + share * (error @ self.step - c @ self.decay)
        return (c @ self.cosines.T).exp().T

    def refine(self, audio: Tensor, log_mels: Tensor) -> Tensor:
        """Audio (1, N) with its own phases and magnitudes nearer to the log-mels (M, T)."""
        spectrum = self.stft.stft.spectrum(audio)
        magnitude = spectrum.abs()
        ratio = log_mels.exp() / (self.basis @ magnitude).clamp(min=1e-10)
        magnitude = magnitude * (self.basis.T @ ratio) / self.weight
        return retrieve_phases(magnitude, magnitude * spectrum.sgn(), self.stft.stft, REFINEMENTS, MOMENTUM)


def _mel(frequency: Tensor) -> Tensor:
    """Slaney's mel scale: linear below 1 kHz, logarithmic above."""
    return torch.where(
        frequency < 1000, frequency * 3 / 200, 15 + 27 * (frequency.clamp(min=1000) / 1000).log() / math.log(6.4)
    )


def interpolate(values: Tensor, known: Tensor) -> Tensor:
    """Replace values (T,) that are not known by linear interpolation between their neighbours, constant at the ends."""
    places = torch.nonzero(known)[:, 0]
    if not len(places):
        return values
    frames = torch.arange(len(values), device=values.device)
    after = torch.searchsorted(places, frames).clamp(max=len(places) - 1)
    before = (torch.searchsorted(places, frames, right=True) - 1).clamp(min=0)
    left, right = places[before], places[after]
    share = ((frames - left) / (right - left).clamp(min=1)).clamp(0, 1)
    return values[left] * (1 - share) + values[right] * share
