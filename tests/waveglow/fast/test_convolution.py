"""Dilated convolutions tap by tap and in tiles: against PyTorch's convolution and its gradients, and the choice between them."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from waveglow.fast.convolution import Convolution, Direct, WinogradTiles, convolution

WAYS = [Direct(1), Direct(2), *(WinogradTiles(dilation) for dilation in (1, 2, 8))]


def tensors(batch: int, groups: int, channels: int = 5, out: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, weight, bias, and the gradient of the result, in float64."""
    shapes = (batch, groups, channels), (out, channels, 3), (out,), (batch, groups, out)
    x, weight, bias, d_outputs = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return x, weight, bias, d_outputs


def pytorch(dilation: int, x: Tensor, weight: Tensor, bias: Tensor, d_outputs: Tensor) -> list[Tensor]:
    """The result, and the gradients of x and weight."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    outputs = F.conv1d(x.transpose(1, 2), weight, bias, padding=dilation, dilation=dilation).transpose(1, 2)
    return [outputs.detach(), *torch.autograd.grad(outputs, (x, weight), d_outputs)]


def ours(way: Convolution, dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor, d_outputs: Tensor):
    arranged = way.arrange(weight.to(torch.promote_types(dtype, torch.float32)), dtype)
    outputs = way.forward(x.to(dtype), arranged, bias.to(dtype))
    assert outputs.is_contiguous()
    return [outputs, *way.backward(d_outputs.to(dtype), x.to(dtype), arranged)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("batch", "groups"), [(1, 1), (2, 3), (3, 16), (2, 33), (1, 64)])
def test_equals_pytorch(way: Convolution, batch: int, groups: int) -> None:
    """Clips shorter than a tile, that end in one, and of whole tiles."""
    arguments = tensors(batch, groups)
    for got, want in zip(ours(way, torch.float64, *arguments), pytorch(way.dilation, *arguments), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("block", [1, 48])
def test_blocks_do_not_change_the_outputs(block: int, monkeypatch) -> None:
    """Blocks of one tile's length, and with a shorter last one."""
    monkeypatch.setattr("waveglow.fast.convolution.BLOCK", block)
    arguments = tensors(2, 100)
    outputs = ours(WinogradTiles(4), torch.float64, *arguments)[0]
    torch.testing.assert_close(outputs, pytorch(4, *arguments)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("way", "dtype", "bound"),
    [(WinogradTiles(4), torch.float32, 2e-6), (Direct(4), torch.float32, 1e-6), (Direct(4), torch.bfloat16, 2**-7)],
    ids=["tiles", "direct", "bfloat16"],
)
def test_rounding_is_small(way: Convolution, dtype: torch.dtype, bound: float) -> None:
    """Of a full layer's channels."""
    x, weight, bias, d_outputs = tensors(1, 256, 256, 512)
    arguments = x.to(dtype).double(), 0.03 * weight, bias, d_outputs
    for got, want in zip(ours(way, dtype, *arguments), pytorch(4, *arguments), strict=True):
        assert (got.double() - want).norm() <= bound * want.norm()


@pytest.mark.parametrize(
    ("dtype", "channels", "kernel", "groups", "dilation", "way"),
    [
        (torch.float32, 256, 3, 1000, 128, WinogradTiles(128)),
        (torch.float64, 256, 3, 1000, 128, WinogradTiles(128)),
        (torch.float32, 255, 3, 1000, 1, Direct(1)),
        (torch.float32, 256, 5, 1000, 1, Direct(1)),
        (torch.float32, 256, 3, 400, 128, Direct(128)),  # 512 in tiles
        (torch.float32, 256, 3, 456, 128, WinogradTiles(128)),
        (torch.bfloat16, 512, 3, 1000, 128, Direct(128)),
        (torch.float16, 512, 3, 1000, 1, Direct(1)),
    ],
)
def test_tiles_are_chosen_where_they_save_work(dtype, channels, kernel, groups, dilation, way: Convolution) -> None:
    x = torch.empty(1, groups, channels, dtype=dtype)
    assert convolution(x, torch.empty(8, channels, kernel), dilation) == way
    assert convolution(x.to("meta"), torch.empty(8, channels, kernel), dilation) == Direct(dilation)
