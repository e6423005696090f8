"""Products with a weight that was arranged beforehand, against float64."""

from __future__ import annotations

import pytest
import torch

from common.kernels import private_ops
from common.kernels.packed import pack, reads_float16


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
    multiply = pack(weight, 8, b, float16)
    want = x.double() @ weight.double().t() + (0 if b is None else b.double())
    sizes = x.double().abs() @ weight.double().abs().t() + 1
    assert ((multiply(x) - want).abs() <= bound * sizes).all()


def test_float16_rounds_where_a_cpu_can() -> None:
    """The product with rounded weights is that of the weights rounded by hand."""
    weight, x = torch.randn(40, 50), torch.randn(2, 50)
    if not reads_float16(weight.device):
        pytest.skip("FBGEMM is for x86 only")
    rounded = pack(weight, 8, None, True)(x)
    torch.testing.assert_close(rounded, x @ weight.half().float().t(), rtol=0, atol=2e-5)
    assert not torch.allclose(rounded, x @ weight.t(), rtol=0, atol=2e-5)


def test_a_part_of_a_weight_and_of_a_row() -> None:
    """Neither has to be contiguous, as in a recurrence whose state is one row."""
    weight, x = torch.randn(20, 30).t()[5:], 2 * torch.rand(4, 40)[:, 7:27] - 1
    for float16, bound in ((False, 1e-5), (True, 0.02)):
        torch.testing.assert_close(pack(weight, 8, None, float16)(x), x @ weight.t(), rtol=0, atol=bound)


def test_pytorchs_switch_turns_onednn_off() -> None:
    weight, x = torch.randn(5, 6), torch.randn(2, 6)
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(pack(weight, 2)(x), torch.nn.functional.linear(x, weight))


def test_bfloat16_with_or_without_its_instructions() -> None:
    """As emulated half precision asks for, on any CPU."""
    weight, x = torch.randn(20, 30).bfloat16(), torch.randn(3, 30).bfloat16()
    want = x.double() @ weight.double().t()
    torch.testing.assert_close(pack(weight, 3)(x).double(), want, rtol=2**-7, atol=0.05)


def test_every_cpu_has_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any private operator the documented product takes over."""
    weight, x = torch.randn(20, 30), torch.randn(2, 30)
    for name in ("has_packed_linear", "has_float16_linear"):
        monkeypatch.setattr(private_ops, name, lambda *_: False)
    for float16 in (False, True):
        assert torch.equal(pack(weight, 3, None, float16)(x), torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize("float16", [False, True])
def test_a_row_does_not_depend_on_the_others(float16: bool) -> None:
    """Bit for bit, for sizes as in the decoder."""
    weight, x = torch.randn(512, 448), torch.randn(9, 448)
    product = pack(weight, 8, None, float16)
    if not private_ops.has_packed_linear(torch.float32):
        pytest.skip("oneDNN takes no packed weights here")
    for rows in ([0], [4, 0], [3, 0, 8], list(range(9))):
        assert torch.equal(product(x[rows]), torch.cat([product(x[[row]]) for row in rows]))
