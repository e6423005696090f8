"""Batches from loader processes: every wait ends, and a lost process or batch is one DataError in the main process."""

from __future__ import annotations

import atexit
import copy
import gc
import multiprocessing
import multiprocessing.context
import multiprocessing.queues
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import DataLoader

from common.data.parallel import ADVICE
from common.errors import DataError
from common.run.child import end_with
from common.spec import Key, SpeechDataset
from common.system import signals
from common.training.optimization import Pace

LOST_AFTER = 5.0  # seconds from the end of a worker's connections to its own, at most
LOOK = 1.0  # seconds of waiting between two looks at the workers and at the limit
NOT_HANDED_OVER, TOO_LONG = 75, 76  # exit codes of a worker that cannot send a batch; 76: since TMPDIR is too long
PREFETCHED = 2  # batches in flight for each worker: PyTorch's default
HELD = 2  # those that a step and the next one hold
SHARED_MEMORY = Path("/dev/shm")
# The one private name of PyTorch: its iterator's wait for a batch. Without it, waits for a loader process have no limit.
BATCH_METHOD = "_try_get_data"

_workers: set[Worker] = set()  # all that were not ended by end_workers


class Worker(multiprocessing.Process):
    """A loader process: known before it starts, reached by no terminal or scheduler, and never waited for without a limit.

    Those signal every process of a run. The main one saves, and ends its workers.
    """

    def start(self) -> None:
        """Start, with these signals blocked from the first moment."""
        _workers.add(self)
        before = _block_signals()
        try:
            super().start()
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """Run with these signals blocked also where the process is not a copy of the main one."""
        _block_signals()
        super().run()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end; Python's exit names no limit, and a worker that waits for a lost disk cannot even be killed."""
        super().join(LOST_AFTER if timeout is None else timeout)

    def terminate(self) -> None:
        """Kill the process, since SIGTERM is blocked."""
        self.kill()


def _block_signals() -> set[signal.Signals | int] | None:
    """Block the signals of terminals and schedulers in this thread. Returns the mask before; None on Windows."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return signal.pthread_sigmask(signal.SIG_BLOCK, signals("SIGINT", "SIGTERM", "SIGHUP"))


def worker_context() -> multiprocessing.context.BaseContext:
    """Return multiprocessing's context with Worker as its process."""
    context: Any = copy.copy(multiprocessing.get_context())
    context.Process = Worker
    return context


class ErrorsAsItems:
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


class Loader(DataLoader):
    """DataLoader that raises the DataError of a clip, and of a worker or a batch that is lost, in the main process."""

    workers: tuple[Worker, ...] = ()  # this loader's processes, which may stay from one epoch to the next
    limit: Callable[[], float]  # seconds to wait for a batch; asked again at each look
    waited = 0.0  # seconds since the last batch
    note = ""  # a sentence about fewer workers than wished

    def __iter__(self) -> Any:
        started = False
        try:
            batches = self._start()
            started = True
            for batch in batches:
                if isinstance(batch, DataError):
                    raise batch
                yield batch
        except (RuntimeError, OSError, EOFError) as error:
            if not self.num_workers or str(error).startswith("Caught "):  # the dataset's own error, with its traceback
                raise
            reason = self._loss(error, started)
            if not started:
                self._discard(error)
            if reason:
                raise DataError(reason) from None
            raise

    def _start(self) -> Any:
        """Start the workers, or their next epoch; then it waits for the first batch."""
        known = set(_workers)
        try:
            batches: Any = super().__iter__()
        finally:
            self.workers += tuple(_workers - known)
        if not self.num_workers:
            return batches
        # PyTorch repeats this call, which waits a few seconds for a batch, until there is one. A proxy, so that the iterator is no
        # part of a cycle: a collection of garbage closes its pipes before its destructor needs them.
        if receive := getattr(type(batches), BATCH_METHOD, None):
            setattr(batches, BATCH_METHOD, partial(self._receive, receive, weakref.proxy(batches)))
        atexit.unregister(end_workers)
        # The newest function runs first, before those that would wait for workers.
        atexit.register(end_workers)
        if threading.current_thread() is threading.main_thread():
            # PyTorch's handler raises the error of an ended worker anywhere, even in the middle of an optimizer's step.
            # Without it, the error comes from the next batch, some seconds later.
            for number in signals("SIGCHLD"):
                signal.signal(number, signal.SIG_DFL)
        return batches

    def _discard(self, error: Exception) -> None:
        """End what a failed start has left: workers, and an iterator whose destructor would print what else it lacks."""
        _kill(self.workers)
        hook = sys.unraisablehook
        sys.unraisablehook = lambda _: None
        try:
            traceback.clear_frames(error.__traceback__)
        finally:
            sys.unraisablehook = hook

    def _receive(self, receive: Callable[..., tuple[bool, Any]], batches: Any, *_: float) -> tuple[bool, Any]:
        """Look for a batch for a moment. Raises DataError at the limit: a worker may hang, or a batch be lost."""
        found, data = receive(batches, LOOK)
        self.waited = 0.0 if found else self.waited + LOOK
        if not found and self.waited >= self.limit():
            raise DataError(
                f"no batch for {self.waited:.0f} seconds: the loader processes hang, perhaps waiting for a disk; {ADVICE}"
            )
        return found, data

    def _loss(self, error: Exception, started: bool) -> str:
        """Return a sentence about the worker whose end caused an error of the loader; "" if none has ended."""
        if "Too many open files" in str(error):
            return f"too many open files: raise the limit (ulimit -n), or lower --num-workers {self.num_workers}"
        if isinstance(error, OSError) and not started:
            return f"no loader process can start ({error.strerror}); {ADVICE}"
        if not (str(error).startswith("DataLoader worker") or _has_ended(self.workers)):
            return ""
        codes = {worker.exitcode for worker in self.workers}
        if {NOT_HANDED_OVER, TOO_LONG, *(-number for number in signals("SIGBUS"))} & codes:
            advice = "set TMPDIR to a shorter path" if TOO_LONG in codes else ADVICE
            return f"a loader process cannot hand over its batch, for the reason above; {advice}"
        reason = str(error) if str(error).startswith("DataLoader") else f"DataLoader worker has ended ({error!r})"
        return f"{reason}: killed, or out of memory; lower --num-workers {self.num_workers}"


