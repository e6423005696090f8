"""Source and filter against closed forms."""

import math

import pytest
import torch

from common.audio.stft import SILENCE, TacotronSTFT
from pulse_noise.synthesis import PulseNoiseSynthesis, Source, interpolate, make_source, pulse_train

RATE, HOP = 22050, 256


def place_of(pulse: torch.Tensor) -> float:
    """The place of a single pulse (n,): its group delay, from the phase of the lowest harmonic."""
    n = len(pulse)
    return -float(torch.angle(torch.fft.fft(pulse.double())[1])) * n / (2 * math.pi) % n


def test_a_constant_pitch_is_a_line_spectrum_at_its_multiples() -> None:
    pulses = pulse_train(torch.full((RATE,), 100.0), RATE)  # one second: bins of 1 Hz
    spectrum = torch.fft.rfft(pulses.double() * torch.hann_window(RATE, dtype=torch.float64)).abs()[:8000]
    frequencies = torch.arange(8000)
    distance = (frequencies + 50) % 100 - 50
    lines = spectrum[(distance == 0) & (frequencies > 0)]
    assert lines.max() / lines.min() < 1.05  # all harmonics are equally strong
    assert spectrum[distance.abs() > 3].max() < 2e-3 * lines.min()


@pytest.mark.parametrize("f0", [80.0, 123.4, 441.0])
def test_pulses_have_unit_power(f0: float) -> None:
    rising = f0 * torch.linspace(1, 4, 4 * RATE)
    for f0s in (torch.full((4 * RATE,), f0), rising):
        power = pulse_train(f0s, RATE).square()
        assert [part.mean().item() for part in power.chunk(2)] == pytest.approx([1, 1], abs=0.04)


def test_the_pulses_of_a_chirp_lie_at_the_integral_of_its_frequency() -> None:
    start, slope = 60.0, 90.0  # Hz, Hz a second
    time = torch.arange(RATE, dtype=torch.float64) / RATE
    pulses = pulse_train(start + slope * time, RATE)
    # start t + slope t^2 / 2 = k - 1/2, solved for t
    for k in range(2, 100, 9):
        place = RATE * (math.sqrt(start**2 + 2 * slope * (k - 0.5)) - start) / slope
        first = round(place) - 60
        assert first + place_of(pulses[first : first + 120]) == pytest.approx(place, abs=0.02)


def test_unknown_values_are_interpolated_and_constant_at_the_ends() -> None:
    values = torch.tensor([9.0, 1.0, 9.0, 9.0, 4.0, 9.0])
    known = torch.tensor([False, True, False, False, True, False])
    torch.testing.assert_close(interpolate(values, known), torch.tensor([1.0, 1.0, 2.0, 3.0, 4.0, 4.0]))
    assert interpolate(values, torch.zeros(6, dtype=torch.bool)) is values


def clip(n_mels: int = 80) -> tuple[PulseNoiseSynthesis, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A synthetic voice: pulses and noise through two resonances. The synthesis, log-mels (M, T), pitch and voicing (T,)."""
    stft = TacotronSTFT(n_mel_channels=n_mels)
    frames = 60
    pitch = 120 * (1 + 0.2 * torch.sin(torch.arange(frames) / 10))
    voicing = (torch.arange(frames) % 40 < 30).float()
    noise = torch.randn((frames - 1) * HOP, generator=torch.Generator().manual_seed(1))
    source = make_source(pitch.log(), voicing, noise, RATE, HOP)
    mixed = source.voicing.sqrt() * source.pulses + (1 - source.voicing).sqrt() * source.noise
    frequencies = torch.linspace(0, RATE / 2, 513)
    gain = sum(1 / (1 + ((frequencies - centre) / width) ** 2) for centre, width in ((700, 200), (2400, 400)))
    voice = stft.stft.from_spectrum(stft.stft.spectrum(mixed[None]) * (0.03 * gain[:, None]))
    return PulseNoiseSynthesis(stft), stft.mel_spectrogram(voice.clamp(-1, 1))[0], pitch, voicing


@pytest.mark.parametrize("n_mels", [48, 80])
def test_the_mels_of_the_audio_are_the_given_ones(n_mels: int) -> None:
    synthesis, mels, pitch, voicing = clip(n_mels)
    noise = torch.randn((mels.shape[1] - 1) * HOP, generator=torch.Generator().manual_seed(2))
    audio = synthesis(mels, make_source(pitch.log(), voicing, noise, RATE, HOP))
    error = (synthesis.stft.mel_spectrogram(audio[None].clamp(-1, 1))[0] - mels).abs()
    assert audio.shape == noise.shape and error.mean() < 0.2


def test_silence_stays_silence() -> None:
    synthesis, mels, pitch, voicing = clip()
    noise = torch.randn((mels.shape[1] - 1) * HOP)
    audio = synthesis(torch.full_like(mels, SILENCE), make_source(pitch.log(), voicing, noise, RATE, HOP))
    assert audio.abs().max() < 1e-3


@pytest.mark.parametrize("voiced_half", [0.0, 1.0])
def test_the_expected_level_is_that_of_the_mixture(voiced_half: float) -> None:
    synthesis, _, pitch, _ = clip()
    n = (len(pitch) - 1) * HOP
    voicing = (torch.arange(n) > n // 2).float() * voiced_half
    levels, magnitudes = [], []
    for number in range(40):
        noise = torch.randn(n, generator=torch.Generator().manual_seed(number))
        voiced, unvoiced, level = synthesis.spectra(Source(torch.zeros(n), noise, voicing))
        levels.append(level[2:-2, 5:-5])
        magnitudes.append((voiced + unvoiced).abs()[2:-2, 5:-5])
    # |E| of complex Gaussian noise of power s is sqrt(pi / 4 s) in the mean
    found, wanted = (torch.stack(values)[:, :60, :26].mean((0, 1)) for values in (magnitudes, levels))  # of each frame
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0)
    assert (torch.stack(magnitudes).mean() / torch.stack(levels).mean()).item() == pytest.approx(1, abs=0.01)
