"""Prepared inference: the plain model's audio, from an object of its own."""

import pytest
import torch
from torch import Tensor

from common.fast import Request, accelerate
from common.kernels.int8 import can_multiply
from common.kernels.private_ops import Processor
from common.precision import half_dtype
from waveglow.config import WNConfig
from waveglow.fast import int8
from waveglow.fast.int8 import Int8Condition, Int8WN, convert_to_int8
from waveglow.fast.prepared import PreparedWN, convert_to_prepared
from waveglow.fast.table import WAYS
from waveglow.loss_function import WaveGlowLoss
from waveglow.model import WN, WaveGlow

CPU = torch.device("cpu")
REQUESTS = [Request(), Request(half=True), Request(int8=True)]


@pytest.mark.parametrize(("batch", "frames"), [(3, 1), (1, 9), (3, 9)])
@pytest.mark.parametrize(
    "config",
    [{}, {"hop_length": 20, "upsample_kernel_size": 70}, {"upsample_channels": 1}, {"n_group": 12}],
    ids=["small", "hop of no whole groups", "one channel", "large groups"],
)
def test_float64_audio_equals_the_plain_models(small_model, config: dict, batch: int, frames: int) -> None:
    model = small_model(**config)
    prepared = convert_to_prepared(model, Request())
    mels = torch.randn(batch, 3, frames, dtype=torch.float64)
    z = torch.randn(batch, model.n_group, frames * model.hop_length // model.n_group, dtype=torch.float64)
    plain = model.infer(mels, 0.8, z)
    torch.testing.assert_close(prepared.infer(mels, 0.8, z), plain, rtol=0, atol=1e-11)
    torch.manual_seed(3)
    drawn = model.infer(mels, 0.8)
    torch.manual_seed(3)
    torch.testing.assert_close(prepared.infer(mels, 0.8), drawn, rtol=0, atol=1e-11)


def test_half_precision_stores_the_networks_weights_in_it(small_model, monkeypatch) -> None:
    """On a CPU with bfloat16; audio within 2^-8 times the depth of five flows."""
    monkeypatch.setattr("common.precision.has_fast_half", lambda device: True)
    model = small_model(torch.float32)
    for wn in model.WN:
        torch.nn.init.normal_(wn.end.weight, std=0.1)
    prepared = accelerate(model, WAYS, "inference", Request(half=True)).model
    assert isinstance(prepared, WaveGlow) and all(isinstance(wn, PreparedWN) for wn in prepared.WN)
    assert {p.dtype for p in prepared.WN.parameters()} == {torch.bfloat16}
    mels, z = torch.randn(1, 3, 9), torch.randn(1, 8, 18)
    plain = model.infer(mels, z=z)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            audio = prepared.infer(mels, z=z)
        assert audio.dtype == torch.float32
        assert 1e-5 < (audio - plain).norm() / plain.norm() < 0.03


def audio_of(model: WaveGlow) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    mels, z = torch.randn(2, 3, 6, generator=generator), torch.randn(2, 8, 12, generator=generator)
    with torch.no_grad():
        return model.infer(mels, 0.7, z)


@pytest.mark.parametrize("request_", REQUESTS, ids=["float32", "half", "int8"])
def test_the_plain_model_stays_as_it_was_and_its_training_changes_no_prepared_one(small_model, request_) -> None:
    model = small_model(torch.float32).train()
    names, before = list(model.state_dict()), audio_of(model)
    weights = [weight.clone() for weight in model.state_dict().values()]
    prepared = accelerate(model, WAYS, "inference", request_).model
    prepared_before = audio_of(prepared)
    assert list(model.state_dict()) == names and model.training and not prepared.training
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), weights, strict=True))
    assert all(weight.requires_grad for weight in model.parameters())
    assert not any(weight.requires_grad for weight in prepared.parameters())
    assert torch.equal(audio_of(model), before)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mels, audio = torch.randn(2, 3, 5), 0.3 * torch.randn(2, 80)
    WaveGlowLoss(1.0)(model(mels, audio), audio).backward()
    optimizer.step()
    assert all(weight.grad is not None for weight in model.parameters())
    assert not torch.equal(audio_of(model), before)
    assert torch.equal(audio_of(prepared), prepared_before)
    with pytest.raises(RuntimeError, match="has infer alone: call forward of the plain model"):
        prepared(mels, audio)


def test_rows_apply_as_the_request_says(small_model, monkeypatch) -> None:
    def way_name(phase: str, request: Request, dtype: torch.dtype = torch.float32) -> str:
        model = small_model(dtype)
        return next(way.name for way in WAYS if way.phase == phase and way.applies(model, request))

    monkeypatch.setattr("waveglow.fast.table.processor", Processor)
    assert way_name("training", Request()) == "training"
    monkeypatch.setattr("waveglow.fast.table.processor", lambda: Processor("AuthenticAMD", 26))
    assert accelerate(model := small_model(torch.float32), WAYS, "training", Request()).model is model
    assert way_name("training", Request(half=True)) == "training"
    assert way_name("training", Request(recompute=True)) == "recomputed"
    assert way_name("training", Request(compile="default")) == "compiled"
    assert way_name("training", Request(compile="max-autotune")) == "compiled"
    assert way_name("inference", Request()) == "prepared"
    for fast, name in ((True, "half"), (False, "prepared")):
        monkeypatch.setattr("common.precision.has_fast_half", lambda device, fast=fast: fast)
        assert way_name("inference", Request(half=True)) == name
    assert way_name("inference", Request(int8=True)) == ("int8" if can_multiply(CPU) else "prepared")
    assert way_name("inference", Request(int8=True), torch.float64) == "prepared"


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
def test_the_condition_is_quantised_for_each_item(small_model) -> None:
    """By each item's own step: an item of a hundredth of the other's size comes out as by itself."""
    prepared = convert_to_int8(small_model(torch.float32), INT8)
    assert isinstance(prepared, WaveGlow) and all(isinstance(wn, Int8WN) for wn in prepared.WN)
    assert {p.dtype for p in prepared.WN.parameters()} == {half_dtype(CPU, True) or torch.float32}
    mels, z = torch.randn(2, 3, 9) * torch.tensor([1.0, 0.01])[:, None, None], torch.randn(2, 8, 18)
    together = prepared.infer(mels, z=z)
    for i, alone in enumerate(together):
        torch.testing.assert_close(prepared.infer(mels[i : i + 1], z=z[i : i + 1])[0], alone, rtol=0, atol=1e-6)
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
