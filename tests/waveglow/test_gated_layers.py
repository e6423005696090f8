"""WN's layers with channels innermost and their own backward: against the plain layers and autograd, and by slopes."""

from __future__ import annotations

import pytest
import torch

from common import precision
from waveglow.config import WNConfig
from waveglow.convolution import FOUR
from waveglow.gated_layers import GatedLayers, Inputs, gated_layers
from waveglow.model import WaveGlow
from waveglow.wn import WN


def network(layers: int = 3, kernel: int = 3, channels: int = 6) -> WN:
    wn = WN(4, 10, WNConfig(n_layers=layers, kernel_size=kernel, n_channels=channels))
    for weight in wn.end.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return wn.double()


def both(wn: WN, half: torch.Tensor, condition: torch.Tensor) -> list[list[torch.Tensor]]:
    """The result and all gradients, plainly and fast, for the same random direction."""
    direction = torch.randn(len(half), wn.end.out_channels, half.shape[2], dtype=half.dtype)
    results = []
    for run in (wn._plain_layers, wn._fast_layers):
        inputs = [tensor.clone().requires_grad_() for tensor in (half, condition)]
        made = run(*inputs)
        results.append([made, *torch.autograd.grad((made * direction).sum(), [*inputs, *wn.parameters()])])
    return results


