"""The STFT and the log-mels against scipy, librosa and the formula in float64."""

import math

import librosa
import numpy as np
import pytest
import scipy.signal
import torch

from common.audio.audio_processing import NORMALIZATIONS, normalize
from common.audio.silence import DEPTH, FRAME, sound_bounds
from common.audio.stft import STFT, AudioConfig, TacotronSTFT, mel_filters
from common.errors import DataError, UsageError


def sweep(samples: int) -> np.ndarray:
    """A chirp from 60 Hz to 9 kHz over a noise floor, float64, below full scale."""
    time = np.arange(samples) / 22050
    noise = np.random.default_rng(0).normal(scale=0.01, size=samples)
    return 0.7 * scipy.signal.chirp(time, 60, time[-1], 9000) + noise


def relative_error(got: torch.Tensor, want: np.ndarray) -> float:
    assert tuple(got.shape) == want.shape
    return float(np.abs(got.numpy() - want).max() / np.abs(want).max())


def as_batch(audio: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(audio).float()[None]


def test_transform_is_the_definition() -> None:
    audio = sweep(2000)
    reflected = np.concatenate([audio[512:0:-1], audio])
    n = np.arange(1024)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / 1024)
    for frame in (0, 1, 3):
        piece = reflected[frame * 256 : frame * 256 + 1024] * window
        want = np.exp(-2j * np.pi * np.outer(np.arange(513), n) / 1024) @ piece
        magnitude, phase = (part[0, :, frame] for part in STFT().transform(as_batch(audio)))
        assert relative_error(magnitude, np.abs(want)) < 1e-6
        assert relative_error(torch.polar(magnitude, phase), want) < 1e-6


@pytest.mark.parametrize(("size", "hop", "window"), [(1024, 256, 800), (1024, 300, 1024), (512, 100, 250)])
def test_windows_shorter_than_the_transform_and_hops_that_do_not_divide_it_have_an_inverse(
    size: int, hop: int, window: int
) -> None:
    stft, audio = STFT(size, hop, window), as_batch(sweep(hop * 40))
    magnitude, phase = stft.transform(audio)
    assert torch.allclose(stft.inverse(magnitude, phase), audio, atol=2e-6)


