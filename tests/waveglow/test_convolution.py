"""Dilated convolutions tap by tap and in tiles: against PyTorch's convolution and its gradients, and which is chosen."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from waveglow.convolution import FOUR, TWO, Convolution, Direct, Tile, Tiled, convolution

WAYS = [Direct(1), Direct(2), *(Tiled(dilation, tile) for tile in (TWO, FOUR) for dilation in (1, 2, 8))]


def tensors(batch: int, groups: int, channels: int = 5, out: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, weight, bias, and the gradient of the result, in float64."""
    shapes = (batch, groups, channels), (out, channels, 3), (out,), (batch, groups, out)
    x, weight, bias, d_made = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return x, weight, bias, d_made


def pytorch(dilation: int, x: Tensor, weight: Tensor, bias: Tensor, d_made: Tensor) -> list[Tensor]:
    """The result, and the gradients of x and weight."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    made = F.conv1d(x.transpose(1, 2), weight, bias, padding=dilation, dilation=dilation).transpose(1, 2)
    return [made.detach(), *torch.autograd.grad(made, (x, weight), d_made)]


def ours(way: Convolution, dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor, d_made: Tensor) -> list[Tensor]:
    arranged = way.arranged(weight.to(torch.promote_types(dtype, torch.float32)), dtype)
    made = way.forward(x.to(dtype), arranged, bias.to(dtype))
    assert made.is_contiguous()
    return [made, *way.backward(d_made.to(dtype), x.to(dtype), arranged)]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("batch", "groups"), [(1, 1), (2, 3), (3, 16), (2, 33), (1, 64)])
def test_is_pytorchs(way: Convolution, batch: int, groups: int) -> None:
    """Clips shorter than a tile, that end in one, and of whole tiles."""
    given = tensors(batch, groups)
    for got, want in zip(ours(way, torch.float64, *given), pytorch(way.dilation, *given), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("block", [1, 48])
def test_blocks_are_a_matter_of_caches_alone(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one tile's length, and with a shorter last one."""
    monkeypatch.setattr("waveglow.convolution.BLOCK", block)
    given = tensors(2, 100)
    made = ours(Tiled(4, FOUR), torch.float64, *given)[0]
    torch.testing.assert_close(made, pytorch(4, *given)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("way", "dtype", "bound"),
    [
        (Tiled(4, FOUR), torch.float32, 2e-6),
        (Tiled(4, TWO), torch.float32, 1e-6),
        (Tiled(4, TWO), torch.bfloat16, 2**-7),
    ],
    ids=["four", "two", "bfloat16"],
)
def test_rounds_little(way: Convolution, dtype: torch.dtype, bound: float) -> None:
    """Of a full layer's channels; tap by tap it is 3e-7, and in bfloat16 2^-8."""
    x, weight, bias, d_made = tensors(1, 256, 256, 512)
    given = x.to(dtype).double(), 0.03 * weight, bias, d_made
    for got, want in zip(ours(way, dtype, *given), pytorch(4, *given), strict=True):
        assert (got.double() - want).norm() <= bound * want.norm()


def test_half_precision_keeps_the_gradient_of_the_weight_in_float32() -> None:
    assert ours(Tiled(1, TWO), torch.bfloat16, *tensors(1, 8))[2].dtype == torch.float32


@pytest.mark.parametrize("tile", [TWO, FOUR], ids=["two", "four"])
def test_backward_is_the_slope(tile: Tile) -> None:
    """By differences, without another convolution: linear in x and in the weight, so that one step is exact."""
    way, (x, weight, bias, d_made) = Tiled(2, tile), tensors(1, 11)
    _, d_x, d_weight = ours(way, torch.float64, x, weight, bias, d_made)
    for moved, gradient in ((0, d_x), (1, d_weight)):
        step = torch.randn_like((x, weight)[moved])
        there = [x, weight]
        there[moved] = there[moved] + step
        results = [way.forward(a, way.arranged(w, torch.float64), bias) for a, w in ((x, weight), there)]
        risen = ((results[1] - results[0]) * d_made).sum()
        torch.testing.assert_close(risen, (gradient * step).sum(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("amx", "dtype", "channels", "kernel", "groups", "dilation", "way"),
    [
        (False, torch.float32, 256, 3, 1000, 128, Tiled(128, FOUR)),
        (True, torch.float32, 256, 3, 1000, 128, Tiled(128, FOUR)),
        (False, torch.float32, 255, 3, 1000, 1, Direct(1)),
        (False, torch.float32, 256, 5, 1000, 1, Direct(1)),
        (False, torch.float32, 256, 3, 400, 128, Direct(128)),  # 512 in tiles
        (False, torch.float32, 256, 3, 456, 128, Tiled(128, FOUR)),
        (False, torch.bfloat16, 512, 3, 1000, 128, Tiled(128, TWO)),
        (True, torch.bfloat16, 512, 3, 1000, 128, Direct(128)),
        (False, torch.bfloat16, 256, 3, 1000, 1, Direct(1)),
    ],
)
def test_tiles_are_chosen_where_they_save_work(
    monkeypatch: pytest.MonkeyPatch,
    amx: bool,
    dtype: torch.dtype,
    channels: int,
    kernel: int,
    groups: int,
    dilation: int,
    way: Convolution,
) -> None:
    monkeypatch.setattr("waveglow.convolution._has_amx", lambda: amx)
    x = torch.empty(1, groups, channels, dtype=dtype)
    assert convolution(x, torch.empty(8, channels, kernel), dilation) == way
    assert convolution(x.to("meta"), torch.empty(8, channels, kernel), dilation) == Direct(dilation)
