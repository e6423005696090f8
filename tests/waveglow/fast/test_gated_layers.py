"""WN's layers with channels innermost and their own backward: against the plain layers and autograd, and by slopes."""

import pytest
import torch

from common import precision
from common.kernels.private_ops import Processor
from waveglow.config import WNConfig
from waveglow.fast.convolution import WinogradTiles
from waveglow.fast.gated_layers import GatedLayers, Inputs, Layer, gated_layers
from waveglow.fast.training import TrainingWN
from waveglow.model import WN


def network(layers: int = 3, kernel: int = 3, channels: int = 6) -> WN:
    wn = WN(4, 10, WNConfig(n_layers=layers, kernel_size=kernel, n_channels=channels))
    for weight in wn.end.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return wn.double()


def both(wn: WN, x_a: torch.Tensor, condition: torch.Tensor) -> list[list[torch.Tensor]]:
    """b, log s and all gradients, of the plain WN and of the fast one, for the same random direction."""
    direction = torch.randn(2, *x_a.shape, dtype=x_a.dtype, device=x_a.device)
    results = []
    for run in (wn, TrainingWN(wn)):
        inputs = [tensor.clone().requires_grad_() for tensor in (x_a, condition)]
        outputs = torch.stack(run(*inputs))
        results.append([outputs, *torch.autograd.grad((outputs * direction).sum(), [*inputs, *wn.parameters()])])
    return results


@pytest.mark.parametrize("groups", [1, 2, 7, 40])
@pytest.mark.parametrize(
    ("batch", "layers", "kernel", "in_tiles"),
    [(1, 1, 3, False), (3, 4, 3, False), (2, 2, 1, False), (2, 3, 5, False), (1, 1, 3, True), (3, 4, 3, True)],
)
def test_outputs_and_gradients_equal_the_plain_ones(batch, layers, kernel, in_tiles, groups: int, monkeypatch) -> None:
    """To rounding in float64, with dilations that reach past both ends of a short clip."""
    # Layers of three taps, however few channels and groups they have; the first has 5 channels, and so none.
    if in_tiles:
        monkeypatch.setattr("waveglow.fast.convolution.MIN_CHANNELS", 6)
        monkeypatch.setattr("waveglow.fast.convolution.MAX_PADDING", 1000)
    wn = network(layers, kernel)
    x, condition = torch.randn(batch, 4, groups).double(), torch.randn(batch, 10, groups).double()
    for plain, fast in zip(*both(wn, x, condition), strict=True):
        assert plain.shape == fast.shape
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(TrainingWN(wn)(x, condition), wn(x, condition), rtol=0, atol=1e-11)


def test_blocks_do_not_change_the_outputs(monkeypatch) -> None:
    """Blocks that end inside a clip, and the last one shorter."""
    monkeypatch.setattr("waveglow.fast.gated_layers.BLOCK", 8)
    wn, x, condition = network(), torch.randn(3, 4, 7).double(), torch.randn(3, 10, 7).double()
    for plain, fast in zip(*both(wn, x, condition), strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(TrainingWN(wn)(x, condition), wn(x, condition), rtol=0, atol=1e-11)


def test_gradients_are_slopes() -> None:
    weights = [torch.randn(8, 2, 3), torch.randn(8, 5), torch.randn(8), torch.randn(7, 4), torch.randn(7)]
    weights += [torch.randn(8, 4, 3), torch.randn(8, 5), torch.randn(8), torch.randn(3, 4), torch.randn(3)]
    tensors = [torch.randn(2, 6, 2), torch.randn(2, 6, 4), torch.randn(2, 6, 5), *weights]
    tensors = [tensor.double().requires_grad_() for tensor in tensors]
    assert torch.autograd.gradcheck(lambda *t: GatedLayers.apply([1, 2], torch.float64, *t), tensors)


def test_autocast_computes_in_its_type_and_gives_gradients_in_the_weights() -> None:
    """Result and gradients within bfloat16's 2^-8, some layers deep, of float32's."""
    wn, x, condition = network().float(), torch.randn(2, 4, 20), torch.randn(2, 10, 20)
    x.requires_grad_()
    exact = torch.stack(TrainingWN(wn)(x, condition))
    exact_gradients = torch.autograd.grad(exact.square().sum(), [x, *wn.in_layers.parameters()])
    with precision.autocast(torch.device("cpu"), torch.bfloat16):
        rounded = torch.stack(TrainingWN(wn)(x, condition))
    assert rounded.dtype == torch.float32  # sums of bfloat16 numbers
    gradients = torch.autograd.grad(rounded.square().sum(), [x, *wn.in_layers.parameters()])
    for got, want in zip([rounded, *gradients], [exact, *exact_gradients], strict=True):
        assert (got - want).norm() / want.norm() < 2**-5
    assert all(gradient.dtype == torch.float32 for gradient in gradients)


def test_without_gradients_nothing_is_saved() -> None:
    x, condition = torch.randn(1, 4, 3), torch.randn(1, 4, 5)
    layer = Layer(torch.randn(6, 3, 3), torch.randn(6, 5), torch.randn(6), torch.randn(3, 3), torch.randn(3))
    with torch.no_grad():
        assert gated_layers(Inputs(x, x, condition), [1], [layer]).grad_fn is None
    assert gated_layers(Inputs(x, x, condition), [1], [layer]).grad_fn is None


@pytest.mark.gpu
@pytest.mark.parametrize(("half", "bound"), [(None, 1e-4), (torch.float16, 0.02)], ids=str)
def test_outputs_and_gradients_equal_the_plain_ones_on_a_gpu(half: torch.dtype | None, bound: float) -> None:
    """Result and gradients, TF32 off; in float16 the plain way rounds as well."""
    device = torch.device("cuda", 0)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False, tf32=False)
    wn = network(channels=32, layers=4).float().to(device)
    x, condition = torch.randn(2, 4, 50, device=device), torch.randn(2, 10, 50, device=device)
    with precision.autocast(device, half):
        plain, fast = both(wn, x, condition)
    for got, want in zip(fast, plain, strict=True):
        assert (got.float() - want.float()).norm() <= bound * want.float().norm()


@pytest.mark.parametrize(
    ("family", "forward_alone", "in_tiles"), [(26, True, False), (26, False, True), (25, True, True)]
)
def test_a_forward_alone_has_no_tiles_on_zen_5(monkeypatch, family: int, forward_alone: bool, in_tiles: bool) -> None:
    monkeypatch.setattr("waveglow.fast.convolution.processor", lambda: Processor("AuthenticAMD", family))
    monkeypatch.setattr("waveglow.fast.convolution.MIN_CHANNELS", 6)
    monkeypatch.setattr("waveglow.fast.convolution.MAX_PADDING", 1000)
    tiled, forward = [], WinogradTiles.forward
    monkeypatch.setattr(WinogradTiles, "forward", lambda way, *inputs: tiled.append(way) or forward(way, *inputs))
    wn, x, condition = network(), torch.randn(1, 4, 7).double(), torch.randn(1, 10, 7).double()
    with torch.set_grad_enabled(not forward_alone):
        outputs = TrainingWN(wn)(x, condition)
    assert bool(tiled) == in_tiles
    for fast, plain in zip(outputs, wn(x, condition), strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=1e-11)
