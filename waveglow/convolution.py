"""Dilated convolutions with channels innermost, and their gradients: tap by tap, or in pairs of groups for a third less work.

Two outputs of a kernel of three taps that are a dilation apart hear four inputs, and take six products of an input and a tap. Sums
and differences of inputs and taps take four (F(2, 3) of Winograd's: Lavin and Gray, 2015, arXiv:1509.09308). So do both gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 4096  # groups whose products a CPU adds up while they are in its cache
MIN_CHANNELS = 64  # with fewer, what is saved in products goes into sums
MAX_PADDING = 1 / 8  # of the groups: what pairs may fill up
# B batch, G groups, I channels that are heard, O channels that are made, k kernel size
# d dilation, N blocks of 2 * d groups in all items, whose first d groups are paired with their last d


class Direct(NamedTuple):
    """A same-length convolution, tap by tap; arranged weights are (O, k, I)."""

    dilation: int

    def arranged(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A weight (O, I, k) as the other methods take it, in the dtype that they compute in."""
        return weight.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous. PyTorch keeps this layout in 2-d only."""
        # views in memory format channels_last
        image, kernel = x.transpose(1, 2)[:, :, None], weight.transpose(1, 2)[:, :, None]
        made = F.conv2d(image, kernel, bias, padding=(0, self._padding(weight)), dilation=(1, self.dilation))
        return made[:, :, 0].transpose(1, 2).contiguous()  # a view as well, unless a backend chose another layout

    def backward(self, d_made: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, k) from that of the result (B, G, O)."""
        size, groups, padding = weight.shape[1], x.shape[1], self._padding(weight)
        padded = F.pad(x, (0, 0, padding, padding))
        seen = torch.cat([padded[:, i * self.dilation : i * self.dilation + groups] for i in range(size)], dim=2)
        d_weight = d_made.flatten(0, 1).t() @ seen.flatten(0, 1)
        return self._back(d_made, weight), d_weight.view_as(weight).transpose(1, 2)

    def _back(self, d_made: Tensor, weight: Tensor) -> Tensor:
        spread = (d_made @ weight.flatten(1)).unflatten(2, weight.shape[1:])  # (B, G, k, I): of what each group saw
        size, groups = weight.shape[1], d_made.shape[1]
        d_x = spread[:, :, size // 2].clone()
        for i in range(size):
            shift = (i - size // 2) * self.dilation
            if 0 < abs(shift) < groups:
                end = groups - abs(shift)
                seen, seeing = max(shift, 0), max(-shift, 0)
                d_x[:, seen : seen + end] += spread[:, seeing : seeing + end, i]
        return d_x

    def _padding(self, weight: Tensor) -> int:
        return self.dilation * (weight.shape[1] - 1) // 2


class Tiled(NamedTuple):
    """The same for three taps, to rounding, by Winograd's sums; arranged weights are (S, O, I)."""

    dilation: int
    tile: Tile

    def arranged(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A weight (O, I, 3) as the other methods take it, in the dtype that they compute in."""
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        # A product with the taps innermost is the quickest way to put them outermost.
        sums = torch.mm(weight.new_tensor(self.tile.of_taps), weight.reshape(-1, 3).t())
        return sums.unflatten(1, weight.shape[:2]).to(dtype)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous."""
        heard = self._sums_heard(x).flatten(1, 2)
        made = x.new_empty(heard.shape[1], self.tile.size, self.dilation, weight.shape[1])
        block = max(BLOCK // (self.tile.size * self.dilation), 1)
        for start in range(0, len(made), block):
            rows = slice(start, start + block)
            products = torch.bmm(heard[:, rows].flatten(1, 2), weight.transpose(1, 2))
            products[1] += bias  # which is in each output once
            _mix(products.unflatten(1, (-1, self.dilation)), self.tile.made, made[rows].unbind(1))
        return made.view(len(x), -1, weight.shape[1])[:, : x.shape[1]].contiguous()

    def backward(self, d_made: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, 3) from that of the result (B, G, O)."""
        d_products = self._sums_made(d_made)
        flat = d_products.flatten(1, 3)
        d_heard = torch.bmm(flat, weight).unflatten(1, d_products.shape[1:4])
        d_sums = torch.bmm(flat.transpose(1, 2), self._sums_heard(x).flatten(1, 3))
        return self._back_from_heard(d_heard, x.shape[1]), self._back_from_taps(d_sums)

    def _sums_heard(self, x: Tensor) -> Tensor:
        """x (B, G, I) -> what each product of a tile hears (S, B, N / B, d, I)."""
        blocks = -(-x.shape[1] // (self.tile.size * self.dilation))
        end = (blocks * self.tile.size + 1) * self.dilation
        padded = F.pad(x, (0, 0, self.dilation, end - x.shape[1]))  # all is 0 before the clip, and after it
        sums = x.new_empty(len(self.tile.heard), len(x), blocks, self.dilation, x.shape[2])
        _mix(self._seen(padded), self.tile.heard, sums)
        return sums

    def _seen(self, padded: Tensor) -> list[Tensor]:
        """padded (B, G + 2d, I) -> the groups that all tiles hear, first, second ..., (B, N / B, d, I) each; views."""
        n = self.tile.size
        length = padded.shape[1] - 2 * self.dilation
        starts = [i * self.dilation for i in range(n + 2)]
        return [
            padded[:, start : start + length].unflatten(1, (-1, n, self.dilation))[:, :, 0]
            if start + length <= padded.shape[1]
            else padded[:, start:].unflatten(1, (-1, self.dilation))[:, ::n]
            for start in starts
        ]

    def _sums_made(self, d_made: Tensor) -> Tensor:
        """The gradients of a tile's products (S, B, N / B, d, O) from that of the result (B, G, O)."""
        padded = F.pad(d_made, (0, 0, 0, -d_made.shape[1] % (self.tile.size * self.dilation)))
        outputs = padded.unflatten(1, (-1, self.tile.size, self.dilation)).unbind(2)
        sums = d_made.new_empty(len(self.tile.heard), *outputs[0].shape)
        _mix(outputs, list(zip(*self.tile.made)), sums)
        return sums

    def _back_from_heard(self, d_sums: Tensor, groups: int) -> Tensor:
        """The gradient of x (B, G, I) from those of what a tile's products hear (S, B, N / B, d, I)."""
        _, batch, blocks, dilation, channels = d_sums.shape
        n = self.tile.size
        d_padded = d_sums.new_empty(batch, (blocks * n + 2) * dilation, channels)
        d_padded[:, blocks * n * dilation :] = 0
        seen = self._seen(d_padded)
        back = list(zip(*self.tile.heard))
        _mix(d_sums, back[:n], seen[:n])
        _mix(d_sums, back[n:], seen[n:], add=True)
        return d_padded[:, dilation : dilation + groups].contiguous()

    def _back_from_taps(self, d_sums: Tensor) -> Tensor:
        """The gradient of a weight (O, I, 3), at least float32, from that of the sums of its taps (S, O, I)."""
        d_sums = d_sums.to(torch.promote_types(d_sums.dtype, torch.float32))
        d_taps = [torch.empty_like(d_sums[0]) for _ in range(3)]
        _mix(d_sums, list(zip(*self.tile.of_taps)), d_taps)
        return torch.stack(d_taps, dim=2)


class Tile(NamedTuple):
    """How to make some outputs, a dilation apart, of as many products: each hears a sum of inputs times a sum of taps."""

    heard: Sequence[Sequence[float]]  # of a row for each product: how often it hears each input
    of_taps: Sequence[Sequence[float]]
    made: Sequence[Sequence[float]]  # of a row for each output: how often each product is in it

    @property
    def size(self) -> int:
        return len(self.made)


PAIR = Tile(
    heard=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    of_taps=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    made=((1, 1, 1, 0), (0, 1, -1, 1)),
)
FOUR = Tile(
    heard=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    of_taps=(
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    made=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
)


def _mix(parts, weights, sums, add=False) -> None:
    for row, out in zip(weights, sums, strict=True):
        terms = sorted(((w, part) for w, part in zip(row, parts, strict=True) if w), key=lambda term: term[0] != 1)
        if not add:
            (first, part), *terms = terms
            if first == 1 and terms:
                (second, other), *terms = terms
                torch.add(part, other, alpha=second, out=out)
            elif first == 1:
                out.copy_(part)
            else:
                torch.mul(part, first, out=out)
        for w, part in terms:
            out.add_(part, alpha=w)


Convolution = Direct | Tiled


def convolution(x: Tensor, weight: Tensor, dilation: int) -> Convolution:
    """The way that is quicker for x (B, G, C) and a weight (O, I, k): in pairs on a CPU, where they save more than they take."""
    groups = x.shape[1]
    worthwhile = weight.shape[1] >= MIN_CHANNELS and -groups % (2 * dilation) <= groups * MAX_PADDING
    tile = PAIR if x.dtype == torch.bfloat16 else FOUR
    return Tiled(dilation, tile) if x.device.type == "cpu" and weight.shape[2] == 3 and worthwhile else Direct(dilation)
