"""Short-time Fourier transform, its inverse, and the log-mel spectrogram that both models use."""

# B batch, N samples, F frequency bins (filter_length // 2 + 1), T frames, M mels

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import DataError, UsageError
from common.options import is_whole, option

MIN_MAGNITUDE = 1e-5  # floor under the logarithm; part of the format of the mels, hence not a flag
MAX_RATE, MAX_FILTER, MAX_MELS = 1_000_000, 2**20, 10_000  # anything larger is a mistake that would exhaust memory
SILENCE = float(np.log(np.float32(MIN_MAGNITUDE)))  # log-mel of silence
MEL_WIDTH, BREAK = 200 / 3, 1000.0  # Hz: the width of a mel of Slaney's scale, up to the break
MEL_RATIO = np.log(6.4) / 27  # above it, the logarithm of the ratio of frequencies a mel apart


@dataclass(frozen=True, kw_only=True)
class AudioConfig:
    """The sound of a corpus and how it becomes mels: samples in `*_length`, Hz in `sampling_rate` and `mel_f*`.

    Raises:
        UsageError: values that cannot work, all in one message, each by its flag.
    """

    sampling_rate: int = option(22050, "sampling rate in Hz; audio of any other rate is refused", "-sr")
    filter_length: int = option(1024, "samples in each Fourier transform")
    hop_length: int = option(256, "samples from one frame to the next", "--stft-hop-length")
    win_length: int = option(1024, "samples in each window")
    n_mel_channels: int = option(80, "mel filters")
    mel_fmin: float = option(0.0, "lower edge of the lowest mel filter, in Hz")
    mel_fmax: float = option(8000.0, "upper edge of the highest mel filter, in Hz")
    max_wav_value: float = option(32768.0, "ignored: audio of any bit depth is read as fractions of full scale")

    def __post_init__(self) -> None:
        problems = _framing_problems(self.filter_length, self.hop_length, self.win_length)
        if not is_whole(self.sampling_rate) or not 1 <= self.sampling_rate <= MAX_RATE:
            problems.append(f"--sampling-rate {self.sampling_rate}: expected 1 to {MAX_RATE} samples per second")
        if not is_whole(self.n_mel_channels) or not 1 <= self.n_mel_channels <= MAX_MELS:
            problems.append(f"--n-mel-channels {self.n_mel_channels}: expected 1 to {MAX_MELS}")
        if not 0 <= self.mel_fmin < self.mel_fmax:
            problems.append(f"--mel-fmin {self.mel_fmin}: expected at least 0 and below --mel-fmax {self.mel_fmax}")
        half = min(self.sampling_rate, MAX_RATE) / 2
        if not self.mel_fmax <= half:
            problems.append(f"--mel-fmax {self.mel_fmax}: expected at most half of --sampling-rate, {half}")
        if not self.max_wav_value > 0:
            problems.append(f"--max-wav-value {self.max_wav_value}: expected a positive number")
        if problems:
            raise UsageError("\n".join(problems))


def _framing_problems(filter_length: int, hop_length: int, win_length: int) -> list[str]:
    """List why frames of these lengths cannot cover the audio, one line per flag."""
    lengths = {"filter": filter_length, "win": win_length, "hop": hop_length}
    problems = [
        f"--{name}-length {length!r}: expected a whole number of samples"
        for name, length in lengths.items()
        if not is_whole(length)
    ]
    if problems:
        return problems
    if not 2 <= filter_length <= MAX_FILTER or filter_length % 2:
        problems.append(f"--filter-length {filter_length}: expected an even number of samples, at most {MAX_FILTER}")
    if not 2 <= win_length <= filter_length:
        problems.append(f"--win-length {win_length}: expected 2 to --filter-length {filter_length} samples")
    # Hann windows that overlap by less than half leave samples with almost no weight, which no inverse can recover.
    if not 1 <= hop_length <= win_length // 2:
        problems.append(f"--hop-length {hop_length}: expected 1 to half of --win-length, {win_length // 2} samples")
    return problems


