"""Products with a weight that was arranged beforehand, against float64."""

from __future__ import annotations

import pytest
import torch

from common.kernels.packed import Kept, can_round, packed


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "kept", "bound"), [
    (torch.float32, "full", 1e-6),
    (torch.float32, "float16", 2**-11),
    (torch.float64, "float16", 1e-15),
    (torch.float64, "int8", 1e-15),
])  # fmt: skip
def test_products(rows: int, bias: bool, dtype: torch.dtype, kept: Kept, bound: float) -> None:
    """The bound is on each weight; the sum of 70 of them may be off by as much of the sum of sizes."""
    weight, x = torch.randn(33, 70, dtype=dtype), torch.randn(rows, 70, dtype=dtype)
    b = torch.randn(33, dtype=dtype) if bias else None
    multiply = packed(weight, 8, b, kept)
    want = x.double() @ weight.double().t() + (0 if b is None else b.double())
    sizes = x.double().abs() @ weight.double().abs().t() + 1
    assert ((multiply(x) - want).abs() <= bound * sizes).all()


def test_float16_rounds_where_a_cpu_can() -> None:
    """Only then is it half the bytes to read; rounded weights give what rounded weights give."""
    weight, x = torch.randn(40, 50), torch.randn(2, 50)
    if not can_round(weight.device):
        pytest.skip("FBGEMM is for x86 only")
    rounded = packed(weight, 8, None, "float16")(x)
    torch.testing.assert_close(rounded, x @ weight.half().float().t(), rtol=0, atol=2e-5)
    assert not torch.allclose(rounded, x @ weight.t(), rtol=0, atol=2e-5)


def test_a_part_of_a_weight_and_of_a_row() -> None:
    """Neither has to be contiguous, as they are not where a recurrence keeps all it carries in one row."""
    weight, x = torch.randn(20, 30).t()[5:], 2 * torch.rand(4, 40)[:, 7:27] - 1
    bounds: dict[Kept, float] = {"full": 1e-5, "float16": 0.02, "int8": 0.2}
    for kept, bound in bounds.items():
        torch.testing.assert_close(packed(weight, 8, None, kept)(x), x @ weight.t(), rtol=0, atol=bound)


@pytest.mark.parametrize("rows", [1, 5])
def test_int8_rounds_as_it_says(rows: int) -> None:
    """Weights by half a step of their row, x by half of 1/63; nothing saturates, be all as large as it can be."""
    weight, x = torch.randn(40, 600) * torch.logspace(-3, 2, 40)[:, None], 2 * torch.rand(rows, 600) - 1
    weight[3], bias = 0.0, torch.randn(40)
    if not can_round(weight.device):
        pytest.skip("FBGEMM is for x86 only")
    rounded = packed(weight, 8, bias, "int8")(x)
    want = x.double() @ weight.double().t() + bias.double()
    # of independent roundings: five standard deviations of the sum, each uniform within a step
    weight_steps, x_step = weight.abs().amax(dim=1) / 127, 1 / 63
    spread = ((weight_steps * x.norm(dim=1, keepdim=True)) ** 2 + (x_step * weight.norm(dim=1)) ** 2).sqrt() / 12**0.5
    assert ((rounded - want).abs() <= 5 * spread + 1e-5 * (1 + want.abs())).all()
    largest = torch.tensor([[1.0], [-1.0]]).expand(2, 600)
    torch.testing.assert_close(packed(largest, 8, None, "int8")(largest), largest @ largest.t(), rtol=1e-5, atol=0)


def test_int8_keeps_x_in_seven_bits_and_rows_apart() -> None:
    """Eight bits would saturate on some machines, and not on others; a row's neighbours do not change it."""
    weight, ramp = torch.ones(1, 1), torch.linspace(-1, 1, 1000)[:, None]
    if not can_round(weight.device):
        pytest.skip("FBGEMM is for x86 only")
    assert len(packed(weight, 8, None, "int8")(ramp).unique()) == 127
    weight, x = torch.randn(20, 64), torch.rand(2, 64) / 10
    multiply = packed(weight, 8, None, "int8")
    assert torch.equal(multiply(x)[:1], multiply(torch.cat((x[:1], 10 * x[1:])))[:1])


def test_pytorchs_switch_turns_onednn_off() -> None:
    weight, x = torch.randn(5, 6), torch.randn(2, 6)
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(packed(weight, 2)(x), torch.nn.functional.linear(x, weight))


def test_bfloat16_with_or_without_its_instructions() -> None:
    """As emulated half precision asks for, on any CPU."""
    weight, x = torch.randn(20, 30).bfloat16(), torch.randn(3, 30).bfloat16()
    want = x.double() @ weight.double().t()
    torch.testing.assert_close(packed(weight, 3)(x).double(), want, rtol=2**-7, atol=0.05)
