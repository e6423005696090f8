"""WaveGlow trained through its inverse: the noise that is folded in, gradients, spectra, balance, and a voice that gets clearer."""

import math

import pytest
import torch

from common.audio.stft import AudioConfig, TacotronSTFT
from common.fast import Request
from common.training.adversarial import deceive, unmask
from waveglow import sharpening
from waveglow.fast.training import convert_for_training
from waveglow.sharpening import Discriminators, Spectra, SpectralDistance, feature_distance, fold_sigma

SIZES = [
    {},
    {"n_flows": 4, "n_early_every": 2},  # the last flow is also one after which channels leave
    {"n_flows": 1},
    {"n_flows": 6, "n_early_every": 1, "n_early_size": 1},
]
RATE = 22050


@pytest.mark.parametrize("sizes", SIZES[:3])
def test_a_factor_on_the_noise_folds_into_the_weights(small_model, sizes):
    plain, folded = small_model(**sizes), small_model(**sizes)
    fold_sigma(folded, 0.3)
    mels, z = torch.randn(2, 3, 9, dtype=torch.float64), torch.randn(2, 8, 18, dtype=torch.float64)
    wanted = plain.infer(mels, 0.7 * 0.3, z)
    torch.testing.assert_close(folded.infer(mels, 0.7, z), wanted, rtol=1e-10, atol=1e-10)
    assert (folded.infer(mels, 0.7 * 0.3, z) - wanted).abs().max() > 1e-3  # it did change


