"""Batches of an epoch: complete, repeatable, the same on any number of processes, and resumable."""

from collections.abc import Iterable

import pytest
import torch

from common.run.distributed import Dist
from common.training.options import DataConfig
from common.training.sampler import EpochBatches, sampler_of
from data_functions import get_loader
from tests.common.training.points import PointsDataset


def flat(epoch_batches: Iterable[list[int]]) -> list[int]:
    return [item for batch in epoch_batches for item in batch]


def batches(sampler: EpochBatches, epoch: int = 0, clips_done: int = 0) -> list[list[int]]:
    """Item numbers of an epoch's batches; each key has to name the epoch."""
    sampler.start_at(epoch, clips_done)
    keys = list(sampler)
    assert len(keys) == len(sampler)
    assert all(key.epoch == epoch for batch in keys for key in batch)
    return [[key.item for key in batch] for batch in keys]


@pytest.mark.parametrize("bucket_batches", [0, 3])
def test_every_item_once_an_epoch_in_another_order_each_time(bucket_batches: int) -> None:
    sampler = EpochBatches(list(range(24)), 4, seed=5, bucket_batches=bucket_batches)
    epochs = [batches(sampler, epoch) for epoch in range(3)]
    for epoch_batches in epochs:
        assert [len(batch) for batch in epoch_batches] == [4] * 6
        assert sorted(flat(epoch_batches)) == list(range(24))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert batches(sampler, 1) == epochs[1]
    assert batches(EpochBatches(list(range(24)), 4, seed=6, bucket_batches=bucket_batches)) != epochs[0]


@pytest.mark.parametrize("bucket_batches", [0, 100])
def test_training_leaves_out_what_fills_no_batch_and_not_always_the_same(bucket_batches: int) -> None:
    sampler = EpochBatches(list(range(11)), 4, seed=0, bucket_batches=bucket_batches)
    left_out = [set(range(11)) - set(flat(batches(sampler, epoch))) for epoch in range(200)]
    assert {len(items) for items in left_out} == {3}
    times = [sum(item in items for items in left_out) for item in range(11)]
    # each item: binomial with n = 200, p = 3/11, mean 54.5, standard deviation 6.3
    assert min(times) > 54.5 - 5 * 6.3
    assert max(times) < 54.5 + 5 * 6.3


@pytest.mark.parametrize(
    ("clips", "batch", "world", "accumulation"), [(3, 8, 1, 1), (5, 2, 1, 3), (5, 4, 2, 3), (2, 1, 1, 4)]
)
def test_few_clips_are_one_step_with_all_of_them(clips: int, batch: int, world: int, accumulation: int) -> None:
    words = {"world_size": world, "accumulation": accumulation}
    samplers = [EpochBatches([1] * clips, batch, rank=rank, **words) for rank in range(world)]
    shares = [batches(sampler) for sampler in samplers]
    assert sorted(item for share in shares for item in flat(share)) == list(range(clips))
    assert {len(share) for share in shares} == {samplers[0].accumulation}
    assert all(part for share in shares for part in share)
    assert [sampler.batches_per_epoch() for sampler in samplers] == [1] * world
    samplers[0].start_at(0, clips)
    assert list(samplers[0]) == []  # the epoch is complete after this step


def test_validation_takes_all_items_in_their_order_and_a_small_last_batch_reaches_some() -> None:
    sampler = EpochBatches([9, 1, 5, 7, 3], 2, training=False)
    assert batches(sampler) == [[0, 1], [2, 3], [4]]
    ranks = [EpochBatches([1] * 5, 2, rank=rank, world_size=2, training=False) for rank in range(2)]
    assert [batches(rank) for rank in ranks] == [[[0, 2], [4]], [[1, 3]]]


