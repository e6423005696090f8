"""Products of a few rows with a large weight, as a recurrence needs at every step, at close to the machine's rate.

With few rows a BLAS spends most of its time rearranging the weight in each call; oneDNN takes a weight arranged once. FBGEMM also
takes it in float16 and multiplies in float32: it reads half the bytes, and reading is what a single row costs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from common.kernels import private_ops

# R rows, I inputs, O outputs

Product = Callable[[Tensor], Tensor]  # (R, I) -> (R, O)


def pack(weight: Tensor, rows: int, bias: Tensor | None = None, float16: bool = False) -> Product:
    """x (R, I) -> x @ weight.T + bias (R, O) without gradients, for a fixed weight (O, I) and about this many rows.

    With float16 a CPU may round a float32 weight by 2^-11 of each number. A row's result does not depend on the other rows, except
    with F.linear. Intel's BLAS reads a float32 weight faster for one or two rows, but its order of sums depends on their number.
    """
    weight = weight.detach()
    if float16 and weight.dtype == torch.float32 and reads_float16(weight.device):
        halves = private_ops.pack_float16_linear(weight, bias)
        if private_ops.float16_rows_agree():
            return lambda x: private_ops.float16_linear(x, halves)
        return lambda x: torch.cat([private_ops.float16_linear(row, halves) for row in x.split(1)])
    if _packs(weight):
        packed = private_ops.pack_linear(weight, rows)
        return lambda x: _packed_linear(x, packed, bias)
    return lambda x: F.linear(x, weight, bias)


def _packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """The packed product. oneDNN adds up a single row in another order than several, so a single row is passed twice."""
    if len(x) == 1:
        return private_ops.packed_linear(x.expand(2, -1), packed, bias)[:1]
    return private_ops.packed_linear(x, packed, bias)


def reads_float16(device: torch.device) -> bool:
    """True where `pack` can round a float32 weight to float16."""
    return device.type == "cpu" and private_ops.has_float16_linear()


def is_float16(weight: Tensor) -> bool:
    """True where float16 holds a weight without rounding, and `pack` reads it so for any number of rows at once."""
    reads = reads_float16(weight.device) and private_ops.float16_rows_agree()
    return reads and torch.equal(weight, weight.half().to(weight.dtype))


def _packs(weight: Tensor) -> bool:
    """True where oneDNN takes a packed weight and torch.backends.mkldnn.enabled is on."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.enabled:
        return False
    return private_ops.has_packed_linear(weight.dtype)
