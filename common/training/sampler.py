"""Batches of an epoch: shuffled, the same on any number of processes, able to start in mid-epoch, and loaded one step ahead."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Sampler

from common.errors import DataError
from common.spec import Key


class EpochBatches(Sampler[list[Key]]):
    """Batches of one process for the epoch set with `start_at`.

    Every process derives the same global batches from (seed, epoch) and takes its share of each. W processes with batches of b take
    the same steps as one process with batches of W·b. With accumulation = k, a global batch is k times as large and is split into k
    consecutive batches. With bucket_batches = n, shuffled items are sorted by length within every n global batches, which reduces
    padding. In training, fewer items than a global batch form one smaller batch of all of them; each process needs at least one.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        training: bool = True,
        bucket_batches: int = 0,
        accumulation: int = 1,
    ) -> None:
        self.lengths = lengths
        self.accumulation = accumulation
        self.global_size = batch_size * world_size * accumulation
        if training and len(lengths) < self.global_size:
            self.accumulation = min(accumulation, max(1, len(lengths) // world_size))  # no batch may be empty
            self.global_size = len(lengths)
        self.seed, self.rank, self.world_size = seed, rank, world_size
        self.training, self.bucket_batches = training, bucket_batches
        self.epoch = 0
        self.skip = 0

    def start_at(self, epoch: int, clips_done: int = 0) -> None:
        """Choose the epoch, and the number of its clips that all processes together have done.

        Clips of an unfinished batch are repeated, as happens after a change of the batch size.
        """
        self.epoch, self.skip = epoch, min(clips_done // self.global_size, self.batches_per_epoch())

    def batches_per_epoch(self) -> int:
        """Return the global batches of a whole epoch; in training only full ones, so that all processes have the same number."""
        full, rest = divmod(len(self.lengths), self.global_size)
        return full if self.training else full + (rest > 0)

    def __len__(self) -> int:
        rest = len(self.lengths) % self.global_size
        idle_at_the_end = not self.training and 0 < rest <= self.rank
        return (self.batches_per_epoch() - self.skip) * self.accumulation - idle_at_the_end

    def __iter__(self) -> Iterator[list[Key]]:
        for batch in self._global_batches()[self.skip :]:
            share = batch[self.rank :: self.world_size]
            for part in range(self.accumulation):
                if keys := [Key(self.epoch, index) for index in share[part :: self.accumulation]]:
                    yield keys  # the last validation batch may have fewer items than processes

    def _global_batches(self) -> list[list[int]]:
        if not self.training:
            return self._cut_into_batches(list(range(len(self.lengths))))
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        if not self.bucket_batches:
            return self._cut_into_batches(order)[: self.batches_per_epoch()]
        pool = self.bucket_batches * self.global_size
        # Cut before sorting, so that the dropped clips are random, not the longest.
        clip_order = order[: self.batches_per_epoch() * self.global_size]
        batches: list[list[int]] = []
        for start in range(0, len(clip_order), pool):
            by_length = sorted(clip_order[start : start + pool], key=lambda index: self.lengths[index])
            batches += self._cut_into_batches(by_length)
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def _cut_into_batches(self, order: list[int]) -> list[list[int]]:
        return [order[i : i + self.global_size] for i in range(0, len(order), self.global_size)]


def sampler_of(loader: DataLoader) -> EpochBatches:
    """Return the sampler of a loader's batches."""
    sampler = loader.batch_sampler
    assert isinstance(sampler, EpochBatches)
    return sampler


def load_batch(loader: DataLoader, items: Iterable[int]) -> Any:
    """Load a batch of these items outside of an epoch's order. Raises the DataError of a clip that cannot be read."""
    dataset: Any = loader.dataset
    assert loader.collate_fn is not None
    batch = loader.collate_fn([dataset[Key(sampler_of(loader).epoch, item)] for item in items])
    if isinstance(batch, DataError):  # as the loader's datasets return it
        raise batch
    return batch


class Step(NamedTuple):
    """Batches of a step, the seconds spent waiting for data, and the error of the next step, if any.

    Without batches, the error belongs to the first step.
    """

    batches: list[Any]
    waited: float
    fault: DataError | None


def steps(loader: Iterable[Any], size: int) -> Iterator[Step]:
    """Yield the steps of `size` batches each; batches that do not fill a step are left out. Raises no DataError.

    Batches are loaded one step ahead: the error of a clip is known before the preceding step runs, so that all processes end
    together after that step, and save.
    """
    source = iter(loader)
    start = time.perf_counter()
    batches, fault = _load(source, size)
    if fault:
        yield Step([], time.perf_counter() - start, fault)
    while batches:
        following, fault = _load(source, size)
        yield Step(batches, time.perf_counter() - start, fault)
        start = time.perf_counter()
        batches = following


def readable_steps(loader: DataLoader) -> Iterator[list[Any]]:
    """Yield the batches of each step of the loader's epoch. Raises the DataError of a first clip that cannot be read."""
    for batches, _, fault in steps(loader, sampler_of(loader).accumulation):
        if not batches:
            raise fault or DataError("no clip can be read")
        yield batches


def _load(source: Iterator[Any], size: int) -> tuple[list[Any], DataError | None]:
    try:
        batches = list(itertools.islice(source, size))
    except DataError as error:
        return [], error
    return (batches if len(batches) == size else []), None
