"""Products in 8 bits and with packed weights, against float64; private operators, and the ways without them."""

import pytest
import torch

from common.kernels import private_ops
from common.kernels.int8 import MIN_ROWS, ZERO, Convolution, Levels, Product, can_multiply, quantise
from common.kernels.packed import pack, reads_float16

# By the instructions alone: where they are and the products are wrong, tests have to fail.
needs_vnni = pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="the CPU has no VNNI instructions")

needs_convolution = pytest.mark.skipif(
    not hasattr(torch.ops.onednn, "qconv_pointwise"), reason="this PyTorch has no such convolution (2.7 has none)"
)


def numbers(levels: Levels) -> torch.Tensor:
    return (levels.levels.double() - ZERO) * levels.step


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 5000])
def test_levels_are_the_nearest(dtype: torch.dtype, rows: int) -> None:
    x = (3 * torch.randn(rows, 7)).to(dtype)
    outputs = quantise(x)
    largest = x.abs().max().item()
    assert outputs.levels.dtype == torch.uint8 and outputs.step == pytest.approx(largest / 127)
    assert ((numbers(outputs) - x.double()).abs() <= largest / 254 * (1 + 1e-4)).all()
    assert numbers(outputs).abs().max() == pytest.approx(largest)


def test_levels_between_rows_of_zeros_of_zeros_alone_and_of_what_is_no_number() -> None:
    x = torch.tensor([[1.0, -1.0, 0.0], [0.5, 1 / 127, -0.9 / 127]])
    outputs = quantise(x, padding=2)
    rows = [[ZERO] * 3, [ZERO] * 3, [255, 1, ZERO], [192, ZERO + 1, ZERO - 1], [ZERO] * 3, [ZERO] * 3]
    assert outputs.levels.tolist() == rows and outputs.step == 1 / 127
    assert not numbers(quantise(torch.zeros(4, 3))).any()
    for wrong in (torch.nan, torch.inf, -torch.inf):
        assert numbers(quantise(torch.tensor([[1.0, wrong]]))).isnan().all()


@needs_vnni
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (3, 70, 33), (300, 768, 40), (2048, 5, 512)])
def test_products_of_levels_are_exact(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> None:
    """Weights and x of whole steps: float64 has their sums to the last digit. With all as large as can be nothing saturates."""
    steps = torch.logspace(-3, 3, outputs)[:, None]
    weight, x = torch.randint(-127, 128, (outputs, inputs)), torch.randint(-127, 128, (rows, inputs))
    weight[:, 0] = 127  # so that a row's step is what it was outputs with
    weight[-1], x[-1], x[:, 0] = 127, 127, 127
    bias = torch.randn(outputs)
    product = Product(weight * steps, bias)
    levels = quantise(x / 4)
    sums = (x.double() @ weight.double().t()) * steps[:, 0].double() / 4
    total = torch.full((rows, outputs), 2.0, dtype=dtype)
    product.add_to(total, levels)
    rounding = {"rtol": 1e-6, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2**-8, "atol": 0.01}
    torch.testing.assert_close(total.double(), sums + bias + 2, **rounding)


@needs_vnni
def test_weights_are_rounded_by_row() -> None:
    weight, x = torch.randn(40, 600) * torch.logspace(-3, 2, 40)[:, None], torch.randn(50, 600)
    weight[3] = 0.0
    inputs = quantise(x)
    outputs, want = torch.zeros(50, 40), numbers(inputs) @ weight.double().t()
    Product(weight, torch.zeros(40)).add_to(outputs, inputs)
    # of independent roundings: five standard deviations of the sum, each uniform within a step
    spread = weight.abs().amax(dim=1) / 127 * numbers(inputs).norm(dim=1, keepdim=True) / 12**0.5
    assert ((outputs - want).abs() <= 5 * spread + 1e-5 * want.abs()).all()
    assert not outputs[:, 3].any()


@needs_convolution
@needs_vnni
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "dilation"), [(1, 1), (2, 7), (3, 1), (3, 8), (5, 2)])
def test_a_convolution_of_levels_is_exact(size: int, dilation: int, dtype: torch.dtype) -> None:
    """Of a part of larger levels; weights of whole steps, powers of two, so that float64's convolution is exact."""
    steps, weight = 2.0 ** torch.linspace(-7, 7, 40).round()[:, None, None], torch.randint(-127, 128, (40, size, 9))
    weight[:, 0, 0] = 127
    bias, inputs = torch.randn(40), quantise(torch.randn(70, 9))
    part = Levels(inputs.levels[3:63], inputs.step)
    outputs = Convolution(weight * steps, bias, dilation)(part, dtype)
    taps = (weight * steps).transpose(1, 2).double()
    want = torch.nn.functional.conv1d(numbers(part).t(), taps, bias.double(), dilation=dilation).t()
    assert outputs.shape == want.shape and outputs.dtype == dtype
    torch.testing.assert_close(outputs.double(), want, rtol=1e-6 if dtype == torch.float32 else 2**-8, atol=1e-5)