class Loaders(NamedTuple):
    """Batches for training and for validation, each from a batch_sampler that is an EpochBatches; and the pace of training."""

    training: Loader
    validation: Loader
    pace: Pace


def _has_ended(workers: Iterable[Worker]) -> bool:
    """Wait up to LOST_AFTER seconds for one of the workers to end, after an error of a connection.

    The connections of a killed process close a moment before the system counts it as ended.
    """
    deadline = time.monotonic() + LOST_AFTER
    while time.monotonic() < deadline:
        if not all(worker.is_alive() for worker in workers):
            return True
        time.sleep(0.05)
    return False


def end_workers() -> None:
    """Kill all loader processes of this process, which no signal of terminals and schedulers reaches."""
    _kill(_workers)
    _workers.clear()


def _kill(workers: Iterable[Worker]) -> None:
    started = [worker for worker in workers if worker.pid is not None]
    for worker in started:
        worker.kill()
    for worker in started:  # all at once, and then until the system has taken them off its list
        worker.join()


def start_worker(_: int) -> None:
    """Prepare a loader process: it ends with the main one, and if a batch cannot be sent.

    Python's queue would print a traceback, drop a batch that does not fit into /dev/shm, and let the main process wait for it.
    """
    gc.freeze()  # as in common.data.parallel: a worker finalises nothing that it inherited
    if parent := multiprocessing.parent_process():
        end_with(parent.pid or 0, *signals("SIGKILL"))
    multiprocessing.queues.Queue._on_queue_feeder_error = staticmethod(_give_up)  # type: ignore[attr-defined]


def _give_up(error: Exception, _: Any) -> None:
    print(f"a loader process cannot hand over a batch: {error}", file=sys.stderr, flush=True)
    os._exit(TOO_LONG if "AF_UNIX path too long" in str(error) else NOT_HANDED_OVER)


def fitting_workers(dataset: SpeechDataset, batch_size: int, workers: int) -> int:
    """Return how many of so many workers can hold their batches in /dev/shm, shared by the processes of this machine.

    The longest clip stands for all of a batch. Without /dev/shm, or if the clip cannot be read, all of them.
    """
    if not (workers and SHARED_MEMORY.is_dir()):
        return workers
    lengths = list(dataset.lengths)
    try:
        clip = dataset[Key(0, lengths.index(max(lengths)))]
    except DataError:  # training will name it
        return workers
    state = os.statvfs(SHARED_MEMORY)
    free = state.f_bavail * state.f_frsize / int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    batches = int(free // max(1, batch_size * size_of(clip)))
    return max(0, min(workers, (batches - HELD) // PREFETCHED))


def size_of(item: Any) -> int:
    """Return the bytes of the tensors in an item, a tensor or a tuple."""
    if isinstance(item, Tensor):
        return item.nbytes
    return sum(map(size_of, item)) if isinstance(item, tuple) else 0
