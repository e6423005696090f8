"""Process group and collectives; each call is a no-op in a single process."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from common.errors import DataError, UsageError
from common.precision import distributed_backend, pick_device
from common.run.child import LAUNCHED, end_with_launcher

COMPRESSIONS = ("none", "fp16", "bf16", "powersgd")
HALF_HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
# NCCL's default of 10 minutes may end a run whose main process evaluates or saves; torchrun notices a lost process by itself.
TIMEOUT = timedelta(minutes=30)
# Phrases in Gloo's messages, which come as plain RuntimeErrors.
PEER_IS_GONE = ("closed by peer", "Connection reset by peer")
TIMED_OUT = ("Timed out waiting", "Application timeout caused pair closure")
ROLL_CALL, SHORT_ROLL_CALL = 10.0, 3.0  # seconds of waiting for the others, after a timeout and after a lost connection
LOOK = 0.1  # seconds between two looks at the store
PASSED_ON = 0.3  # the same, while the main process evaluates


class Dist(NamedTuple):
    """Rank of this process among all, local_rank on its machine, number of processes, device, and the store they share."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    store: torch_dist.Store | None = None
    timeout: timedelta = TIMEOUT  # of a collective

    @property
    def is_main(self) -> bool:
        """True for the process that writes logs and checkpoints."""
        return self.rank == 0


@contextmanager
def session(cpu: bool = False, always: bool = False, timeout: timedelta = TIMEOUT) -> Iterator[Dist]:
    """Join the process group of torchrun or multiproc.py, if any, and destroy it at the end (on GPUs, only without an error).

    With `always`, a single process forms a group of one. A collective fails after `timeout`. Models must go out of scope before
    the end. Raises UsageError for variables of no process, and DataError that names the processes that ended or do not
    answer, in place of Gloo's traceback. A process that torchrun has started gets SIGTERM when torchrun ends, even by SIGKILL.
    """
    end_with_launcher()
    is_launched = "RANK" in os.environ
    if is_launched:
        _check_variables()
    local_rank = int(os.environ.get("LOCAL_RANK", 0)) if is_launched else 0
    device = pick_device(local_rank, cpu)
    if not is_launched and not always:
        yield Dist(0, 0, 1, device, timeout=timeout)
        return
    store, rank, world_size = _rendezvous(timeout) if is_launched else (torch_dist.HashStore(), 0, 1)
    backend = distributed_backend(device)
    torch_dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=world_size)
    dist = Dist(torch_dist.get_rank(), local_rank, torch_dist.get_world_size(), device, store, timeout)
    failed = True
    try:
        yield dist
        failed = False
    except RuntimeError as error:
        if loss := find_loss(error, dist):
            raise DataError(loss.message) from None
        raise
    finally:
        # Free DistributedDataParallel before the group. As the group's last owner, its destructor deadlocks: it holds Python's
        # global lock while it waits for Gloo's thread, which needs that lock.
        gc.collect()
        # NCCL waits for all processes to destroy the group while they wait for this one; the end of the process aborts it.
        if not failed or device.type == "cpu":
            torch_dist.destroy_process_group()


class Loss(NamedTuple):
    """A sentence about the processes whose absence made a collective fail, and True if any process timed out waiting."""

    message: str
    timed_out: bool


def find_loss(error: BaseException, dist: Dist) -> Loss | None:
    """Find the processes whose absence made a collective fail; None for other errors. All live processes must call it."""
    timed_out = any(words in str(error) for words in TIMED_OUT)
    if not (timed_out or any(words in str(error) for words in PEER_IS_GONE)):
        return None
    present = _call_roll(dist, timed_out)
    # Gloo tells only some of the waiting processes that it was a timeout, and the others that a connection was closed.
    timed_out = timed_out or b"timed out" in present.values()
    # Without an answer from the store, its host is lost: the main process, or the launcher beside it.
    ranks = [rank for rank in range(dist.world_size) if rank not in present] if present else [0]
    absent = "another process of this run"
    if ranks:
        absent = f"process{'es' if ranks[1:] else ''} {' and '.join(map(str, ranks))} of {dist.world_size}"
    if not timed_out:
        return Loss(f"{absent} ended for the reason above, or with a machine that is lost", False)
    minutes = f"{dist.timeout / timedelta(minutes=1):g} minutes (--timeout-minutes)"
    reasons = "stopped, waiting for a disk, or on a machine that is lost"
    return Loss(f"{absent} did not answer for {minutes}: {reasons}", True)


def _call_roll(dist: Dist, timed_out: bool) -> dict[int, bytes]:
    """Return the live ranks, each with b"timed out" or b"disconnected"; none if the store does not answer."""
    wait = ROLL_CALL if timed_out else SHORT_ROLL_CALL
    present: dict[int, bytes] = {}
    caller = threading.Thread(target=_fill_roll, args=(dist, timed_out, wait, present), daemon=True)
    caller.start()
    caller.join(2 * wait)  # a call to a store whose process hangs never returns
    return dict(present)