@pytest.mark.parametrize("samples", [513, 1023, 1024, 22050])
def test_inverse_gives_the_audio_back(samples: int) -> None:
    stft = STFT()
    audio = torch.stack([as_batch(sweep(samples))[0], torch.rand(samples) - 0.5])
    magnitude, phase = stft.transform(audio)
    assert magnitude.shape == phase.shape == (2, 513, samples // 256 + 1)
    assert torch.allclose(stft.inverse(magnitude, phase, length=samples), audio, atol=2e-6)
    assert stft.inverse(magnitude, phase).shape == (2, samples // 256 * 256)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling_rate": 16000, "n_mel_channels": 40, "mel_fmin": 50.0, "mel_fmax": 7600.0, "win_length": 750},
        {"filter_length": 2048, "hop_length": 300, "win_length": 1200, "n_mel_channels": 100, "mel_fmax": 11025.0},
    ],
)
def test_log_mels_are_librosas(options: dict) -> None:
    config = AudioConfig(**options)
    audio = sweep(6000)
    filters = {
        "sr": config.sampling_rate, "n_fft": config.filter_length, "n_mels": config.n_mel_channels,
        "fmin": config.mel_fmin, "fmax": config.mel_fmax,
    }  # fmt: skip
    np.testing.assert_array_equal(mel_filters(config).numpy(), librosa.filters.mel(**filters))
    lengths = {"hop_length": config.hop_length, "win_length": config.win_length}
    mel = librosa.feature.melspectrogram(y=audio, **filters, **lengths, power=1.0, pad_mode="reflect")
    got = TacotronSTFT.from_config(config).mel_spectrogram(as_batch(audio))[0]
    assert got.shape == (config.n_mel_channels, 6000 // config.hop_length + 1)
    assert np.abs(got.numpy() - np.log(np.maximum(mel, 1e-5))).max() < 1e-4


def test_silence_is_the_floor_full_scale_is_in_range_and_nothing_goes_into_checkpoints() -> None:
    mel = TacotronSTFT().mel_spectrogram(torch.zeros(1, 2048))
    assert torch.equal(mel, torch.full((1, 80, 9), 1e-5).log())
    audio = torch.ones(1, 1024)
    audio[:, ::2] = -1.0
    assert torch.isfinite(TacotronSTFT().mel_spectrogram(audio)).all()
    assert not TacotronSTFT().state_dict()


def test_log_mels_stay_float32_under_autocast_and_half_and_gradients_reach_the_audio() -> None:
    audio, stft = as_batch(sweep(600)).requires_grad_(), TacotronSTFT()
    want = stft.mel_spectrogram(audio)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(stft.mel_spectrogram(audio), want)
    rounded = TacotronSTFT().half().mel_spectrogram(audio)  # a parent's half() rounds the filters, no more
    assert rounded.dtype == torch.float32
    assert (rounded - want).abs().mean() < 1e-2
    (gradient,) = torch.autograd.grad(want.sum(), audio)
    step = torch.zeros_like(audio).index_fill_(1, torch.tensor([300]), 1e-3)
    with torch.no_grad():
        slope = (stft.mel_spectrogram(audio + step) - stft.mel_spectrogram(audio - step)).double().sum() / 2e-3
    assert float(gradient[0, 300]) == pytest.approx(float(slope), rel=0.02)


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        *((torch.tensor([[0.0] * 1024, [peak] * 1024]), r"audio peaks at .*, expected values in \[-1, 1\]")
          for peak in (1.0001, -1.5, math.nan, math.inf)),
        (torch.zeros(1, 512), "audio of 512 samples, expected at least 513 for a filter length of 1024"),
        (torch.zeros(1, 0), "audio of 0 samples"),
        (torch.zeros(2048), r"shape \(2048,\), expected \(batch, samples\)"),
    ],
)  # fmt: skip
def test_audio_that_has_no_mels(audio: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TacotronSTFT().mel_spectrogram(audio)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hop_length": 0}, "--hop-length 0: expected 1 to half of --win-length, 512 samples"),
        ({"win_length": 2048}, "--win-length 2048: expected 2 to --filter-length 1024"),
        ({"filter_length": 1023, "win_length": 1000}, "--filter-length 1023: expected an even number"),
        *(({"sampling_rate": rate}, f"--sampling-rate {rate}: expected 1 to 1000000") for rate in (0, 10**15)),
        ({"sampling_rate": 8000}, "--mel-fmax 8000.0: expected at most half of --sampling-rate, 4000.0"),
        ({"n_mel_channels": 0}, "--n-mel-channels 0: expected 1 to 10000"),
        ({"mel_fmin": 8000.0}, "--mel-fmin 8000.0: expected at least 0 and below --mel-fmax 8000.0"),
        ({"mel_fmax": float("nan")}, "--mel-fmax nan"),
        ({"max_wav_value": 0.0}, "--max-wav-value 0.0: expected a positive number"),
        ({"hop_length": 0, "n_mel_channels": 0, "mel_fmax": 3e4}, "(?s)^--hop-len.*\n--n-mel-channels.*\n--mel-fmax"),
    ],
)
def test_values_that_cannot_work_are_named_by_flag(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AudioConfig(**options)
    with pytest.raises(UsageError, match="--win-length 4096"):
        STFT(1024, 256, 4096)


@pytest.mark.gpu
def test_gpu_agrees_with_cpu() -> None:
    audio = as_batch(sweep(22050))
    want = TacotronSTFT().mel_spectrogram(audio)
    with torch.autocast("cuda", torch.float16):
        got = TacotronSTFT().cuda().mel_spectrogram(audio.cuda())
        stft = STFT().cuda()
        back = stft.inverse(*stft.transform(audio.cuda()), length=22050)
    assert got.dtype == back.dtype == torch.float32
    assert (got.cpu() - want).abs().max() < 1e-3
    assert torch.allclose(back.cpu(), audio, atol=5e-6)


RATE = 8000
SIZE = 80  # samples of a frame of 10 ms


def frames(*decibels: float) -> np.ndarray:
    """Frames of a square wave at these levels: the RMS of a square wave is its amplitude."""
    wave = np.where(np.arange(SIZE) % 8 < 4, 1.0, -1.0)
    return np.concatenate([10 ** (level / 20) * wave for level in decibels]).astype(np.float32)


@pytest.mark.parametrize("level", [0.0, -30.0])
@pytest.mark.parametrize(
    ("decibels", "first", "last"),
    [
        ((0, 0, 0), 0, 3),
        ((-np.inf, 0, -np.inf), 1, 2),
        ((-40.1, -40.1, 0, -39.9, -40.1), 2, 4),  # 40 dB below the loudest is the limit
        ((-39.9, -60, 0, -60, -39.9, -50), 0, 5),  # silence between sounds is inside
        ((-20, 0, -6, -45), 0, 3),
    ],
)
def test_bounds_are_those_of_frames_above_the_threshold(decibels, first: int, last: int, level: float) -> None:
    assert (FRAME, DEPTH) == (0.01, 40.0)
    samples, time = frames(*(level + each for each in decibels)), np.arange(len(decibels) * SIZE)
    for offset in (0, 0.005, -0.1, 0.1 * (time // SIZE), 1e-6 * time):  # none, constant, moving in steps, drifting
        assert sound_bounds(samples + offset, RATE) == (first * SIZE, last * SIZE)


@pytest.mark.parametrize("offset", [0.0, 0.005, -1.0])
def test_a_short_last_frame_counts_and_a_constant_has_no_sound(offset: float) -> None:
    samples = np.concatenate([frames(0, -50), frames(-39)[:7]])
    assert sound_bounds(samples, RATE) == (0, 2 * SIZE + 7)
    assert sound_bounds(np.full(500, offset, np.float32), RATE) == (0, 0)


def speech_like(level: float) -> torch.Tensor:
    """Noise whose level falls along the clip: a peak about seven times the root mean square."""
    noise = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    return level * noise * torch.linspace(1, 0.01, 20_000) ** 2 / 4


@pytest.mark.parametrize("level", [0.01, 0.3, 5.0])
def test_peak_scales_to_full_scale_and_loudness_to_one_root_mean_square(level: float) -> None:
    audio = speech_like(level)
    scaled = normalize(audio, "peak")
    assert scaled.abs().max() == pytest.approx(1.0, abs=1e-6) and scaled.abs().max() <= 1
    scaled = normalize(audio, "loudness").double().numpy()
    assert 20 * math.log10(np.sqrt((scaled**2).mean())) == pytest.approx(-20, abs=0.01)
    assert np.corrcoef(scaled, audio.numpy())[0, 1] == pytest.approx(1)
    scaled = normalize(audio + 0.1 * audio.abs().max(), "loudness").double().numpy()  # an offset is no sound
    assert 20 * math.log10(scaled.std()) == pytest.approx(-20, abs=0.01)
    # two clicks would need a gain of hundreds: the larger one is at full scale, and the smaller one keeps its share
    clicks = torch.zeros(22050)
    clicks[100], clicks[200] = -0.02, 0.01
    assert normalize(clicks, "loudness")[[100, 200]].tolist() == pytest.approx([-1, 0.5])


@pytest.mark.parametrize("mode", NORMALIZATIONS)
def test_silence_and_broken_audio_stay(mode: str) -> None:
    for audio in (torch.zeros(0), torch.zeros(5), torch.tensor([0.1, math.nan]), torch.tensor([0.1, math.inf])):
        torch.testing.assert_close(normalize(audio, mode), audio, equal_nan=True)
    audio = speech_like(0.3)
    assert (normalize(audio, mode) is audio) == (mode == "none")
