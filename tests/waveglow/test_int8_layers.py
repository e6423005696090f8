"""WN's layers in 8 bits: within rounding of float64, item by item, and where a CPU cannot, not at all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from common.kernels.int8 import can_multiply
from common.precision import half_dtype
from waveglow.config import WNConfig
from waveglow.int8_layers import items_in_levels
from waveglow.wn import WN

needs_vnni = pytest.mark.skipif(not can_multiply(torch.device("cpu")), reason="the CPU has no VNNI instructions")


def network(layers: int = 4, kernel: int = 3) -> WN:
    wn = WN(4, 10, WNConfig(n_layers=layers, kernel_size=kernel, n_channels=32)).requires_grad_(False)
    wn.end.weight.normal_(std=0.3)
    wn.end.bias.normal_(std=0.1)
    return wn


def noise(made: Tensor, want: Tensor) -> float:
    """The error's norm over the result's."""
    return ((made - want).norm() / want.norm()).item()


@needs_vnni
@pytest.mark.parametrize("groups", [1, 2, 7, 60])
@pytest.mark.parametrize(("batch", "layers", "kernel"), [(1, 1, 3), (3, 4, 3), (2, 2, 1), (2, 3, 5)])
def test_it_is_the_plain_way_rounded(batch: int, layers: int, kernel: int, groups: int) -> None:
    """Steps of 1/127 of the largest are errors of about 1 % a layer; a shift or a padding that is wrong would be 100 %."""
    wn = network(layers, kernel)
    x, condition = torch.randn(batch, 4, groups), torch.randn(batch, 10, groups)
    wn.use_int8()
    made = wn._fast_layers(x, condition)
    want = wn.double()._plain_layers(x.double(), condition.double())
    assert made.dtype == torch.float32 and made.shape == want.shape
    assert 1e-4 < noise(made.double(), want) < 0.04


@needs_vnni
def test_blocks_and_neighbours_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wn, x, condition = network(), torch.randn(3, 4, 21), torch.randn(3, 10, 21)
    wn.use_int8()
    whole = wn._fast_layers(x, condition)
    torch.testing.assert_close(wn._fast_layers(x[1:2], condition[1:2]), whole[1:2], rtol=0, atol=0)
    monkeypatch.setattr("waveglow.int8_layers.BLOCK", 8)
    monkeypatch.setattr("common.kernels.int8.IN_CACHE", 5)
    torch.testing.assert_close(wn._fast_layers(x, condition), whole, rtol=0, atol=1e-6)


@needs_vnni
def test_the_model_rounds_its_condition_once_for_all_flows(small_model, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each item's own step: one of a hundredth of the other's size is heard as well as by itself."""
    model = small_model(torch.float32).prepare(False, int8=True)
    mels, z = torch.randn(2, 3, 9) * torch.tensor([1.0, 0.01])[:, None, None], torch.randn(2, 8, 18)
    rounded: list[Tensor] = []
    for module in ("model", "wn"):
        monkeypatch.setattr(
            f"waveglow.{module}.items_in_levels", lambda x, centre: rounded.append(x) or items_in_levels(x, centre)
        )
    together = model.infer(mels, z=z)
    assert len(rounded) == 1
    for i, alone in enumerate(together):
        torch.testing.assert_close(model.infer(mels[i : i + 1], z=z[i : i + 1])[0], alone, rtol=0, atol=1e-6)
    condition = model._condition(mels, 144).to(model.WN[0].end.weight.dtype)
    levels, steps = model._heard(condition)
    assert levels.dtype == torch.uint8 and steps is not None
    for wn in model.WN:
        half = torch.randn(2, wn.start.weight.shape[1], 18)
        for once, each in zip(wn(half, levels, steps), wn(half, condition), strict=True):
            torch.testing.assert_close(once, each, rtol=0, atol=0)


@needs_vnni
@pytest.mark.parametrize("layers", [1, 4])
def test_no_number_is_not_hidden(layers: int) -> None:
    wn, x, condition = network(layers), torch.randn(1, 4, 9), torch.randn(1, 10, 9)
    wn.use_int8()
    for tensor in (x, condition):
        kept, tensor[0, 3, 4] = tensor[0, 3, 4].item(), torch.nan
        assert wn._fast_layers(x, condition).isnan().all()
        tensor[0, 3, 4] = kept
    assert wn._fast_layers(x, condition).isfinite().all()


@needs_vnni
@pytest.mark.parametrize("frames", [1, 30])
def test_a_prepared_model_speaks_nearly_as_a_plain_one(small_model, frames: int) -> None:
    model = small_model(torch.float32)
    mels, z = torch.randn(2, 3, frames), torch.randn(2, 8, 2 * frames)
    plain, prepared = model.infer(mels, z=z).detach(), small_model(torch.float32).prepare(False, int8=True)
    assert all(wn.in_8_bits is not None for wn in prepared.WN)
    assert {p.dtype for p in prepared.WN.parameters()} == {half_dtype(torch.device("cpu"), True) or torch.float32}
    made = prepared.infer(mels, z=z)
    assert made.dtype == torch.float32
    assert 1e-4 < noise(made, plain) < 0.1


def test_where_it_cannot_nothing_changes(small_model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the instructions, and in float64, which 8 bits are not for."""
    mels, z = torch.randn(1, 3, 5), torch.randn(1, 8, 10)
    double = small_model().prepare(False, int8=True)
    assert torch.equal(double.infer(mels.double(), z=z), small_model().prepare(False).infer(mels.double(), z=z))
    monkeypatch.setattr("waveglow.model.can_multiply", lambda device: False)
    single = small_model(torch.float32).prepare(False, int8=True)
    assert torch.equal(single.infer(mels, z=z), small_model(torch.float32).prepare(False).infer(mels, z=z))
