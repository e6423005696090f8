"""The loss in closed form, and the denoiser against spectral subtraction in numpy."""

import numpy as np
import pytest
import torch
from scipy.signal import get_window
from scipy.stats import norm

from common.audio.stft import AudioConfig
from common.errors import UsageError
from waveglow.denoiser import Denoiser
from waveglow.loss_function import WaveGlowLoss
from waveglow.model import WaveGlowOutput
from waveglow.spec import make_denoiser


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
    got = Denoiser(model, size, win_length=size, hop_length=hop)(torch.from_numpy(audio), strength)
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
    transform = make_denoiser(model, AudioConfig(filter_length=2048, hop_length=100, win_length=600)).stft
    assert (transform.filter_length, transform.hop_length, transform.win_length) == (2048, 100, 600)
    with pytest.raises(UsageError, match=r"--denoising-strength -0.1: expected 0 or more"):
        Denoiser(model)(torch.zeros(1, 2000), -0.1)


@pytest.mark.parametrize("n_samples", [1, 250, 1024, 4097])
def test_length_stays_even_below_one_frame(model, n_samples):
    audio = torch.randn(1, n_samples)
    denoised = Denoiser(model)(audio, 0.0)
    torch.testing.assert_close(denoised, audio, atol=1e-5, rtol=0)


def outputs(dtype=torch.float64, scale=1.0) -> WaveGlowOutput:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return WaveGlowOutput(scale * draw(2, 8, 5), [draw(2, 4, 5), draw(2, 3, 5)], [draw(()), draw(())])


@pytest.mark.parametrize("sigma", [1.0, 0.6])
def test_closed_form(sigma):
    out = outputs()
    out.z.requires_grad_()
    terms = WaveGlowLoss(sigma).terms(out, torch.zeros(2, 40))
    constant = 80 * (np.log(sigma) + 0.5 * np.log(2 * np.pi))
    normal = -norm.logpdf(out.z.detach().numpy(), scale=sigma).sum() - constant
    assert terms["likelihood"].item() == pytest.approx(normal / 80, rel=1e-12)
    assert terms["log_s"].item() == pytest.approx(-sum(s.numpy().sum() for s in out.log_s_list) / 80, rel=1e-12)
    assert terms["log_det_W"].item() == pytest.approx(-sum(d.item() for d in out.log_det_W_list) / 80, rel=1e-12)
    loss = WaveGlowLoss(sigma)(out, torch.zeros(2, 40), iteration=7)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(sum(term.item() for term in terms.values()), rel=1e-12)
    loss.backward()
    torch.testing.assert_close(out.z.grad, out.z.detach() / (sigma**2 * 80), atol=1e-14, rtol=0)


def test_is_the_negative_log_density_of_the_audio(small_model):
    """Change of variables, with the determinant of the whole Jacobian of a batch of two."""
    model = small_model(n_flows=3)
    mels = torch.randn(2, 3, 1).double()
    audio = 0.3 * torch.randn(2, 16).double()
    z = model(mels, audio).z.detach().numpy()
    jacobian = torch.autograd.functional.jacobian(lambda a: model(mels, a).z, audio).reshape(32, 32)
    log_density = norm.logpdf(z, scale=0.7).sum() + np.linalg.slogdet(jacobian.numpy())[1]
    constant = np.log(0.7) + 0.5 * np.log(2 * np.pi)
    loss = WaveGlowLoss(sigma=0.7)(model(mels, audio), audio)
    assert loss.item() == pytest.approx(-log_density / 32 - constant, rel=1e-10)


def test_half_precision_outputs_are_summed_in_float32():
    halved = outputs(torch.float16, scale=300.0)  # 300^2 is beyond float16
    same = WaveGlowOutput(halved.z.double(), *([t.double() for t in terms] for terms in halved[1:]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = WaveGlowLoss()(halved, torch.zeros(2, 40))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(WaveGlowLoss()(same, torch.zeros(2, 40)).item(), rel=1e-6)


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan")])
def test_sigma_has_to_be_positive(sigma):
    with pytest.raises(UsageError, match=f"--sigma: {sigma}, expected more than 0"):
        WaveGlowLoss(sigma)
