"""Upsampling and condition layers as one product: the same numbers as one after the other, in each number format."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy.io import wavfile
from torch import Tensor, nn

from common.audio.stft import SILENCE
from common.errors import UsageError
from common.kernels.int8 import Levels, can_multiply
from common.precision import half_dtype
from tests.recipe import succeed, trained
from waveglow import streaming
from waveglow.composition import Upsampling, frames_of, windows
from waveglow.int8_layers import items_in_levels
from waveglow.streaming import stream

needs_vnni = pytest.mark.skipif(not can_multiply(torch.device("cpu")), reason="the CPU has no VNNI instructions")


def noise(made: Tensor, want: Tensor) -> float:
    """The error's norm over the result's."""
    return ((made - want).norm() / want.norm()).item()


@pytest.mark.parametrize("frames", [1, 2, 9])
@pytest.mark.parametrize(("hop", "kernel"), [(16, 64), (16, 16), (16, 50), (8, 9)])
def test_the_product_is_the_transposed_convolution(hop: int, kernel: int, frames: int) -> None:
    upsample = nn.ConvTranspose1d(3, 5, kernel, stride=hop).double()
    mels = torch.randn(2, 3, frames, dtype=torch.float64)
    product = Upsampling.of(upsample, 8, torch.float64)
    heard = windows(mels, frames_of(upsample))
    made = torch.einsum("pik,btk->btpi", product.weight, heard) + product.bias
    grouped = upsample(mels)[:, :, : frames * hop].unflatten(2, (frames, hop // 8, 8))  # (B, U, T, P, g)
    want = grouped.permute(0, 2, 3, 1, 4).flatten(3)
    torch.testing.assert_close(made, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "config", [{}, {"hop_length": 24, "upsample_kernel_size": 50}, {"upsample_channels": 2}], ids=str
)
@pytest.mark.parametrize("frames", [1, 7, 30])
def test_the_sound_is_the_same(
    small_model, monkeypatch: pytest.MonkeyPatch, frames: int, config: dict[str, int]
) -> None:
    mels = torch.randn(2, 3, frames, dtype=torch.float64)
    plain, composed = small_model(**config), small_model(**config).prepare(False, precompute=True)
    plain.use_plain()
    z = torch.randn(2, 8, frames * plain.hop_length // 8, dtype=torch.float64)
    want = plain.infer(mels, z=z).detach()
    torch.testing.assert_close(composed.infer(mels, z=z), want, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr("waveglow.gated_layers.BLOCK", 5)  # rows of two frames, or less than one
    torch.testing.assert_close(composed.infer(mels, z=z), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("hop", "kernel"), [(16, 64), (20, 60), (24, 25), (9, 9), (3, 10)])
@pytest.mark.parametrize("frames", [1, 7, 30])
def test_a_prepared_model_upsamples_the_same(
    small_model, monkeypatch: pytest.MonkeyPatch, frames: int, hop: int, kernel: int
) -> None:
    """By a product, where a frame ends within a group too; beside half precision, in float32 still."""
    model = small_model(hop_length=hop, upsample_kernel_size=kernel, upsample_channels=2)
    mels, n_samples = torch.randn(2, 3, frames, dtype=torch.float64), frames * hop // 8 * 8
    want = model._condition(mels, n_samples)
    monkeypatch.delattr(model.upsample.__class__, "forward")
    made = model.prepare(False)._condition(mels, n_samples)
    assert made.shape == (2, 16, n_samples // 8)
    torch.testing.assert_close(made, want, rtol=1e-12, atol=1e-12)
    with torch.autocast("cpu", torch.bfloat16):
        made = model.float()._condition(mels.float(), n_samples)
    assert made.dtype == torch.float32
    torch.testing.assert_close(made.double(), want, rtol=1e-5, atol=1e-5)


def test_half_precision_is_as_near_as_without(small_model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    mels, z = torch.randn(2, 3, 30), torch.randn(2, 8, 60)
    want = small_model(torch.float32).infer(mels, z=z).detach()
    rounded = [small_model(torch.float32).prepare(True, precompute=precompute) for precompute in (False, True)]
    assert {weight.dtype for weight in rounded[1].WN.parameters()} == {torch.bfloat16}
    without, composed = (noise(model.infer(mels, z=z), want) for model in rounded)
    assert 0 < composed < 2 * without < 0.1


@needs_vnni
def test_8_bits_are_as_near_as_without(small_model, monkeypatch: pytest.MonkeyPatch) -> None:
    mels, z = torch.randn(2, 3, 30), torch.randn(2, 8, 60)
    want = small_model(torch.float32).infer(mels, z=z).detach()
    rounded = [
        small_model(torch.float32).prepare(False, int8=True, precompute=precompute) for precompute in (False, True)
    ]
    assert {weight.dtype for weight in rounded[1].WN.parameters()} == {
        half_dtype(torch.device("cpu"), True) or torch.float32
    }
    without, composed = (model.infer(mels, z=z) for model in rounded)
    assert 0 < noise(composed, want) < 2 * noise(without, want) < 0.2
    alone = rounded[1].infer(mels[:1], z=z[:1])
    torch.testing.assert_close(alone, composed[:1], rtol=0, atol=1e-6)
    monkeypatch.setattr("waveglow.int8_layers.BLOCK", 5)
    assert noise(rounded[1].infer(mels, z=z), composed) < 1e-2 * noise(composed, want)


@needs_vnni
def test_8_bits_of_mels_are_around_their_middle(small_model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between silence and 0 nothing is further from there than half: half the step, where a window begins before the clip too."""
    mels = SILENCE * torch.rand(1, 3, 30)
    heard = windows(mels, 4)
    weight = small_model(torch.float32).prepare(False, precompute=True).WN[0].cond_layers[1].weight[:, :, 0]
    want = (heard[0] @ weight.t()).view(60, 12) * torch.tensor([2.0] * 6 + [1.0] * 6)  # signals are doubled
    errors = []
    for silence in (SILENCE, 0.0):
        monkeypatch.setattr("waveglow.wn.SILENCE", silence)
        in_8_bits = small_model(torch.float32).prepare(False, int8=True, precompute=True).WN[0].in_8_bits
        levels, steps = items_in_levels(heard, in_8_bits.centre)
        made = torch.zeros(30, 24)
        in_8_bits.layers[1].condition.add_to(made, Levels(levels[0], steps.item()))
        errors.append(noise(made.view(60, 12), want))
    assert 0 < errors[0] < 0.8 * errors[1] < 0.02


