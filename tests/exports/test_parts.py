"""The parts that differ from the plain models: the denoiser by convolutions, and WaveGlow with its weights folded."""

import pytest
import torch

from common.audio.stft import AudioConfig
from common.errors import DataError
from exports.parts import ConvDenoiser, fold, waveglow_parts
from tests.exports.conftest import vocoder_model
from waveglow.denoiser import Denoiser


@pytest.mark.parametrize("sizes", [(256, 64, 256), (256, 64, 200), (250, 50, 250)], ids=str)
@pytest.mark.parametrize("n_samples", [256, 1000, 64 * 17])
@torch.no_grad()
def test_the_denoiser_equals_the_one_with_complex_transforms(sizes: tuple[int, int, int], n_samples: int) -> None:
    denoiser = Denoiser(vocoder_model(), *sizes)
    audio = torch.randn(3, n_samples)
    for strength in (0.0, 0.3, 2.0):
        outputs = ConvDenoiser(denoiser)(audio, torch.tensor(strength))
        torch.testing.assert_close(outputs, denoiser(audio, strength), rtol=0, atol=1e-4)


@torch.no_grad()
def test_folding_changes_nothing_but_rounding() -> None:
    model = vocoder_model()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    mels, z = torch.randn(2, 9, 13), torch.randn(2, 8, 13 * 8)
    torch.testing.assert_close(fold(model).infer(mels, 0.8, z), model.infer(mels, 0.8, z), rtol=0, atol=1e-5)
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())


def test_a_hop_that_is_no_multiple_of_the_group_is_refused() -> None:
    model = vocoder_model(n_group=6, n_early_every=4)  # 64 samples a frame are ten groups and four samples
    audio = AudioConfig(n_mel_channels=5, filter_length=256, hop_length=64, win_length=256)
    with pytest.raises(DataError, match="the hop of 64 samples is not a multiple of the group of 6"):
        next(iter(waveglow_parts(model, audio)))