@needs_vnni
def test_few_rows_and_parts_of_larger_tensors() -> None:
    """oneDNN's input is never shorter than the length that the weight was arranged for: other rows do not count."""
    convolution = Convolution(torch.randn(6, 3, 8), torch.randn(6), dilation=4)
    for rows in (1, MIN_ROWS, MIN_ROWS + 1):
        image, counting = convolution._image(quantise(torch.randn(rows + 8, 8)).levels)
        assert image.shape == (1, 8, 1, max(rows, MIN_ROWS) + 8) and counting == rows
    # neither levels nor total have to begin where their memory does
    inputs, product = quantise(torch.randn(120, 8)), Product(torch.randn(6, 8), torch.randn(6))
    for end in (9, 105):
        whole, total = torch.zeros(2, 120, 6)
        product.add_to(whole, inputs)
        product.add_to(total[5:end], Levels(inputs.levels[5:end], inputs.step))
        torch.testing.assert_close(total[5:end], whole[5:end], rtol=0, atol=1e-6)
        assert not total[:5].any() and not total[end:].any()


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "float16", "bound"),
    [(torch.float32, False, 1e-6), (torch.float32, True, 2**-11), (torch.float64, True, 1e-15)],
)
def test_products(rows: int, bias: bool, dtype: torch.dtype, float16: bool, bound: float) -> None:
    """The bound is on each weight; the sum of 70 of them may be off by as much of the sum of sizes."""
    weight, x = torch.randn(33, 70, dtype=dtype), torch.randn(rows, 70, dtype=dtype)
    b = torch.randn(33, dtype=dtype) if bias else None
    multiply = pack(weight, 8, b, float16)
    want = x.double() @ weight.double().t() + (0 if b is None else b.double())
    sizes = x.double().abs() @ weight.double().abs().t() + 1
    assert ((multiply(x) - want).abs() <= bound * sizes).all()


@pytest.mark.parametrize("float16", [False, True])
def test_float16_rounds_where_a_cpu_can_and_a_part_of_a_weight_and_of_a_row_may_be_given(float16: bool) -> None:
    weight, x = torch.randn(20, 30).t()[5:], 2 * torch.rand(4, 40)[:, 7:27] - 1
    if float16 and not reads_float16(weight.device):
        pytest.skip("FBGEMM is for x86 only")
    product, rounded = pack(weight, 8, None, float16)(x), x @ weight.half().float().t()
    torch.testing.assert_close(product, rounded if float16 else x @ weight.t(), rtol=0, atol=1e-5)
    assert torch.allclose(product, rounded, rtol=0, atol=2e-5) == float16


