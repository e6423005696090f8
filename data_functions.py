"""Datasets and loaders of the model chosen with -m."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import DataLoader

from common.data.filelist import check_files, lines_of, read_filelist
from common.errors import DataError
from common.spec import Key, Options, SpeechDataset
from common.training.distributed import Dist
from common.training.sampler import EpochBatches
from models import get_spec


class _Guarded:
    """A dataset whose DataError survives the way out of a loader's worker process as what it is, not as a traceback."""

    def __init__(self, dataset: SpeechDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: Key) -> Any:
        try:
            return self.dataset[key]
        except DataError as error:
            return error

    def collate(self, items: list[Any]) -> Any:
        """A batch, or the first DataError among the items."""
        return next((item for item in items if isinstance(item, DataError)), None) or self.dataset.collate(items)


class _Loader(DataLoader):
    """A DataLoader that raises the DataError of a clip in the main process."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            if isinstance(batch, DataError):
                raise batch
            yield batch


def _outlive_signals(_: int) -> None:
    """Leave Ctrl-C and SIGTERM to the main process, which saves and ends its workers itself.

    A terminal and a scheduler signal every process of a run. A second SIGTERM ends a worker: the
    one that Python sends where its parent failed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


class Loaders(NamedTuple):
    """Batches for training and for validation; each loader's batch_sampler is an EpochBatches."""

    training: DataLoader
    validation: DataLoader


def get_dataset(name: str, options: Options, filelist: Path) -> SpeechDataset:
    """The dataset of a filelist, once every file it names is seen to exist. DataError lists all bad rows."""
    utterances = read_filelist(filelist)
    check_files(utterances, filelist, options["dataset_path"])
    with lines_of(filelist):
        return get_spec(name).make_dataset(options, utterances)


def get_loader(dataset: SpeechDataset, options: Options, dist: Dist, training: bool) -> DataLoader:
    """Batches of this process, pinned where a GPU will want them."""
    sampler = EpochBatches(
        dataset.lengths,
        options["batch_size"],
        seed=options["seed"],
        rank=dist.rank,
        world_size=dist.world_size,
        training=training,
        bucket_batches=options["bucket_batches"],
        accumulation=options["grad_accumulation_steps"] if training else 1,
    )
    on_gpu = dist.device.type != "cpu"
    workers = options["num_workers"]
    if workers is None:
        workers = min(4, os.cpu_count() or 1) if on_gpu else 0
    guarded = _Guarded(dataset)
    return _Loader(
        cast(Any, guarded),
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=guarded.collate,
        worker_init_fn=_outlive_signals,
        pin_memory=on_gpu,
        persistent_workers=workers > 0,
        generator=torch.Generator(),  # its own, for the default one belongs to the model and is restored on resume
    )


def get_loaders(name: str, options: Options, dist: Dist) -> Loaders:
    """Both loaders of a run. DataError if the training list cannot fill one batch."""
    training = get_dataset(name, options, options["training_files"])
    accumulation = options["grad_accumulation_steps"]
    if len(training) < options["batch_size"] * dist.world_size * accumulation:
        steps = f" x --grad-accumulation-steps {accumulation}" if accumulation > 1 else ""
        raise DataError(
            f"{options['training_files']}: {len(training)} clips, expected at least --batch-size "
            f"{options['batch_size']} x {dist.world_size} processes{steps}: lower --batch-size"
        )
    validation = get_dataset(name, options, options["validation_files"])
    return Loaders(get_loader(training, options, dist, True), get_loader(validation, options, dist, False))