@pytest.mark.parametrize("bucket_batches", [0, 2])
@pytest.mark.parametrize(("training", "world", "accumulation"), [(True, 3, 1), (False, 3, 1), (True, 2, 2)])
def test_many_processes_and_batches_are_one_larger_batch(
    training: bool, world: int, accumulation: int, bucket_batches: int
) -> None:
    lengths = [(7 * item) % 23 for item in range(50)]
    options = {"seed": 3, "training": training, "bucket_batches": bucket_batches}
    whole = EpochBatches(lengths, 2 * world * accumulation, **options)
    parts = [
        EpochBatches(lengths, 2, rank=rank, world_size=world, accumulation=accumulation, **options)
        for rank in range(world)
    ]
    done = 2 * 2 * world * accumulation if training else 0
    alone, *ranks = (batches(sampler, 3, done) for sampler in (whole, *parts))
    for number, batch in enumerate(alone):
        pieces = [items for rank in ranks for items in rank[accumulation * number :][:accumulation]]
        assert sorted(flat(pieces)) == sorted(batch)
        assert not training or [len(items) for items in pieces] == [2] * world * accumulation
    assert {sampler.batches_per_epoch() for sampler in parts} == {whole.batches_per_epoch()}
    assert len(ranks[0]) == accumulation * len(alone)


def test_buckets_hold_neighbours_in_length() -> None:
    lengths = torch.randint(10, 200, (96,)).tolist()
    sampler = EpochBatches(lengths, 4, seed=1, bucket_batches=6)
    sizes = [[lengths[item] for item in batch] for batch in batches(sampler)]
    # Pools are the shuffled order cut at 24 items, and sorting moves nothing across a cut.
    generator = torch.Generator().manual_seed(1_000_003)
    order = torch.randperm(96, generator=generator).tolist()
    pools = [sorted(lengths[item] for item in order[i : i + 24]) for i in range(0, 96, 24)]
    cut = [pool[i : i + 4] for pool in pools for i in range(0, 24, 4)]
    assert sorted(cut) == sorted(sizes)
    assert cut != sizes  # batches are not in order of length


@pytest.mark.parametrize("bucket_batches", [0, 3])
def test_an_epoch_goes_on_where_it_was_left(bucket_batches: int) -> None:
    sampler = EpochBatches(list(range(23)), 4, seed=5, bucket_batches=bucket_batches)
    whole = batches(sampler, epoch=7)
    for done in range(6):
        assert batches(sampler, epoch=7, clips_done=4 * done) == whole[done:]
        assert sampler.batches_per_epoch() == 5


def test_an_epoch_goes_on_with_another_batch_size_if_anything_is_left_of_it() -> None:
    first = flat(batches(EpochBatches([1] * 40, 3, seed=5), epoch=2)[:4])  # 12 clips are done
    rest = batches(EpochBatches([1] * 40, 5, seed=5), epoch=2, clips_done=12)
    assert sorted(set(first) | set(flat(rest))) == list(range(40))
    assert [len(batch) for batch in rest] == [5] * 6  # 10 of the 12 are whole batches of 5: two clips come again
    sampler = EpochBatches([1] * 10, 8)
    assert batches(sampler, clips_done=9) == []
    assert batches(sampler, clips_done=30) == []  # of a longer list, shortened since
    assert len(sampler) == 0


def test_a_loader_has_the_batches_of_the_flags_and_validation_no_buckets_or_steps() -> None:
    config = DataConfig(batch_size=2, bucket_batches=3, grad_accumulation_steps=4, num_workers=0)
    dist, data = Dist(1, 1, 2, torch.device("cpu")), PointsDataset(50)
    words = {"seed": 5, "rank": 1, "world_size": 2}
    wanted = EpochBatches(data.lengths, 2, bucket_batches=3, accumulation=4, **words)
    assert batches(sampler_of(get_loader(data, config, 5, dist, training=True)), 1) == batches(wanted, 1)
    wanted = EpochBatches(data.lengths, 2, training=False, **words)
    assert batches(sampler_of(get_loader(data, config, 5, dist, training=False))) == batches(wanted)
