"""Random numbers that belong to the items of a batch: they do not depend on other items, nor on the order of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# B batch

Key = tuple[int, ...]  # an item: a seed, the line in its file or call, the piece of that line


class Draws(NamedTuple):
    """A generator for each item of a batch, and the device that receives the numbers.

    The generators run on the CPU, so that numbers are the same for every device and a GPU can compute while the next are drawn.
    """

    generators: tuple[torch.Generator, ...]
    device: torch.device

    @classmethod
    def of(cls, keys: Sequence[Key], purpose: str, device: torch.device) -> Draws:
        """Start a generator for each key; each purpose has its own numbers."""
        return cls(tuple(torch.Generator().manual_seed(_seed(key, purpose)) for key in keys), device)

    def take(self, items: Sequence[int]) -> Draws:
        """Return the draws of some items; their generators continue where they are."""
        return self._replace(generators=tuple(self.generators[item] for item in items))

    def uniform(self, *shape: int) -> Tensor:
        """Draw numbers in [0, 1): (B, *shape), float32."""
        return torch.stack([torch.rand(shape, generator=one) for one in self.generators]).to(self.device)

    def normal(self, *shape: int) -> Tensor:
        """Draw normal numbers of mean 0 and variance 1: (B, *shape), float32."""
        return torch.stack([torch.randn(shape, generator=one) for one in self.generators]).to(self.device)


def _seed(key: Key, purpose: str) -> int:
    """A generator's seed, of 63 bits: neighbouring keys share nothing."""
    digest = hashlib.blake2b(f"{purpose} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
