"""WN's layers with channels innermost and their own backward: against the plain layers and autograd, and by slopes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from common import precision
from waveglow.config import WNConfig
from waveglow.fast.convolution import Convolution, Direct, WinogradTiles, convolution
from waveglow.fast.gated_layers import GatedLayers
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


# Layers of three taps in tiles, however few channels and groups they have; the first has 5 channels, and so none.
TILES = {"convolution.MIN_CHANNELS": 6, "convolution.MAX_PADDING": 1000}
BLOCKS = {"gated_layers.BLOCK": 8}  # which end inside a clip, the last one shorter


@pytest.mark.parametrize("groups", [1, 2, 7, 40])
@pytest.mark.parametrize(
    ("batch", "layers", "kernel", "constants"),
    [(1, 1, 3, {}), (3, 4, 3, {}), (2, 2, 1, {}), (2, 3, 5, {}), (1, 1, 3, TILES), (3, 4, 3, TILES), (3, 3, 3, BLOCKS)],
)
def test_outputs_and_gradients_equal_the_plain_ones(batch, layers, kernel, constants, groups, monkeypatch) -> None:
    """To rounding in float64, with dilations that reach past both ends of a short clip."""
    for name, value in constants.items():
        monkeypatch.setattr(f"waveglow.fast.{name}", value)
    wn = network(layers, kernel)
    x, condition = torch.randn(batch, 4, groups).double(), torch.randn(batch, 10, groups).double()
    for plain, fast in zip(*both(wn, x, condition), strict=True):
        assert plain.shape == fast.shape
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


WAYS = [Direct(1), Direct(2), *(WinogradTiles(dilation) for dilation in (1, 2, 8))]


def tensors(batch: int, groups: int, channels: int = 5, out: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shapes = (batch, groups, channels), (out, channels, 3), (out,), (batch, groups, out)
    x, weight, bias, d_outputs = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return x, weight, bias, d_outputs


def pytorch(dilation: int, x: Tensor, weight: Tensor, bias: Tensor, d_outputs: Tensor) -> list[Tensor]:
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    outputs = F.conv1d(x.transpose(1, 2), weight, bias, padding=dilation, dilation=dilation).transpose(1, 2)
    return [outputs.detach(), *torch.autograd.grad(outputs, (x, weight), d_outputs)]


def ours(way: Convolution, dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor, d_outputs: Tensor):
    arranged = way.arrange(weight.to(torch.promote_types(dtype, torch.float32)), dtype)
    outputs = way.forward(x.to(dtype), arranged, bias.to(dtype))
    assert outputs.is_contiguous()
    return [outputs, *way.backward(d_outputs.to(dtype), x.to(dtype), arranged)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("batch", "groups", "block"),
    [(1, 1, None), (2, 3, None), (3, 16, None), (2, 33, None), (1, 64, None), (2, 100, 1), (2, 100, 48)],
)
def test_equals_pytorch(way: Convolution, batch: int, groups: int, block: int | None, monkeypatch) -> None:
    """Clips shorter than a tile, that end in one, and of whole tiles; blocks of one tile's length, and with a shorter last one."""
    if block:
        monkeypatch.setattr("waveglow.fast.convolution.BLOCK", block)
    arguments = tensors(batch, groups)
    for got, want in zip(ours(way, torch.float64, *arguments), pytorch(way.dilation, *arguments), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "channels", "kernel", "groups", "dilation", "way"),
    [
        (torch.float32, 256, 3, 1000, 128, WinogradTiles(128)),
        (torch.float32, 255, 3, 1000, 1, Direct(1)),
        (torch.float32, 256, 3, 400, 128, Direct(128)),  # 512 in tiles
        (torch.bfloat16, 512, 3, 1000, 128, Direct(128)),
        (torch.float16, 512, 3, 1000, 1, Direct(1)),
    ],
)
def test_tiles_are_chosen_where_they_save_work(dtype, channels, kernel, groups, dilation, way: Convolution) -> None:
    x = torch.empty(1, groups, channels, dtype=dtype)
    assert convolution(x, torch.empty(8, channels, kernel), dilation) == way
    assert convolution(x.to("meta"), torch.empty(8, channels, kernel), dilation) == Direct(dilation)
