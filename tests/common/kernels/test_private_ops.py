"""Private operators against public PyTorch, and the ways without them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from common.kernels import private_ops
from tests.recipe import ROOT


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


@pytest.mark.slow
def test_importing_probes_nothing() -> None:
    code = "from common.kernels import private_ops as p; import sys; "
    code += "sys.exit(p.has_weight_norm.cache_info().currsize + p.has_int8_products.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


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
    private_ops.has_bfloat16.cache_clear()
    try:
        assert private_ops.has_bfloat16() is fast
    finally:
        private_ops.has_bfloat16.cache_clear()


def test_the_processor_is_the_first_that_linux_lists() -> None:
    first = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: A CPU: fast\nflags\t\t: fpu\n"
    listing = first + "\n" + first.replace("6", "7")
    assert private_ops.parse_processor(listing) == ("GenuineIntel", 6, "A CPU: fast")
    for other in ("processor : 0\nBogoMIPS : 50.00\nCPU architecture: 8\n", "cpu family : ?", ""):  # the first is Arm's
        assert private_ops.parse_processor(other) == private_ops.Processor()
    listed = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    assert private_ops.processor().vendor in listed
