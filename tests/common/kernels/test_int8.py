"""Products in 8 bits: exact where the numbers are levels, and against float64 within the rounding where they are not."""

import pytest
import torch

from common.kernels.int8 import MIN_ROWS, ZERO, Convolution, Levels, Product, can_multiply, quantise

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
    """Of a part of larger levels; weights of whole steps, so that float64's convolution is exact."""
    steps, weight = torch.logspace(-2, 2, 40)[:, None, None], torch.randint(-127, 128, (40, size, 9))
    weight[:, 0, 0] = 127
    bias, inputs = torch.randn(40), quantise(torch.randn(70, 9))
    part = Levels(inputs.levels[3:63], inputs.step)
    outputs = Convolution(weight * steps, bias, dilation)(part, dtype)
    taps = (weight * steps).transpose(1, 2).double()
    want = torch.nn.functional.conv1d(numbers(part).t(), taps, bias.double(), dilation=dilation).t()
    assert outputs.shape == want.shape and outputs.dtype == dtype
    torch.testing.assert_close(outputs.double(), want, rtol=1e-6 if dtype == torch.float32 else 2**-8, atol=1e-3)


@needs_vnni
@pytest.mark.parametrize("rows", [1, MIN_ROWS - 1, MIN_ROWS, MIN_ROWS + 1])
def test_few_rows_are_multiplied_with_rows_that_do_not_count(rows: int) -> None:
    """oneDNN's input is never shorter than the length that the weight was arranged for."""
    convolution = Convolution(torch.randn(6, 3, 8), torch.randn(6), dilation=4)
    image, counting = convolution._image(quantise(torch.randn(rows + 8, 8)).levels)
    assert image.shape == (1, 8, 1, max(rows, MIN_ROWS) + 8) and counting == rows


@needs_vnni
@pytest.mark.parametrize("end", [9, 105])
def test_parts_of_larger_tensors(end: int) -> None:
    """Neither levels nor total have to begin where their memory does."""
    inputs, product = quantise(torch.randn(120, 8)), Product(torch.randn(6, 8), torch.randn(6))
    whole, total = torch.zeros(2, 120, 6)
    product.add_to(whole, inputs)
    product.add_to(total[5:end], Levels(inputs.levels[5:end], inputs.step))
    torch.testing.assert_close(total[5:end], whole[5:end], rtol=0, atol=1e-6)
    assert not total[:5].any() and not total[end:].any()


def test_only_where_there_are_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_multiply(torch.device("cuda"))
    monkeypatch.setattr("common.kernels.private_ops.has_int8_products", lambda: False)
    assert not can_multiply(torch.device("cpu"))
