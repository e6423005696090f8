"""Numbers for tests that compare with formulas, in float64."""

import torch
from torch import Tensor


def randn(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def assert_close(got: Tensor, want: Tensor, bound: float = 1e-12) -> None:
    """Check that no number is further from the wanted one than the bound."""
    torch.testing.assert_close(got, want, rtol=0, atol=bound)