def test_parts_are_the_whole(small_model, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model().prepare(False, precompute=True)
    monkeypatch.setattr(streaming, "N_REACHES", model.config.n_flows)
    mels = torch.randn(1, 3, 61, dtype=torch.float64)
    torch.manual_seed(7)
    whole = model.infer(mels, sigma=0.6)
    torch.manual_seed(7)
    parts = list(stream(model, mels, 0.6, lambda sound: sound))
    assert len(parts) > 2
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-12, atol=1e-12)


def test_a_frame_of_no_whole_number_of_groups(small_model) -> None:
    model = small_model(hop_length=20, upsample_kernel_size=60)
    with pytest.raises(UsageError, match="--precompute: a frame of 20 samples is groups of 8 and 4 more"):
        model.prepare(False, precompute=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("half", "bound"), [(False, 1e-3), (True, 0.05)])
def test_it_is_plain_on_a_gpu(small_model, half: bool, bound: float) -> None:
    mels, z = torch.randn(2, 3, 30, device="cuda"), torch.randn(2, 8, 60, device="cuda")
    want = small_model(torch.float32).cuda().infer(mels, z=z).detach()
    made = small_model(torch.float32).cuda().prepare(half, precompute=True).infer(mels, z=z)
    assert noise(made, want) < bound


def test_the_command_speaks_the_same(tmp_path: Path) -> None:
    phrase = tmp_path / "phrases.txt"
    phrase.write_text("Good morning, it is seven o'clock.\n")
    words = ["-i", phrase, "--cpu", "--tacotron2", trained("Tacotron2"), "--waveglow", trained("WaveGlow")]
    sounds = []
    for name, more in (("plain", []), ("composed", ["--precompute"])):
        succeed("inference.py", *words, "-o", tmp_path / name, *more)
        sounds.append(wavfile.read(tmp_path / name / "audio_0.wav")[1].astype(int))
    assert abs(sounds[1]).max() > 100
    assert abs(sounds[1] - sounds[0]).max() <= 1  # of 32,768 levels