def test_every_cpu_has_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's switch turns oneDNN off, and bfloat16 needs no instructions."""
    weight, x = torch.randn(20, 30), torch.randn(3, 30)
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(pack(weight, 3)(x), torch.nn.functional.linear(x, weight))
    want = x.bfloat16().double() @ weight.bfloat16().double().t()
    torch.testing.assert_close(pack(weight.bfloat16(), 3)(x.bfloat16()).double(), want, rtol=2**-7, atol=0.05)
    # without any private operator the documented product takes over
    for name in ("has_packed_linear", "has_float16_linear"):
        monkeypatch.setattr(private_ops, name, lambda *_: False)
    for float16 in (False, True):
        assert torch.equal(pack(weight, 3, None, float16)(x), torch.nn.functional.linear(x, weight))
    assert not can_multiply(torch.device("cuda"))
    monkeypatch.setattr(private_ops, "has_int8_products", lambda: False)
    assert not can_multiply(torch.device("cpu"))


@pytest.mark.parametrize("float16", [False, True])
def test_a_row_does_not_depend_on_the_others(float16: bool) -> None:
    weight, x = torch.randn(512, 448), torch.randn(9, 448)
    product = pack(weight, 8, None, float16)
    if not private_ops.has_packed_linear(torch.float32):
        pytest.skip("oneDNN takes no packed weights here")
    for rows in ([0], [4, 0], [3, 0, 8], list(range(9))):
        assert torch.equal(product(x[rows]), torch.cat([product(x[[row]]) for row in rows]))


@pytest.mark.parametrize("has", [True, False], ids=["fused", "formula"])
@pytest.mark.parametrize("shape", [(5, 3, 3), (4, 7, 1)])
def test_weight_norm_and_its_gradients_equal_pytorchs_parametrization(
    shape: tuple[int, ...], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_ops, "has_weight_norm", lambda: has)
    conv = torch.nn.Conv1d(*shape[1::-1], shape[2]).double()
    conv = torch.nn.utils.parametrizations.weight_norm(conv)
    g, v = conv.parametrizations.weight.original0, conv.parametrizations.weight.original1
    with torch.no_grad():
        g.uniform_(0.5, 2.0)
    direction = torch.randn(shape, dtype=torch.float64)
    ours = private_ops.weight_norm(v, g)
    torch.testing.assert_close(ours, conv.weight, rtol=0, atol=1e-14)
    gradients = (torch.autograd.grad((weight * direction).sum(), (v, g)) for weight in (ours, conv.weight))
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


def test_an_operator_that_is_absent_or_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*arguments: object) -> torch.Tensor:
        raise AttributeError("no such operator")

    for operator in (absent, lambda v, g, dim: v):
        monkeypatch.setattr(torch, "_weight_norm", operator)
        private_ops.has_weight_norm.cache_clear()
        assert not private_ops.has_weight_norm()
        v, g = torch.randn(3, 2, 1), torch.rand(3, 1, 1)
        assert torch.equal(private_ops.weight_norm(v, g), private_ops.weight_norm_formula(v, g))
    private_ops.has_weight_norm.cache_clear()
    monkeypatch.setattr(private_ops, "add_int8_linear", absent)
    private_ops.has_int8_products.cache_clear()
    assert not private_ops.has_int8_products()
    private_ops.has_int8_products.cache_clear()


@pytest.mark.parametrize(("supported", "vendor", "amx", "fast"), [
    (True, "AuthenticAMD", False, True),
    (True, "", False, True),
    (True, "GenuineIntel", True, True),
    (True, "GenuineIntel", False, False),
    (False, "AuthenticAMD", True, False),
])  # fmt: skip
def test_bfloat16_is_fast_with_amx_or_on_cpus_of_others(
    supported: bool, vendor: str, amx: bool, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported, raising=False)
    monkeypatch.setattr(private_ops, "processor", lambda: private_ops.Processor(vendor))
    monkeypatch.setattr(private_ops, "has_amx", lambda: amx)
    assert private_ops.has_bfloat16.__wrapped__() is fast


def test_the_processor_is_the_first_that_linux_lists() -> None:
    first = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: A CPU: fast\nflags\t\t: fpu\n"
    assert private_ops.parse_processor(f"{first}\n{first.replace('6', '7')}") == ("GenuineIntel", 6, "A CPU: fast")
    assert private_ops.parse_processor("processor : 0\nCPU architecture: 8\n") == private_ops.Processor()  # Arm's
