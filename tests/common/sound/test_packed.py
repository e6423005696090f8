"""Products with a weight that was arranged beforehand, against float64."""

from __future__ import annotations

import pytest
import torch

from common.sound.packed import packed


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "float16", "bound"), [
    (torch.float32, False, 1e-6),
    (torch.float32, True, 2**-11),
    (torch.float64, True, 1e-15),
])  # fmt: skip
def test_products(rows: int, bias: bool, dtype: torch.dtype, float16: bool, bound: float) -> None:
    """The bound is on each weight; the sum of 70 of them may be off by as much of the sum of sizes."""
    weight, x = torch.randn(33, 70, dtype=dtype), torch.randn(rows, 70, dtype=dtype)
    b = torch.randn(33, dtype=dtype) if bias else None
    multiply = packed(weight, 8, b, float16)
    want = x.double() @ weight.double().t() + (0 if b is None else b.double())
    sizes = x.double().abs() @ weight.double().abs().t() + 1
    assert ((multiply(x) - want).abs() <= bound * sizes).all()


def test_float16_rounds_where_a_cpu_can() -> None:
    """Only then is it half the bytes to read; rounded weights give what rounded weights give."""
    weight, x = torch.randn(40, 50), torch.randn(2, 50)
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("FBGEMM is for x86 only")
    rounded = packed(weight, 8, None, True)(x)
    torch.testing.assert_close(rounded, x @ weight.half().float().t(), rtol=0, atol=2e-5)
    assert not torch.allclose(rounded, x @ weight.t(), rtol=0, atol=2e-5)


def test_a_part_of_a_weight_and_of_a_row() -> None:
    """Neither has to be contiguous, as they are not where a recurrence keeps all it carries in one row."""
    weight, x = torch.randn(20, 30).t()[5:], torch.randn(4, 40)[:, 7:27]
    for float16, bound in ((False, 1e-5), (True, 0.02)):
        torch.testing.assert_close(packed(weight, 8, None, float16)(x), x @ weight.t(), rtol=0, atol=bound)


def test_pytorchs_switch_turns_onednn_off() -> None:
    weight, x = torch.randn(5, 6), torch.randn(2, 6)
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(packed(weight, 2)(x), torch.nn.functional.linear(x, weight))


def test_bfloat16_with_or_without_its_instructions() -> None:
    """As emulated half precision asks for, on any CPU."""
    weight, x = torch.randn(20, 30).bfloat16(), torch.randn(3, 30).bfloat16()
    want = x.double() @ weight.double().t()
    torch.testing.assert_close(packed(weight, 3)(x).double(), want, rtol=2**-7, atol=0.05)