def _fill_roll(dist: Dist, timed_out: bool, wait: float, present: dict[int, bytes]) -> None:
    end = time.monotonic() + wait
    if dist.store is None:
        return
    with suppress(RuntimeError):  # of a store whose process has ended
        dist.store.set(f"present_{dist.rank}", "timed out" if timed_out else "disconnected")
        while len(present) < dist.world_size and time.monotonic() < end:
            for rank in range(dist.world_size):
                if rank not in present and dist.store.check([f"present_{rank}"]):
                    present[rank] = dist.store.get(f"present_{rank}")
            time.sleep(LOOK)


def _check_variables() -> None:
    """Raise UsageError if RANK is set by itself, such as one left over in a shell, or to no number of a process."""
    if missing := [name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]:
        raise UsageError(
            f"RANK={os.environ['RANK']} in the environment makes this one of several processes, without {', '.join(missing)}: "
            "unset RANK, or start with python -m multiproc"
        )
    values = {name: os.environ.get(name, "0") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    wrong = [f"{name}={value}" for name, value in values.items() if not value.isdecimal()]
    if wrong or int(values["RANK"]) >= int(values["WORLD_SIZE"]):
        words = ", ".join(wrong) or f"RANK={values['RANK']}, WORLD_SIZE={values['WORLD_SIZE']}"
        raise UsageError(f"{words} in the environment is of no process: unset RANK, or start with python -m multiproc")


def _rendezvous(timeout: timedelta) -> tuple[torch_dist.Store, int, int]:
    """Return the store through which the processes of this launch connect, the rank, and the world size.

    torchrun uses one store for all its restarts. A prefix per restart separates the addresses of the current processes from those
    of dead ones. Raises DataError if they do not meet.
    """
    try:
        store, rank, world_size = next(torch_dist.rendezvous("env://", timeout=timeout))
    except torch_dist.DistError as error:
        place, reason = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", str(error).splitlines()[0]
        raise DataError(f"the processes of this run have not met at {place} (--timeout-minutes): {reason}") from None
    name = f"restart_{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    return torch_dist.PrefixStore(name, store), rank, world_size


def launch_id() -> str | None:
    """Return torchrun's name for the launch, the same after restarts; None without one."""
    name = os.environ.get(LAUNCHED, "none")  # torchrun's value for a launch without a name
    return None if name == "none" else name


def wrap(model: nn.Module, dist: Dist, *, bucket_cap_mb: float | None = None, compression: str = "none") -> nn.Module:
    """Wrap a model in DistributedDataParallel, which averages gradients in buckets that overlap with the backward.

    compression is one of COMPRESSIONS: float16 and bfloat16 halve the traffic. PowerSGD (Vogels et al. 2019, arXiv:1905.13727)
    sends factors of rank 1 after its first thousand steps, with error feedback. Raises UsageError for bfloat16 between CPUs.
    """
    if dist.world_size == 1:
        return model
    device_ids = None if dist.device.type == "cpu" else [dist.device]
    wrapped = DistributedDataParallel(
        model, device_ids=device_ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
    )
    if compression == "powersgd":
        wrapped.register_comm_hook(PowerSGDState(None), powerSGD_hook)
    elif compression != "none":
        try:
            wrapped.register_comm_hook(None, HALF_HOOKS[compression])
        except TypeError as error:  # PyTorch sends bfloat16 between GPUs only
            raise UsageError(f"--grad-compression {compression}: {error}; fp16 works everywhere") from None
    return wrapped


def all_sum(tensor: Tensor, dist: Dist) -> Tensor:
    """Sum a tensor over all processes, in place; every process gets the sum."""
    if dist.world_size > 1:
        torch_dist.all_reduce(tensor)
    return tensor


def gather(value: Any, dist: Dist) -> list[Any]:
    """Gather the value of each process, in order of rank, on every process; tensors must be on the CPU."""
    if dist.world_size == 1:
        return [value]
    values: list[Any] = [None] * dist.world_size
    torch_dist.all_gather_object(values, value)
    return values


@contextmanager
def main_alone(dist: Dist, work: str) -> Iterator[None]:
    """Context of what the main process does while the others wait: a request of one to stop becomes its own SIGTERM.

    `work` names it, and is the same in wait_for_main.
    """
    ended, store = threading.Event(), dist.store

    def watch() -> None:
        with suppress(RuntimeError):  # of a store whose process has ended
            while store and not ended.wait(PASSED_ON):
                if store.check([f"stop {work}"]):
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    watcher = threading.Thread(target=watch, daemon=True)
    if dist.world_size > 1:
        watcher.start()
    try:
        yield
    finally:
        ended.set()
        if store and dist.world_size > 1:
            watcher.join()
            store.set(f"end {work}", "")


def wait_for_main(dist: Dist, work: str, is_requested: Callable[[], bool]) -> None:
    """Wait for the end of main_alone, or for a request to stop, which is passed on: in a collective no signal is handled."""
    deadline = time.monotonic() + dist.timeout.total_seconds()
    with suppress(RuntimeError):  # of a store whose process has ended: the next collective says so
        while dist.store and not dist.store.check([f"end {work}"]) and time.monotonic() < deadline:
            if is_requested():
                dist.store.set(f"stop {work}", "")
                return
            time.sleep(PASSED_ON)


def broadcast(value: Any, dist: Dist) -> Any:
    """Send the main process's value to every process."""
    if dist.world_size == 1:
        return value
    values = [value]
    torch_dist.broadcast_object_list(values, src=0)
    return values[0]
