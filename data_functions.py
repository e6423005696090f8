"""Datasets and loaders of the model chosen with -m."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from common.data.filelist import BadRows, check_files, read_filelist
from common.data.mels import unusable_rows
from common.data.parallel import ADVICE
from common.errors import DataError, join_problems
from common.files import locate_problems
from common.progress import counted
from common.run.distributed import Dist
from common.run.interrupt import StopRequest
from common.spec import ModelSpec, Options, SpeechDataset
from common.training.loader import ErrorsAsItems, Loader, Loaders, fitting_workers, start_worker, worker_context
from common.training.optimization import Pace
from common.training.options import DataConfig, TrainOptions
from common.training.sampler import EpochBatches, sampler_of
from models import published_of

STOP_WAIT = 4.0  # seconds that a batch may still take after a request to stop
TIMEOUT_SHARE = 0.9  # of --timeout-minutes: before other processes stop waiting for this one


def get_dataset(spec: ModelSpec, options: Options, filelist: Path) -> SpeechDataset:
    """Build the dataset of a filelist. Raises DataError that lists all missing files, or all rows that training refuses."""
    utterances = read_filelist(filelist)
    check_files(utterances, filelist, options["dataset_path"])
    try:
        dataset = spec.make_dataset(options, utterances)
        dataset.check_clips()
        return dataset
    except BadRows:  # of texts alone, if those are at fault: the lengths are not checked then
        problems = unusable_rows(spec, options, utterances)
    raise DataError(join_problems(locate_problems(filelist, problems)))


def get_loader(
    dataset: SpeechDataset, config: DataConfig, seed: int, dist: Dist, training: bool, stop: StopRequest | None = None
) -> Loader:
    """Build the loader of this process's batches, in pinned memory for a GPU.

    Its waits for a loader process end with --timeout-minutes, and soon after a request to `stop`.
    """
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
    fitting = fitting_workers(dataset, config.batch_size, workers)
    items = ErrorsAsItems(dataset)
    loader = Loader(
        cast(Any, items),
        batch_sampler=sampler,
        num_workers=fitting,
        collate_fn=items.collate,
        worker_init_fn=start_worker,
        multiprocessing_context=worker_context() if fitting else None,
        pin_memory=on_gpu,
        persistent_workers=fitting > 0,
        generator=torch.Generator(),  # its own, since a resumed run restores the state of the default generator
    )
    patience = dist.timeout.total_seconds() * TIMEOUT_SHARE
    loader.limit = lambda: STOP_WAIT if stop and stop.is_requested else patience
    if fitting < workers:
        loader.note = f"{fitting} of {workers} loader processes, whose batches fit into /dev/shm; {ADVICE}"
    return loader


def get_loaders(spec: ModelSpec, options: TrainOptions, dist: Dist, stop: StopRequest | None = None) -> Loaders:
    """Build both loaders of a run, which has a seed. Raises DataError if a process would have no clip."""
    config, seed = options.data, options.run.seed
    assert seed is not None
    settings = {**options.model, "dataset_path": config.dataset_path, "seed": seed}
    filelists = (config.training_files, config.validation_files)
    training, validation = (get_dataset(spec, settings, filelist) for filelist in filelists)
    if len(training) < dist.world_size:
        raise DataError(
            f"{config.training_files}: {counted(len(training), 'clip')}, expected at least one for each of {dist.world_size} "
            "processes: lower the number of processes"
        )
    both = {True: training, False: validation}
    loaders = [get_loader(dataset, config, seed, dist, trains, stop) for trains, dataset in both.items()]
    batches = sampler_of(loaders[0])
    pace = Pace(batches.batches_per_epoch(), batches.global_size, spec.training.usual_batch(options.precision.amp))
    return Loaders(loaders[0], loaders[1], pace)


# --- scripts written for the published recipe ---


def get_collate_function(model_name: str, n_frames_per_step: int = 1) -> Callable[[list[Any]], Any]:
    """Return what makes a batch of the clips of get_data_loader. Raises UsageError for a model without it, as the next two do."""
    return published_of(model_name).collate(n_frames_per_step)


def get_data_loader(model_name: str, dataset_path: str, audiopaths_and_text: str, args: argparse.Namespace) -> Any:
    """Build a model's dataset; the options are attributes of `args`. Raises DataError for a bad filelist."""
    return published_of(model_name).loader(dataset_path, audiopaths_and_text, args)


def get_batch_to_gpu(model_name: str) -> Callable[[Any], tuple[Any, Any, Tensor]]:
    """Return what moves a batch: its inputs, its targets, and the number of its items."""
    return published_of(model_name).batch_to_gpu
