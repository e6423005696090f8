"""WN's layers in 8 bits: within rounding of float64, item by item, and for float32 on a CPU that has them alone."""

import pytest
import torch
from torch import Tensor

from common.fast import Request, accelerate
from common.kernels.int8 import can_multiply
from common.precision import half_dtype
from waveglow.config import WNConfig
from waveglow.fast import int8
from waveglow.fast.int8 import Int8Condition, Int8WN, convert_to_int8
from waveglow.fast.table import WAYS
from waveglow.model import WN, WaveGlow

needs_vnni = pytest.mark.skipif(not can_multiply(torch.device("cpu")), reason="the CPU has no VNNI instructions")
INT8 = Request(int8=True)


def network(layers: int = 4, kernel: int = 3) -> WN:
    wn = WN(4, 10, WNConfig(n_layers=layers, kernel_size=kernel, n_channels=32)).requires_grad_(False)
    wn.end.weight.normal_(std=0.3)
    wn.end.bias.normal_(std=0.1)
    return wn


def levels(condition: Tensor) -> Int8Condition:
    """A condition (B, N, G) in levels."""
    items = [int8.quantise(item.contiguous()) for item in condition.transpose(1, 2)]
    return Int8Condition(torch.stack([item.levels for item in items]), [item.step for item in items])


def run(wn: WN, x_a: Tensor, condition: Tensor) -> Tensor:
    """b and log s in 8 bits, the rest in float32: (2, B, C/2, G)."""
    return torch.stack(Int8WN(wn, torch.float32)(x_a, levels(condition)))


def relative_error(outputs: Tensor, want: Tensor) -> float:
    """The error's norm over the result's."""
    return ((outputs - want).norm() / want.norm()).item()


@needs_vnni
@pytest.mark.parametrize("groups", [1, 2, 7, 60])
@pytest.mark.parametrize(("batch", "layers", "kernel"), [(1, 1, 3), (3, 4, 3), (2, 2, 1), (2, 3, 5)])
def test_outputs_are_the_plain_ones_rounded(batch: int, layers: int, kernel: int, groups: int) -> None:
    """Steps of 1/127 of the largest are errors of about 1 % a layer; a shift or a padding that is wrong would be 100 %."""
    wn = network(layers, kernel)
    x_a, condition = torch.randn(batch, 4, groups), torch.randn(batch, 10, groups)
    outputs = run(wn, x_a, condition)
    want = torch.stack(wn.double()(x_a.double(), condition.double()))
    assert outputs.dtype == torch.float32 and outputs.shape == want.shape
    assert 1e-4 < relative_error(outputs.double(), want) < 0.04


@needs_vnni
def test_blocks_and_other_items_change_nothing(monkeypatch) -> None:
    wn, x_a, condition = network(), torch.randn(3, 4, 21), torch.randn(3, 10, 21)
    whole = run(wn, x_a, condition)
    torch.testing.assert_close(run(wn, x_a[1:2], condition[1:2]), whole[:, 1:2], rtol=0, atol=0)
    monkeypatch.setattr("waveglow.fast.int8.BLOCK", 8)
    monkeypatch.setattr("common.kernels.int8.CACHE_ROWS", 5)
    torch.testing.assert_close(run(wn, x_a, condition), whole, rtol=0, atol=1e-6)


@needs_vnni
def test_the_condition_is_quantised_once_for_all_flows(small_model, monkeypatch) -> None:
    """By each item's own step: an item of a hundredth of the other's size comes out as by itself."""
    prepared = convert_to_int8(small_model(torch.float32), INT8)
    mels, z = torch.randn(2, 3, 9) * torch.tensor([1.0, 0.01])[:, None, None], torch.randn(2, 8, 18)
    together = prepared.infer(mels, z=z)
    for i, alone in enumerate(together):
        torch.testing.assert_close(prepared.infer(mels[i : i + 1], z=z[i : i + 1])[0], alone, rtol=0, atol=1e-6)
    sizes: list[int] = []
    quantise = int8.quantise
    monkeypatch.setattr(int8, "quantise", lambda x, padding=0: sizes.append(x.shape[1]) or quantise(x, padding))
    prepared.infer(mels, z=z)
    assert sizes.count(24) == 2  # 3 channels x 8 samples, once for each of two items; layers have 6 channels
    condition = prepared.upsample(mels, 18)
    assert condition.levels.dtype == torch.uint8 and len(condition.steps) == 2


@needs_vnni
@pytest.mark.parametrize("layers", [1, 4])
def test_nan_stays_nan(layers: int) -> None:
    wn, x_a, condition = network(layers), torch.randn(1, 4, 9), torch.randn(1, 10, 9)
    for tensor in (x_a, condition):
        number, tensor[0, 3, 4] = tensor[0, 3, 4].item(), torch.nan
        assert run(wn, x_a, condition).isnan().all()
        tensor[0, 3, 4] = number
    assert run(wn, x_a, condition).isfinite().all()


@needs_vnni
@pytest.mark.parametrize("frames", [1, 30])
def test_audio_is_nearly_the_plain_models(small_model, frames: int) -> None:
    model = small_model(torch.float32)
    mels, z = torch.randn(2, 3, frames), torch.randn(2, 8, 2 * frames)
    prepared = accelerate(model, WAYS, "inference", INT8)
    assert isinstance(prepared, WaveGlow) and all(isinstance(wn, Int8WN) for wn in prepared.WN)
    assert {p.dtype for p in prepared.WN.parameters()} == {half_dtype(torch.device("cpu"), True) or torch.float32}
    plain, audio = model.infer(mels, z=z).detach(), prepared.infer(mels, z=z)
    assert audio.dtype == torch.float32
    assert 1e-4 < relative_error(audio, plain) < 0.1


def test_other_types_and_cpus_keep_their_precision(small_model, monkeypatch) -> None:
    """Without the instructions, and in float64, which 8 bits are not for, the row does not apply."""
    mels, z = torch.randn(1, 3, 5), torch.randn(1, 8, 10)

    def audio(dtype: torch.dtype, request: Request) -> Tensor:
        return accelerate(small_model(dtype), WAYS, "inference", request).infer(mels.to(dtype), z=z)

    assert torch.equal(audio(torch.float64, INT8), audio(torch.float64, Request()))
    monkeypatch.setattr("waveglow.fast.int8.can_multiply", lambda device: False)
    assert torch.equal(audio(torch.float32, INT8), audio(torch.float32, Request()))
