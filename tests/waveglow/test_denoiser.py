import numpy as np
import pytest
import torch
from scipy.signal import get_window

from common.errors import UsageError
from waveglow.denoiser import Denoiser


@pytest.fixture
def model(small_model):
    return small_model(torch.float32)


def frames_of(audio: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Windowed spectra (T, F) of audio reflected at its edges."""
    padded = np.pad(audio, size // 2, mode="reflect")
    starts = range(0, len(padded) - size + 1, hop)
    return np.fft.rfft(np.stack([padded[s : s + size] for s in starts]) * get_window("hann", size))


def denoise(audio: np.ndarray, bias: np.ndarray, strength: float, size: int, hop: int) -> np.ndarray:
    """Spectral subtraction in float64: magnitude and phase apart, then windowed overlap and add."""
    spectra = frames_of(audio, size, hop)
    magnitude = np.maximum(np.abs(spectra) - strength * bias, 0.0)
    frames = np.fft.irfft(magnitude * np.exp(1j * np.angle(spectra)))
    window = get_window("hann", size)
    total, weight = (np.zeros(hop * (len(frames) - 1) + size) for _ in range(2))
    for t, frame in enumerate(frames):
        total[t * hop : t * hop + size] += window * frame
        weight[t * hop : t * hop + size] += window**2
    inside = slice(size // 2, size // 2 + len(audio))
    return total[inside] / weight[inside]


@pytest.mark.parametrize(("size", "hop"), [(1024, 256), (512, 64)])
@pytest.mark.parametrize("strength", [0.01, 1.0, 20.0])
def test_equals_numpy(model, size, hop, strength):
    with torch.no_grad():
        hum = model.infer(torch.zeros(1, 3, 88), sigma=0.0)[0].double().numpy()
    bias = np.abs(frames_of(hum, size, hop)[0])
    assert bias.max() > 1
    audio = 0.1 * np.random.default_rng(0).standard_normal((2, 3000))
    got = Denoiser(model, size, hop, size)(torch.from_numpy(audio), strength)
    want = np.stack([denoise(clip, bias, strength, size, hop) for clip in audio])
    assert np.abs(want - audio).max() > 1e-3 * strength
    np.testing.assert_allclose(got.numpy(), want, atol=2e-6)


def test_the_bias_is_that_of_88_frames_and_strengths_are_not_negative(model, monkeypatch):
    lengths = []
    infer = model.infer
    monkeypatch.setattr(model, "infer", lambda mels, sigma: lengths.append(mels.shape[2]) or infer(mels, sigma=sigma))
    Denoiser(model)
    assert lengths == [88]
    assert not Denoiser(model)(torch.zeros(1, 2000), 1.0).any()
    with pytest.raises(UsageError, match=r"--denoising-strength -0.1: expected 0 or more"):
        Denoiser(model)(torch.zeros(1, 2000), -0.1)


@pytest.mark.parametrize("n_samples", [1, 16, 250, 1000, 1024, 4097])
def test_length_stays_even_below_one_frame(model, n_samples):
    audio = torch.randn(1, n_samples)
    denoised = Denoiser(model)(audio, 0.0)
    torch.testing.assert_close(denoised, audio, atol=1e-5, rtol=0)