@pytest.fixture
def in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of three taps convolve in tiles, however few channels and groups they have."""
    monkeypatch.setattr("waveglow.convolution.FOUR", FOUR._replace(channels=6))
    monkeypatch.setattr("waveglow.convolution.MAX_PADDING", 1000)


@pytest.mark.usefixtures("in_tiles")
@pytest.mark.parametrize("groups", [1, 7, 40])
@pytest.mark.parametrize(("batch", "layers"), [(1, 1), (3, 4)])
def test_in_tiles_too(batch: int, layers: int, groups: int) -> None:
    """The first layer hears 5 channels, and so has none."""
    wn = network(layers)
    x, condition = torch.randn(batch, 4, groups).double(), torch.randn(batch, 10, groups).double()
    for plain, fast in zip(*both(wn, x, condition), strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(wn._fast_layers(x, condition), wn._plain_layers(x, condition), rtol=0, atol=1e-11)


@pytest.mark.parametrize("groups", [1, 2, 7, 40])
@pytest.mark.parametrize(("batch", "layers", "kernel"), [(1, 1, 3), (3, 4, 3), (2, 2, 1), (2, 3, 5)])
def test_fast_is_plain(batch: int, layers: int, kernel: int, groups: int) -> None:
    """To rounding in float64, with dilations that reach past both ends of a short clip."""
    wn = network(layers, kernel)
    x, condition = torch.randn(batch, 4, groups).double(), torch.randn(batch, 10, groups).double()
    for plain, fast in zip(*both(wn, x, condition), strict=True):
        assert plain.shape == fast.shape
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-11)


def test_blocks_are_a_matter_of_caches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that end inside a clip, and the last one shorter."""
    monkeypatch.setattr("waveglow.gated_layers.BLOCK", 8)
    wn, x, condition = network(), torch.randn(3, 4, 7).double(), torch.randn(3, 10, 7).double()
    for plain, fast in zip(*both(wn, x, condition), strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(wn._fast_layers(x, condition), wn._plain_layers(x, condition), rtol=0, atol=1e-11)


def test_gradients_are_slopes() -> None:
    weights = [torch.randn(8, 2, 3), torch.randn(8, 5), torch.randn(8), torch.randn(7, 4), torch.randn(7)]
    weights += [torch.randn(8, 4, 3), torch.randn(8, 5), torch.randn(8), torch.randn(3, 4), torch.randn(3)]
    tensors = [torch.randn(2, 6, 2), torch.randn(2, 6, 4), torch.randn(2, 6, 5), *weights]
    tensors = [tensor.double().requires_grad_() for tensor in tensors]
    assert torch.autograd.gradcheck(lambda *t: GatedLayers.apply([1, 2], torch.float64, *t), tensors)


def test_float32_is_within_1e_5_of_float64() -> None:
    wn = network(channels=32, layers=4)
    x, condition = torch.randn(2, 4, 50).double(), torch.randn(2, 10, 50).double()
    exact = both(wn, x, condition)[0][0]
    rounded = both(wn.float(), x.float(), condition.float())[1][0]
    assert (rounded - exact).norm() / exact.norm() < 1e-5


def test_autocast_computes_in_its_type_and_gives_gradients_in_the_weights() -> None:
    """Result and gradients within bfloat16's 2^-8, some layers deep, of float32's."""
    wn, x, condition = network().float(), torch.randn(2, 4, 20), torch.randn(2, 10, 20)
    x.requires_grad_()
    exact = wn._fast_layers(x, condition)
    exact_gradients = torch.autograd.grad(exact.square().sum(), [x, *wn.in_layers.parameters()])
    with precision.autocast(torch.device("cpu"), torch.bfloat16):
        rounded = wn._fast_layers(x, condition)
    assert rounded.dtype == torch.float32  # sums of bfloat16 numbers
    gradients = torch.autograd.grad(rounded.square().sum(), [x, *wn.in_layers.parameters()])
    for got, want in zip([rounded, *gradients], [exact, *exact_gradients], strict=True):
        assert (got - want).norm() / want.norm() < 2**-5
    assert all(gradient.dtype == torch.float32 for gradient in gradients)


def test_without_gradients_nothing_is_kept() -> None:
    x, condition = torch.randn(1, 4, 3), torch.randn(1, 4, 5)
    weights = [torch.randn(6, 3, 3), torch.randn(6, 5), torch.randn(6), torch.randn(3, 3), torch.randn(3)]
    with torch.no_grad():
        assert gated_layers(Inputs(x, x, condition), [1], weights).grad_fn is None
    assert gated_layers(Inputs(x, x, condition), [1], weights).grad_fn is None


def model(plain: bool) -> WaveGlow:
    torch.manual_seed(3)
    made = WaveGlow(n_mel_channels=4, n_flows=3, hop_length=16, upsample_kernel_size=32, WN_config={"n_channels": 8})
    for wn in made.WN:
        torch.nn.init.normal_(wn.end.weight, std=0.1)
    made.use_plain(plain)
    return made


@pytest.mark.parametrize("frames", [1, 9])
def test_a_prepared_model_speaks_as_a_plain_one(frames: int) -> None:
    mels, z = torch.randn(2, 4, frames), torch.randn(2, 8, 2 * frames)
    plain = model(True).eval().infer(mels, z=z)
    torch.testing.assert_close(model(False).eval().infer(mels, z=z), plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(model(False).eval().prepare(False).infer(mels, z=z), plain, rtol=0, atol=1e-5)


def test_half_precision_keeps_the_networks_weights_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU with bfloat16; sound within 2^-8 times the depth of three flows."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    mels, z = torch.randn(1, 4, 9), torch.randn(1, 8, 18)
    plain, prepared = model(True).eval().infer(mels, z=z), model(False).eval().prepare(True)
    assert {p.dtype for p in prepared.WN.parameters()} == {torch.bfloat16}
    made = prepared.infer(mels, z=z)
    assert made.dtype == torch.float32
    assert (made - plain).norm() / plain.norm() < 0.03


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("half", "bound"), [(None, 1e-4), (torch.float16, 0.02)], ids=str)
def test_fast_is_plain_on_a_gpu(half: torch.dtype | None, bound: float) -> None:
    """Result and gradients, TF32 off; in float16 the plain way rounds as well."""
    device = torch.device("cuda", 0)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False, tf32=False)
    wn = network(channels=32, layers=4).float().to(device)
    x, condition = torch.randn(2, 4, 50, device=device), torch.randn(2, 10, 50, device=device)
    with precision.autocast(device, half):
        plain, fast = both(wn, x, condition)
    for got, want in zip(fast, plain, strict=True):
        assert (got.float() - want.float()).norm() <= bound * want.float().norm()
