"""Dilated convolutions with channels innermost, and their gradients: tap by tap, or in tiles of four outputs for less work.

With three taps, four outputs that are a dilation apart take twelve products of an input and a tap. Products of sums of inputs with
sums of taps take only six (Winograd's F(4, 3): Lavin and Gray, 2015, arXiv:1509.09308), and so do the gradients of the inputs and
of the taps: the sums are products with small matrices, and the backward multiplies by their transposes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.kernels.private_ops import processor

# B batch, G groups, I input channels, O output channels, k kernel size
# d dilation, S = 6 products of a tile, N blocks of 4 * d groups in an item, each of d tiles

BLOCK = 4096  # groups whose products are added up while they are in the CPU's cache
MIN_CHANNELS = 256  # with fewer inputs the sums cost more than the saved products
MAX_PADDING = 1 / 8  # largest share of the groups wasted on a last, incomplete tile
# A tile's products are sums of its six inputs (S, 6) times sums of the taps (S, 3); its outputs are sums of these products (4, S).
INPUTS = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
TAPS = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
OUTPUTS = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
SIZE = len(OUTPUTS)


class Direct(NamedTuple):
    """A same-length convolution, tap by tap; arranged weights are (O, k, I)."""

    dilation: int

    def arrange(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """Arrange a weight (O, I, k) as the other methods take it, in the dtype of the products."""
        return weight.to(dtype).transpose(1, 2).contiguous()  # in this order it takes half the time

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous. PyTorch keeps this layout in 2-d only."""
        # Views in memory format channels_last.
        image, kernel = x.transpose(1, 2)[:, :, None], weight.transpose(1, 2)[:, :, None]
        padding = self.dilation * (weight.shape[1] - 1) // 2
        outputs = F.conv2d(image, kernel, bias, padding=(0, padding), dilation=(1, self.dilation))
        return outputs[:, :, 0].transpose(1, 2).contiguous()  # a view as well, unless a backend chose another layout

    def backward(self, d_outputs: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, k) from that of the outputs (B, G, O)."""
        size, groups = weight.shape[1], x.shape[1]
        d_x = d_outputs @ weight[:, size // 2]
        d_taps = [weight.new_empty(len(weight), x.shape[2]) for _ in range(size)]
        for i, d_tap in enumerate(d_taps):
            shift = (i - size // 2) * self.dilation
            inputs = slice(max(shift, 0), max(groups + shift, 0))
            outputs = slice(max(-shift, 0), max(groups - shift, 0))
            torch.mm(d_outputs[:, outputs].flatten(0, 1).t(), x[:, inputs].flatten(0, 1), out=d_tap)
            if shift:
                _add_product(d_outputs[:, outputs], weight[:, i], onto=d_x[:, inputs])
        return d_x, torch.stack(d_taps, dim=2)


class WinogradTiles(NamedTuple):
    """The same as Direct for three taps, to rounding, in tiles; arranged weights are (S, O, I)."""

    dilation: int

    def arrange(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """Arrange a weight (O, I, 3) as the other methods take it, in the dtype of the products."""
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        # A product with the taps innermost is the quickest way to move them outermost.
        sums = torch.mm(weight.new_tensor(TAPS), weight.reshape(-1, 3).t())
        return sums.unflatten(1, weight.shape[:2]).to(dtype)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous."""
        inputs = self._sum_inputs(x).flatten(1, 2)
        outputs = x.new_empty(inputs.shape[1], SIZE, self.dilation, weight.shape[1])
        block = max(BLOCK // (SIZE * self.dilation), 1)
        for start in range(0, len(outputs), block):
            rows = slice(start, start + block)
            products = torch.bmm(inputs[:, rows].flatten(1, 2), weight.transpose(1, 2))
            products[1] += bias  # each output contains this product once
            _combine(products.unflatten(1, (-1, self.dilation)), OUTPUTS, outputs[rows].unbind(1))
        return outputs.view(len(x), -1, weight.shape[1])[:, : x.shape[1]].contiguous()

    def backward(self, d_outputs: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, 3) from that of the outputs (B, G, O)."""
        d_products = self._products_gradient(d_outputs)
        flat = d_products.flatten(1, 3)
        d_inputs = torch.bmm(flat, weight).unflatten(1, d_products.shape[1:4])
        d_weight = torch.bmm(flat.transpose(1, 2), self._sum_inputs(x).flatten(1, 3))
        return self._x_gradient(d_inputs, x.shape[1]), self._weight_gradient(d_weight)

    def _sum_inputs(self, x: Tensor) -> Tensor:
        """x (B, G, I) -> the input of each product (S, B, N, d, I)."""
        d = self.dilation
        blocks = -(-x.shape[1] // (SIZE * d))
        padded = F.pad(x, (0, 0, d, (blocks + 1) * SIZE * d - d - x.shape[1]))  # 0 before the clip, and after it
        sums = x.new_empty(len(INPUTS), len(x), blocks, d, x.shape[2])
        _combine(self._inputs(padded), INPUTS, sums)
        return sums

    def _inputs(self, padded: Tensor) -> list[Tensor]:
        """Groups, d of them before the first, (B, (N + 1) * 4 * d, I) -> each input of all tiles, (B, N, d, I); views."""
        places = padded.unflatten(1, (-1, SIZE, self.dilation)).unbind(2)
        return [place[:, :-1] for place in places] + [place[:, 1:] for place in places[:2]]

    def _products_gradient(self, d_outputs: Tensor) -> Tensor:
        """The gradient of the products (S, B, N, d, O) from that of the outputs (B, G, O)."""
        padded = F.pad(d_outputs, (0, 0, 0, -d_outputs.shape[1] % (SIZE * self.dilation)))
        outputs = padded.unflatten(1, (-1, SIZE, self.dilation)).unbind(2)
        sums = d_outputs.new_empty(len(INPUTS), *outputs[0].shape)
        _combine(outputs, _transpose(OUTPUTS), sums)
        return sums

    def _x_gradient(self, d_inputs: Tensor, groups: int) -> Tensor:
        """The gradient of x (B, G, I) from that of the products' inputs (S, B, N, d, I)."""
        _, batch, blocks, d, channels = d_inputs.shape
        padded = d_inputs.new_empty(batch, blocks + 1, SIZE * d, channels)
        padded[:, -1, : 2 * d] = 0
        padded = padded.flatten(1, 2)
        inputs, sums = self._inputs(padded), _transpose(INPUTS)
        _combine(d_inputs, sums[:SIZE], inputs[:SIZE])
        _combine(d_inputs, sums[SIZE:], inputs[SIZE:], add=True)  # the next tiles' first inputs
        return padded[:, d : d + groups]

    def _weight_gradient(self, d_weight: Tensor) -> Tensor:
        """The gradient of a weight (O, I, 3), at least float32, from that of the arranged one."""
        d_weight = d_weight.to(torch.promote_types(d_weight.dtype, torch.float32))
        taps = [torch.empty_like(d_weight[0]) for _ in range(3)]
        _combine(d_weight, _transpose(TAPS), taps)
        return torch.stack(taps, dim=2)


Convolution = Direct | WinogradTiles


def convolution(x: Tensor, weight: Tensor, dilation: int, forward_alone: bool = False) -> Convolution:
    """Choose the fastest method for x (B, G, C), in the dtype of the products, and a weight (O, I, k).

    Tiles gain in forward and backward together, but not in a forward alone on Zen 5: 0.90 of the speed there (WaveGlow-256).
    """
    if forward_alone and processor().is_zen_5:
        return Direct(dilation)
    size, groups = SIZE * dilation, x.shape[1]
    exact = x.dtype in (torch.float32, torch.float64)  # the large factors of INPUTS cost two bits
    saves = weight.shape[1] >= MIN_CHANNELS and weight.shape[2] == 3 and -groups % size <= groups * MAX_PADDING
    return WinogradTiles(dilation) if exact and saves and x.device.type == "cpu" else Direct(dilation)


def _add_product(a: Tensor, b: Tensor, onto: Tensor) -> None:
    """(B, G, I) += a (B, G, O) @ b (O, I); item by item on a CPU, where that is faster."""
    if a.device.type == "cpu":
        for total, item in zip(onto, a, strict=True):
            total.addmm_(item, b)
    else:
        onto.baddbmm_(a, b.expand(len(a), -1, -1))


def _transpose(matrix: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    return list(zip(*matrix, strict=True))


def _combine(
    parts: Sequence[Tensor] | Tensor,
    factors: Sequence[Sequence[float]],
    sums: Sequence[Tensor] | Tensor,
    add: bool = False,
) -> None:
    """Write the parts times a row of factors to each sum, or add them to it, in as few passes over memory as possible."""
    for row, out in zip(factors, sums, strict=True):
        terms = [(factor, part) for factor, part in zip(row, parts, strict=True) if factor]
        terms.sort(key=lambda term: term[0] != 1)
        if not add:
            (first, part), *terms = terms
            if first == 1 and terms:
                (second, other), *terms = terms
                torch.add(part, other, alpha=second, out=out)
            else:
                torch.mul(part, first, out=out)
        for factor, part in terms:
            out.add_(part, alpha=factor)
