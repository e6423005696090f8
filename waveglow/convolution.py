"""Dilated convolutions with channels innermost, and their gradients: tap by tap, or in pairs of groups for a third less work.

Two outputs of a kernel of three taps that are a dilation apart hear four inputs, and take six products of an input and a tap. Sums
and differences of inputs and taps take four (F(2, 3) of Winograd's: Lavin and Gray, 2015, arXiv:1509.09308). So do both gradients.
"""

from __future__ import annotations

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


class Paired(NamedTuple):
    """The same for three taps, to rounding, by Winograd's sums; arranged weights are (4, O, I).

    In half precision it rounds once more each the sums of inputs and of taps and two parts of the result.
    """

    dilation: int

    def arranged(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """A weight (O, I, 3) as the other methods take it, in the dtype that they compute in."""
        weight = weight.to(torch.promote_types(weight.dtype, torch.float32))
        sums = weight.new_tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
        # A product with the taps innermost is the quickest way to put them outermost.
        return torch.mm(sums, weight.reshape(-1, 3).t()).unflatten(1, weight.shape[:2]).to(dtype)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x (B, G, I) -> (B, G, O), contiguous."""
        heard = self._sums_heard(x).flatten(1, 2)
        made = x.new_empty(heard.shape[1], 2, self.dilation, weight.shape[1])
        block = max(BLOCK // (2 * self.dilation), 1)
        for start in range(0, len(made), block):
            rows = slice(start, start + block)
            products = torch.bmm(heard[:, rows].flatten(1, 2), weight.transpose(1, 2))
            before, total, difference, after = products.unflatten(1, (-1, self.dilation))
            total += bias
            torch.add(total, difference, out=made[rows, 0]).add_(before)
            torch.sub(total, difference, out=made[rows, 1]).add_(after)
        return _cut(made.view(len(x), -1, weight.shape[1]), x.shape[1])

    def backward(self, d_made: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of x (B, G, I) and of the weight (O, I, 3) from that of the result (B, G, O)."""
        d_products = self._sums_made(d_made)
        flat = d_products.flatten(1, 3)
        d_heard = torch.bmm(flat, weight).unflatten(1, d_products.shape[1:4])
        d_sums = torch.bmm(flat.transpose(1, 2), self._sums_heard(x).flatten(1, 3))
        return _cut(_back_from_heard(d_heard), x.shape[1]), _back_from_taps(d_sums)

    def _sums_heard(self, x: Tensor) -> Tensor:
        """x (B, G, I) -> what each of the four products of a pair hears (4, B, N / B, d, I)."""
        first, second = self._pairs(x)
        sums = x.new_empty(4, *first.shape)
        torch.sub(second[:, :-1], second[:, 1:], out=sums[0, :, 1:])
        torch.neg(second[:, :1], out=sums[0, :, :1])  # before the clip all is 0, and after it
        torch.add(first, second, out=sums[1])
        torch.sub(second, first, out=sums[2])
        torch.sub(first[:, 1:], first[:, :-1], out=sums[3, :, :-1])
        torch.neg(first[:, -1:], out=sums[3, :, -1:])
        return sums

    def _sums_made(self, d_made: Tensor) -> Tensor:
        """The gradients of the four products of a pair (4, B, N / B, d, O) from that of the result (B, G, O)."""
        first, second = self._pairs(d_made)
        sums = d_made.new_empty(4, *first.shape)
        sums[0], sums[3] = first, second
        torch.add(first, second, out=sums[1])
        torch.sub(first, second, out=sums[2])
        return sums

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (B, G, I) -> the first and the second of all pairs, (B, N / B, d, I) each."""
        padded = F.pad(x, (0, 0, 0, -x.shape[1] % (2 * self.dilation)))
        first, second = padded.unflatten(1, (-1, 2, self.dilation)).unbind(2)
        return first, second


Convolution = Direct | Paired


def convolution(x: Tensor, weight: Tensor, dilation: int) -> Convolution:
    """The way that is quicker for x (B, G, C) and a weight (O, I, k): in pairs on a CPU, where they save more than they take."""
    groups = x.shape[1]
    worthwhile = weight.shape[1] >= MIN_CHANNELS and -groups % (2 * dilation) <= groups * MAX_PADDING
    return Paired(dilation) if x.device.type == "cpu" and weight.shape[2] == 3 and worthwhile else Direct(dilation)


def _back_from_heard(d_sums: Tensor) -> Tensor:
    """The gradient of x (B, 2 * d * N / B, I) from those of what its pairs' products hear (4, B, N / B, d, I)."""
    before, total, difference, after = d_sums
    d_x = torch.empty_like(d_sums[:2].movedim(0, 2), memory_format=torch.contiguous_format)
    first, second = d_x.unbind(2)
    torch.sub(total, difference, out=first).sub_(after)[:, 1:] += after[:, :-1]
    torch.add(total, difference, out=second).sub_(before)[:, :-1] += before[:, 1:]
    return d_x.flatten(1, 3)


def _back_from_taps(d_sums: Tensor) -> Tensor:
    """The gradient of a weight (O, I, 3), at least float32, from that of the sums of its taps (4, O, I)."""
    before, total, difference, after = d_sums.to(torch.promote_types(d_sums.dtype, torch.float32))
    outer, inner = (total + difference).mul_(0.5), (total - difference).mul_(0.5)
    return torch.stack([before.add_(outer), inner, outer.add_(after)], dim=2)


def _cut(x: Tensor, groups: int) -> Tensor:
    """The first groups of x (B, G or more, I), contiguous."""
    return x[:, :groups].contiguous()
