"""Datasets and loaders of the model chosen with -m."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch.utils.data import DataLoader

from common.data.filelist import BadRows, check_files, lines_of, read_filelist
from common.data.mels import unusable_rows
from common.errors import DataError
from common.run.distributed import Dist
from common.spec import Key, Options, SpeechDataset
from common.training.options import DataConfig, TrainOptions
from common.training.sampler import EpochBatches
from models import get_spec

LOST_AFTER = 5.0  # seconds from the end of a worker's connections to its own, at most


class _ErrorsAsItems:
    """Dataset that returns a DataError as an item, since a worker process would turn it into a traceback."""

    def __init__(self, dataset: SpeechDataset) -> None:
        self.dataset = dataset
        self.keeps_clips = getattr(dataset, "keeps_clips", False)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: Key) -> Any:
        try:
            return self.dataset[key]
        except DataError as error:
            return error

    def collate(self, items: list[Any]) -> Any:
        """Return a batch, or the first DataError among the items."""
        return next((item for item in items if isinstance(item, DataError)), None) or self.dataset.collate(items)


class _Loader(DataLoader):
    """DataLoader that raises the DataError of a clip, and of a worker that has ended, in the main process."""

    workers: tuple[Any, ...] = ()  # this loader's processes, which may stay from one epoch to the next

    def __iter__(self) -> Any:
        others = multiprocessing.active_children()  # those of other loaders, which may end at any time
        try:
            batches = super().__iter__()  # waits for the first batch where workers are kept from one epoch to the next
            if self.num_workers:
                started = tuple(process for process in multiprocessing.active_children() if process not in others)
                self.workers = started or self.workers
                atexit.unregister(_end_workers)
                # The newest function runs first, before those that would wait for workers.
                atexit.register(_end_workers)
            if self.num_workers and threading.current_thread() is threading.main_thread():
                # PyTorch's handler raises the error of an ended worker anywhere, even in the middle of an optimizer's step.
                # Without it, the error comes from the next batch, some seconds later.
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for batch in batches:
                if isinstance(batch, DataError):
                    raise batch
                yield batch
        except (RuntimeError, OSError, EOFError) as error:
            if not self.num_workers or str(error).startswith("Caught "):  # the dataset's own error, with its traceback
                raise
            if str(error).startswith("DataLoader worker"):
                reason = str(error)
            elif _has_ended(self.workers):
                reason = f"DataLoader worker has ended ({error!r})"
            else:
                raise
            raise DataError(f"{reason}: killed, or out of memory; lower --num-workers {self.num_workers}") from None


def _has_ended(workers: tuple[Any, ...]) -> bool:
    """Wait up to LOST_AFTER seconds for one of the workers to end, after an error of a connection.

    The connections of a killed process close a moment before the system counts it as ended.
    """
    deadline = time.monotonic() + LOST_AFTER
    while time.monotonic() < deadline:
        if not all(worker.is_alive() for worker in workers):
            return True
        time.sleep(0.05)
    return False


def _end_workers() -> None:
    """Kill the loader processes of this process, which ignore a first SIGTERM as the scheduler's."""
    for worker in multiprocessing.active_children():
        worker.kill()


def _ignore_signals(_: int) -> None:
    """Ignore Ctrl-C, SIGHUP and the first SIGTERM in a worker; the main process handles them, saves and ends its workers.

    Terminals and schedulers signal every process of a run. A second SIGTERM ends the worker: Python sends it if the parent fails.
    """
    gc.freeze()  # as in common.data.parallel: a worker finalises nothing that it inherited
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


class Loaders(NamedTuple):
    """Batches for training and for validation; each loader's batch_sampler is an EpochBatches."""

    training: DataLoader
    validation: DataLoader


def get_dataset(name: str, options: Options, filelist: Path) -> SpeechDataset:
    """Build the dataset of a filelist. Raises DataError that lists all missing files, or all rows that training refuses."""
    utterances = read_filelist(filelist)
    check_files(utterances, filelist, options["dataset_path"])
    spec = get_spec(name)
    with lines_of(filelist):
        try:
            dataset = spec.make_dataset(options, utterances)
            spec.check_clips(dataset, None)
        except BadRows:
            raise BadRows(unusable_rows(spec, options, utterances)) from None
    return dataset


def get_loader(dataset: SpeechDataset, config: DataConfig, seed: int, dist: Dist, training: bool) -> DataLoader:
    """Build the loader of this process's batches, in pinned memory for a GPU."""
    sampler = EpochBatches(
        dataset.lengths,
        config.batch_size,
        seed=seed,
        rank=dist.rank,
        world_size=dist.world_size,
        training=training,
        bucket_batches=config.bucket_batches,
        accumulation=config.grad_accumulation_steps if training else 1,
    )
    on_gpu = dist.device.type != "cpu"
    workers = config.num_workers
    if workers is None:
        workers = min(4, os.cpu_count() or 1) if on_gpu else 0
    items = _ErrorsAsItems(dataset)
    return _Loader(
        cast(Any, items),
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=items.collate,
        worker_init_fn=_ignore_signals,
        pin_memory=on_gpu,
        persistent_workers=workers > 0,
        generator=torch.Generator(),  # its own, since a resumed run restores the state of the default generator
    )


def get_loaders(options: TrainOptions, dist: Dist) -> Loaders:
    """Build both loaders of a run, which has a seed. Raises DataError if a process would have no clip."""
    config, seed = options.data, options.run.seed
    assert seed is not None
    training = get_dataset(options.model_name, options.flat, config.training_files)
    if len(training) < dist.world_size:
        raise DataError(
            f"{config.training_files}: {len(training)} clips, expected at least one for each of {dist.world_size} "
            "processes: lower the number of processes"
        )
    validation = get_dataset(options.model_name, options.flat, config.validation_files)
    return Loaders(
        get_loader(training, config, seed, dist, training=True),
        get_loader(validation, config, seed, dist, training=False),
    )