class STFT(nn.Module):
    """Spectrum of audio and back: periodic Hann window, frames centred on multiples of the hop, edges reflected.

    Audio of N samples has N // hop_length + 1 frames. Always computes in float32, also under autocast.

    Raises:
        UsageError: lengths that cannot work, each by its flag.
    """

    window: Tensor

    def __init__(self, filter_length: int = 1024, hop_length: int = 256, win_length: int = 1024) -> None:
        super().__init__()
        if problems := _framing_problems(filter_length, hop_length, win_length):
            raise UsageError("\n".join(problems))
        self.filter_length = filter_length
        self.hop_length = hop_length
        self.win_length = win_length
        self.register_buffer("window", torch.hann_window(win_length, periodic=True), persistent=False)

    def spectrum(self, audio: Tensor) -> Tensor:
        """Complex spectrum (B, F, T) of audio (B, N).

        Raises:
            DataError: audio that is not (B, N), or too short for its edges to be reflected.
        """
        if audio.dim() != 2:
            raise DataError(f"audio of shape {tuple(audio.shape)}, expected (batch, samples)")
        shortest = self.filter_length // 2 + 1
        if audio.shape[1] < shortest:
            raise DataError(
                f"audio of {audio.shape[1]} samples, expected at least {shortest} for a filter length of "
                f"{self.filter_length}: drop the clip or lengthen it with silence"
            )
        with torch.autocast(audio.device.type, enabled=False):
            return torch.stft(
                audio.float(),
                self.filter_length,
                self.hop_length,
                self.win_length,
                self.window.float(),
                center=True,
                pad_mode="reflect",
                return_complex=True,
            )

    def from_spectrum(self, spectrum: Tensor, length: int | None = None) -> Tensor:
        """Audio (B, N) whose spectrum is closest to the given one (B, F, T) (Griffin and Lim, 1984, eq. 6).

        Args:
            spectrum: complex, (B, F, T).
            length: N, at most T * hop_length; by default (T - 1) * hop_length.
        """
        size, hop, n_frames = self.filter_length, self.hop_length, spectrum.shape[2]
        overlap = -(-size // hop)  # frames over a sample; torch.istft adds them up in twice the time
        before = (size - self.win_length) // 2
        window = F.pad(self.window.float(), (before, overlap * hop - self.win_length - before))
        with torch.autocast(spectrum.device.type, enabled=False):
            frames = F.pad(torch.fft.irfft(spectrum.transpose(1, 2), size), (0, overlap * hop - size)).mul_(window)
            total, weight = (
                _add_frames(values.unflatten(2, (overlap, hop)))
                for values in (frames, window.square().expand(1, n_frames, -1))
            )
        first, n_samples = size // 2, (n_frames - 1) * hop if length is None else length
        inside = slice(first, first + n_samples)
        return total[:, inside] / weight[:, inside]

    def transform(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        """Magnitude and phase in radians, (B, F, T) each, of audio (B, N). Raises what `spectrum` raises."""
        spectrum = self.spectrum(audio)
        return spectrum.abs(), spectrum.angle()

    def inverse(self, magnitude: Tensor, phase: Tensor, length: int | None = None) -> Tensor:
        """Audio (B, N) from magnitude and phase in radians, (B, F, T) each; `length` as in `from_spectrum`."""
        return self.from_spectrum(torch.polar(magnitude.float(), phase.float()), length)


def _add_frames(frames: Tensor) -> Tensor:
    """Add up frames (B, T, k, hop), each a hop after the last one: (B, (T + k - 1) * hop)."""
    total = frames.new_zeros(len(frames), frames.shape[1] + frames.shape[2] - 1, frames.shape[3])
    for number, parts in enumerate(frames.unbind(2)):
        total[:, number : number + frames.shape[1]] += parts
    return total.flatten(1)


class TacotronSTFT(nn.Module):
    """Log-mel spectrogram: magnitude through Slaney mel filters of unit area, log(max(x, 1e-5)).

    Raises:
        UsageError: values that cannot work, each by its flag.
    """

    mel_basis: Tensor

    def __init__(
        self,
        filter_length: int = AudioConfig.filter_length,
        hop_length: int = AudioConfig.hop_length,
        win_length: int = AudioConfig.win_length,
        n_mel_channels: int = AudioConfig.n_mel_channels,
        sampling_rate: int = AudioConfig.sampling_rate,
        mel_fmin: float = AudioConfig.mel_fmin,
        mel_fmax: float = AudioConfig.mel_fmax,
    ) -> None:
        super().__init__()
        self.config = AudioConfig(
            sampling_rate=sampling_rate,
            filter_length=filter_length,
            hop_length=hop_length,
            win_length=win_length,
            n_mel_channels=n_mel_channels,
            mel_fmin=mel_fmin,
            mel_fmax=mel_fmax,
        )
        self.stft = STFT(filter_length, hop_length, win_length)
        self.register_buffer("mel_basis", mel_filters(self.config), persistent=False)

    @classmethod
    def from_config(cls, config: AudioConfig) -> TacotronSTFT:
        """Build the transform of a corpus."""
        names = [field.name for field in fields(AudioConfig)]  # a model's config may have more
        names.remove("max_wav_value")  # of no effect
        return cls(**{name: getattr(config, name) for name in names})

    def mel_spectrogram(self, audio: Tensor) -> Tensor:
        """Log-mels (B, M, T), float32, of audio (B, N) in [-1, 1]; T = N // hop_length + 1.

        Raises:
            DataError: values out of [-1, 1] or not numbers, audio that is not (B, N) or too short.
        """
        magnitude = self.stft.spectrum(audio).abs()
        peak = audio.detach().abs().max().item()  # host sync, once per call
        if not peak <= 1.0:  # also true for NaN
            raise DataError(f"audio peaks at {peak:g}, expected values in [-1, 1]")
        with torch.autocast(audio.device.type, enabled=False):
            return torch.matmul(self.mel_basis.float(), magnitude).clamp(min=MIN_MAGNITUDE).log()


def mel_filters(config: AudioConfig) -> Tensor:
    """Mel filters (M, F): triangles on Slaney's scale (linear below 1 kHz, logarithmic above), each of unit area.

    Those of librosa.filters.mel, whose import takes a second, bit for bit.
    """
    low, high = _mels_from_hz(np.array([config.mel_fmin, config.mel_fmax]))
    edges = _hz_from_mels(np.linspace(low, high, config.n_mel_channels + 2))[:, None]  # (M + 2, 1)
    widths, distances = np.diff(edges, axis=0), edges - np.fft.rfftfreq(config.filter_length, 1 / config.sampling_rate)
    rising, falling = -distances[:-2] / widths[:-1], distances[2:] / widths[1:]
    basis = np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
    if not basis.any(axis=1).all():
        where = f"{config.n_mel_channels} from {config.mel_fmin:g} to {config.mel_fmax:g} Hz"
        warnings.warn(
            f"some mel filters are empty, with {where} and --filter-length {config.filter_length}", stacklevel=2
        )
    return torch.from_numpy((basis * (2 / (edges[2:] - edges[:-2]))).astype(np.float32))


def _mels_from_hz(hz: np.ndarray) -> np.ndarray:
    return np.where(hz < BREAK, hz / MEL_WIDTH, BREAK / MEL_WIDTH + np.log(np.maximum(hz, BREAK) / BREAK) / MEL_RATIO)


def _hz_from_mels(mels: np.ndarray) -> np.ndarray:
    above = mels - BREAK / MEL_WIDTH
    return np.where(above < 0, mels * MEL_WIDTH, BREAK * np.exp(MEL_RATIO * above))
