"""Dilated convolutions with channels innermost, and their gradients: tap by tap, or in tiles of a few outputs for less work.

With three taps, two outputs that are a dilation apart take six products of an input and a tap. Sums of inputs times sums of taps
do with four, and four outputs with six instead of twelve (Winograd's F(2, 3) and F(4, 3): Lavin and Gray, 2015, arXiv:1509.09308).
So do the gradients, of the inputs and of the taps: each of the sums is a small matrix, and backward takes it transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 4096  # groups whose products a CPU adds up while they are in its cache
MAX_PADDING = 1 / 8  # of the groups: what a last, incomplete tile may waste
# B batch, G groups, I channels that are heard, O channels that are made, k kernel size
# d dilation, n outputs of a tile, S products of a tile, N blocks of n * d groups in an item, each of d tiles


class Direct(NamedTuple):
    """A same-length convolution, tap by tap; arranged weights are (O, k, I)."""

    dilation: int

    def arranged(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A weight (O, I, k) as the other methods take it, in the dtype that they compute in."""
        return weight.to(dtype).transpose(1, 2).contiguous()  # in this order it takes half the time

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous. PyTorch keeps this layout in 2-d only."""
        # views in memory format channels_last
        image, kernel = x.transpose(1, 2)[:, :, None], weight.transpose(1, 2)[:, :, None]
        made = F.conv2d(image, kernel, bias, padding=(0, self._padding(weight)), dilation=(1, self.dilation))
        return made[:, :, 0].transpose(1, 2).contiguous()  # a view as well, unless a backend chose another layout

    def backward(self, d_made: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, k) from that of the result (B, G, O)."""
        size, groups = weight.shape[1], x.shape[1]
        d_x = d_made @ weight[:, size // 2]
        d_taps = [weight.new_empty(len(weight), x.shape[2]) for _ in range(size)]
        for i, d_tap in enumerate(d_taps):
            shift = (i - size // 2) * self.dilation
            heard, made = slice(max(shift, 0), max(groups + shift, 0)), slice(max(-shift, 0), max(groups - shift, 0))
            torch.mm(d_made[:, made].flatten(0, 1).t(), x[:, heard].flatten(0, 1), out=d_tap)
            if shift:
                _add_product(d_made[:, made], weight[:, i], onto=d_x[:, heard])
        return d_x, torch.stack(d_taps, dim=2)

    def _padding(self, weight: Tensor) -> int:
        return self.dilation * (weight.shape[1] - 1) // 2


class Tile(NamedTuple):
    """How to make n outputs, a dilation apart, of S products: each hears a sum of the n + 2 inputs, times a sum of the taps."""

    heard: Sequence[Sequence[float]]  # (S, n + 2): how much of each input each product hears
    taps: Sequence[Sequence[float]]  # (S, 3): how much of each tap it is multiplied with
    made: Sequence[Sequence[float]]  # (n, S): how much of each product is in each output
    channels: int  # with fewer heard, what is saved in products goes into sums


TWO = Tile(
    heard=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    taps=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    made=((1, 1, 1, 0), (0, 1, -1, 1)),
    channels=512,
)
FOUR = Tile(  # its large factors cost two bits, which half precision cannot spare
    heard=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    taps=(
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    made=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    channels=256,
)


class Tiled(NamedTuple):
    """The same as Direct for three taps, to rounding, in tiles; arranged weights are (S, O, I)."""

    dilation: int
    tile: Tile

    def arranged(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A weight (O, I, 3) as the other methods take it, in the dtype that they compute in."""
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        # A product with the taps innermost is the quickest way to put them outermost.
        sums = torch.mm(weight.new_tensor(self.tile.taps), weight.reshape(-1, 3).t())
        return sums.unflatten(1, weight.shape[:2]).to(dtype)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous."""
        heard = self._heard(x).flatten(1, 2)
        made = x.new_empty(heard.shape[1], len(self.tile.made), self.dilation, weight.shape[1])
        block = max(BLOCK // made[0, :, :, 0].numel(), 1)
        for start in range(0, len(made), block):
            rows = slice(start, start + block)
            products = torch.bmm(heard[:, rows].flatten(1, 2), weight.transpose(1, 2))
            products[1] += bias  # this product is once in each output
            _add_up(products.unflatten(1, (-1, self.dilation)), self.tile.made, made[rows].unbind(1))
        return made.view(len(x), -1, weight.shape[1])[:, : x.shape[1]].contiguous()

    def backward(self, d_made: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, 3) from that of the result (B, G, O)."""
        d_products = self._of_products(d_made)
        flat = d_products.flatten(1, 3)
        d_heard = torch.bmm(flat, weight).unflatten(1, d_products.shape[1:4])
        d_weight = torch.bmm(flat.transpose(1, 2), self._heard(x).flatten(1, 3))
        return self._of_x(d_heard, x.shape[1]), self._of_weight(d_weight)

    def _heard(self, x: Tensor) -> Tensor:
        """x (B, G, I) -> what each product hears (S, B, N, d, I)."""
        n, d = len(self.tile.made), self.dilation
        blocks = -(-x.shape[1] // (n * d))
        padded = F.pad(x, (0, 0, d, (blocks + 1) * n * d - d - x.shape[1]))  # 0 before the clip, and after it
        sums = x.new_empty(len(self.tile.heard), len(x), blocks, d, x.shape[2])
        _add_up(self._inputs(padded), self.tile.heard, sums)
        return sums

    def _inputs(self, padded: Tensor) -> list[Tensor]:
        """Groups, d of them before the first, (B, (N + 1) * n * d, I) -> each input of all tiles, (B, N, d, I); views."""
        n = len(self.tile.made)
        places = padded.unflatten(1, (-1, n, self.dilation)).unbind(2)
        return [place[:, :-1] for place in places] + [place[:, 1:] for place in places[:2]]

    def _of_products(self, d_made: Tensor) -> Tensor:
        """The gradient of the products (S, B, N, d, O) from that of the result (B, G, O)."""
        n = len(self.tile.made)
        padded = F.pad(d_made, (0, 0, 0, -d_made.shape[1] % (n * self.dilation)))
        outputs = padded.unflatten(1, (-1, n, self.dilation)).unbind(2)
        sums = d_made.new_empty(len(self.tile.heard), *outputs[0].shape)
        _add_up(outputs, _transposed(self.tile.made), sums)
        return sums

    def _of_x(self, d_heard: Tensor, groups: int) -> Tensor:
        """The gradient of x (B, G, I) from that of what the products hear (S, B, N, d, I)."""
        _, batch, blocks, d, channels = d_heard.shape
        n = len(self.tile.made)
        padded = d_heard.new_empty(batch, blocks + 1, n * d, channels)
        padded[:, -1, : 2 * d] = 0
        padded = padded.flatten(1, 2)
        inputs, sums = self._inputs(padded), _transposed(self.tile.heard)
        _add_up(d_heard, sums[:n], inputs[:n])
        _add_up(d_heard, sums[n:], inputs[n:], onto=True)  # the next tiles' first ones
        return padded[:, d : d + groups]

    def _of_weight(self, d_weight: Tensor) -> Tensor:
        """The gradient of a weight (O, I, 3), at least float32, from that of the arranged one."""
        d_weight = d_weight.to(torch.promote_types(d_weight.dtype, torch.float32))
        taps = [torch.empty_like(d_weight[0]) for _ in range(3)]
        _add_up(d_weight, _transposed(self.tile.taps), taps)
        return torch.stack(taps, dim=2)


Convolution = Direct | Tiled


def convolution(x: Tensor, weight: Tensor, dilation: int) -> Convolution:
    """The way that is quickest for x (B, G, C), in the dtype to compute in, and a weight (O, I, k): in tiles where a CPU gains."""
    half = x.dtype in (torch.bfloat16, torch.float16)
    tile = TWO if half else FOUR
    size, groups = len(tile.made) * dilation, x.shape[1]
    gains = weight.shape[1] >= tile.channels and weight.shape[2] == 3 and -groups % size <= groups * MAX_PADDING
    gains = gains and x.device.type == "cpu" and not (half and _has_amx())
    return Tiled(dilation, tile) if gains else Direct(dilation)


@cache
def _has_amx() -> bool:
    """Whether the CPU multiplies matrices as such: its products in half precision cost less than what tiles add up."""
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", bool)())


def _add_product(a: Tensor, b: Tensor, onto: Tensor) -> None:
    """(B, G, I) += a (B, G, O) @ b (O, I); a CPU is quicker without a batch."""
    if a.device.type == "cpu":
        for total, item in zip(onto, a, strict=True):
            total.addmm_(item, b)
    else:
        onto.baddbmm_(a, b.expand(len(a), -1, -1))


def _transposed(matrix: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    return list(zip(*matrix, strict=True))


def _add_up(
    parts: Sequence[Tensor] | Tensor,
    factors: Sequence[Sequence[float]],
    sums: Sequence[Tensor] | Tensor,
    onto: bool = False,
) -> None:
    """Write to each sum the parts times its row of factors, or add it: in as few passes as there are, and no small ones."""
    for row, out in zip(factors, sums, strict=True):
        terms = [(factor, part) for factor, part in zip(row, parts, strict=True) if factor]
        terms.sort(key=lambda term: term[0] != 1)
        if not onto:
            (first, part), *terms = terms
            if first == 1 and terms:
                (second, other), *terms = terms
                torch.add(part, other, alpha=second, out=out)
            else:
                torch.mul(part, first, out=out)
        for factor, part in terms:
            out.add_(part, alpha=factor)