def test_the_fast_way_has_the_inverse_and_its_gradients(small_model):
    plain, mels, z = (
        small_model(),
        torch.randn(2, 3, 9, dtype=torch.float64),
        torch.randn(2, 8, 18, dtype=torch.float64),
    )
    gradients = []
    for model in (plain, convert_for_training(plain, Request())):
        plain.zero_grad()
        audio = model.infer(mels, 0.9, z)
        (audio * torch.linspace(-1, 1, audio.shape[1], dtype=torch.float64)).sum().backward()
        gradients.append([audio.detach(), *(weight.grad.clone() for weight in plain.parameters())])
    names = ["audio", *dict(plain.named_parameters())]
    for name, slow, fast in zip(names, *gradients, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
        assert slow.abs().max() > 0, name


def test_white_noise_has_its_deviation_as_magnitude_at_each_window():
    noise = 0.05 * torch.randn(1, 2**16, generator=torch.Generator().manual_seed(0))
    for length, spectrum in Spectra()(noise).items():
        inner = spectrum.magnitude[:, 2:-2].double()  # bins at the edges are real
        assert inner.square().mean().sqrt() == pytest.approx(0.05, rel=0.02), length
        assert spectrum.magnitude.shape[1] == length // 2 + 1
    silence = Spectra()(torch.zeros(1, 4096))
    assert all(spectrum.magnitude.max() == pytest.approx(sharpening.FLOOR) for spectrum in silence.values())


def test_the_distance_is_that_of_log_magnitudes_shares_mels_and_lines():
    """Of audio and the same audio twice as loud every log differs by log 2, and every share by half."""
    audio = 0.1 * torch.randn(1, 2**14, generator=torch.Generator().manual_seed(1))
    spectra, distance = Spectra(), SpectralDistance(AudioConfig(), 8)
    real = spectra(audio)
    assert distance(real, real) == 0
    halves = [name for name in sharpening.WINDOWS if name >= sharpening.FINE]
    count = len(sharpening.WINDOWS) + len(halves)
    wanted = (count * (math.log(2) + 1) + 2 * len(sharpening.MEL_WINDOWS) * math.log(2)) / len(sharpening.WINDOWS)
    assert distance(spectra(2 * audio), real) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("n_group", [8, 32])
def test_tones_at_multiples_of_the_rate_of_groups_count(n_group):
    audio = 0.1 * torch.randn(1, 2**14, generator=torch.Generator().manual_seed(1))
    spectra, distance = Spectra(), SpectralDistance(AudioConfig(), n_group)
    times, excess = torch.arange(2**14) / RATE, []
    for cycles in (2.0, 2.5):  # at a multiple, and between two
        tone = 0.02 * torch.sin(2 * math.pi * cycles * RATE / n_group * times)
        excess.append(distance.line_excess(spectra(audio + tone)[2048]))
    plain = distance.line_excess(spectra(audio)[2048])
    assert len(plain) == n_group // 2 - 1
    assert (excess[0] - plain).abs().argmax() == 1 and excess[0][1] - plain[1] > 0.5
    assert (excess[1] - plain).abs().max() < 0.1


def test_discriminators_read_spectra_and_their_features_are_compared_by_size():
    spectra = Spectra()(0.1 * torch.randn(2, 7168, generator=torch.Generator().manual_seed(1)))
    judges = Discriminators()
    wanted = judges(spectra)
    assert [len(features) for features in wanted] == [5] * len(sharpening.JUDGED) and wanted[0][-1].shape[:2] == (2, 1)
    seen = [[1.5 * layer for layer in features[:-1]] + [features[-1] + 7] for features in wanted]  # not the verdict
    assert feature_distance(wanted, seen).item() == pytest.approx(0.5, rel=1e-5)
    halves = torch.full((3, 1, 2), 0.5)
    assert (unmask(halves, halves), deceive(halves)) == (0.5, 0.25)
    assert (unmask(torch.ones(2), torch.zeros(2)), deceive(torch.zeros(2))) == (0, 1)


class Chirps(list):
    """Four clips, of a voice that glides: as MelAudioDataset, with the whole clip as a segment."""

    def __init__(self) -> None:
        self.audio, stft = AudioConfig(), TacotronSTFT()
        length = (sharpening.FRAMES + 2 * sharpening.MARGIN) * 256
        times = torch.arange(length) / RATE
        for pitch in (110, 140, 170, 200):
            phase = 2 * math.pi * (pitch * times + 40 * times**2)
            audio = 0.1 * sum(torch.sin(k * phase) / k for k in range(1, 12))
            super().append((stft.mel_spectrogram(audio[None])[0], audio))

    def __getitem__(self, key: object) -> tuple:
        return super().__getitem__(key.item)

    def collate(self, items: list) -> object:
        from types import SimpleNamespace

        mels, audio = (torch.stack(part) for part in zip(*items, strict=True))
        return SimpleNamespace(mels=mels, audio=audio)


@pytest.mark.slow
def test_training_brings_spectra_closer_and_discriminators_stop_when_they_lead(monkeypatch):
    from waveglow.model import WaveGlow

    monkeypatch.setattr(sharpening, "RATES", (3e-3, 1e-3))
    torch.manual_seed(0)
    sizes = {"n_flows": 2, "n_group": 32, "n_early_size": 8, "upsample_channels": 4}
    model = WaveGlow(**sizes, WN_config={"n_layers": 2, "n_channels": 16, "kernel_size": 3})
    fold_sigma(model, sharpening.TRAINED_SIGMA / sharpening.SIGMA)
    task = sharpening.Sharpening(model, model, {"seed": 3}, Chirps(), 4, 1, torch.device("cpu"), None)
    first = task.step(0, 0.0)
    assert set(first) == {"spectral_loss", "gradient_norm"}
    for number in range(1, 80):
        last = task.step(number, 0.0)
    assert last["spectral_loss"] < 0.8 * first["spectral_loss"]
    judges = task.networks.discriminator
    for balance, learn in ((0.0, True), (10.0, False)):
        before = [weight.clone() for weight in judges.parameters()]
        monkeypatch.setattr(sharpening, "BALANCE", balance)
        losses = task.step(100, sharpening.SPECTRAL_SHARE)
        assert any(not torch.equal(a, b) for a, b in zip(before, judges.parameters(), strict=True)) == learn
    assert losses.keys() == {"spectral_loss", "discriminator_loss", "adversarial_loss", "feature_loss", "gradient_norm"}
    assert task.networks.optimizers[0].param_groups[0]["lr"] == pytest.approx(3e-3 * 0.75)  # a cosine's third
    saved = task.checkpoint()
    assert saved["seed"] == 3 and "likelihood" in saved["sharpened"]
    assert torch.equal(saved["state_dict"]["upsample.bias"], task.networks.average.module.upsample.bias)
