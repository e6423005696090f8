"""What a step takes of the memory, what there is of it, and what to say where it does not suffice."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from common import precision
from common.errors import DataError

CONTROL_GROUPS = Path("/sys/fs/cgroup")
CONTROL_GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
USABLE = 90  # per cent of the memory: the rest goes to what is no tensor, and to gaps between tensors
NO_ROOM = (  # how libraries that have no exception of their own say it
    "DefaultCPUAllocator: can't allocate memory",
    "_STATUS_ALLOC_FAILED",  # a GPU's, in making room for itself
)
WANTED_BYTES = re.compile(r"tried to allocate (\d+) bytes")
WANTED_SIZE = re.compile(r"allocate (\d[\d.]* [KMGT]iB)")


class StateBytes(NamedTuple):
    """Bytes of what training keeps: weights (and buffers), the gradients of those that learn, the optimizer's averages."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """All three."""
        return sum(self)


def state_bytes(model: nn.Module, optimizer_slots: int = 2) -> StateBytes:
    """Bytes that a model takes in this process in training whatever its batch; Adam has two slots of a parameter's size.

    DistributedDataParallel's buckets, as large as the gradients again, and the optimizer's step counts are left out.
    """
    weights = sum(map(_bytes, (*model.parameters(), *model.buffers())))
    gradients = sum(_bytes(parameter) for parameter in model.parameters() if parameter.requires_grad)
    return StateBytes(weights, gradients, optimizer_slots * gradients)


def _bytes(tensor: Tensor) -> int:
    return getattr(tensor, "to_local", lambda: tensor)().nbytes  # of one cut over processes, its own part


def measure_peak(device: torch.device, work: Callable[[], Any]) -> int:
    """Bytes that tensors take at the highest point of work(), above what they took before it.

    On a CPU that is what this thread and those of PyTorch that work for it (backward's, an operation's) allocate and free;
    memory from before that work() frees makes no difference there, while on a GPU it makes room. Scratch space that
    libraries get for themselves counts nowhere. On a GPU the count behind precision.peak_memory starts anew.
    """
    before = precision.allocated_memory(device)
    if before is None:
        return _peak_on_cpu(work)
    precision.peak_memory(device)  # forgets the peak so far
    work()
    return (precision.peak_memory(device) or 0) - before


def _peak_on_cpu(work: Callable[[], Any]) -> int:
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or the profiler tells stderr that it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    sizes: dict[int, int] = {}  # of what is alive, by address
    alive = peak = 0
    for _, address, size in sorted(_allocations(profiler.profiler.kineto_results.experimental_event_tree())):
        if size > 0:
            sizes[address] = size
            alive += size
            peak = max(peak, alive)
        else:  # the profiler may know blocks from before by another block's size; they are none of ours
            alive -= sizes.pop(address, 0)
    return peak


def _allocations(roots: list[Any]) -> Iterator[tuple[int, int, int]]:
    """(nanosecond, address, bytes) of every block of the CPU's memory taken, or given back where bytes are negative."""
    waiting = list(roots)
    while waiting:
        event = waiting.pop()
        waiting += event.children
        kind, fields = event.typed
        if kind == torch._C._profiler._EventType.Allocation and fields.device.type == "cpu":
            yield event.start_time_ns, fields.ptr, fields.alloc_size


def available_memory(device: torch.device) -> int:
    """Bytes this process may have of a device's memory: a GPU's all, or the machine's up to its own and its container's limit."""
    on_gpu = precision.total_memory(device)
    if on_gpu is not None:
        return on_gpu
    in_machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    of_process = [] if limit == resource.RLIM_INFINITY else [limit]
    return min([in_machine, *of_process, *_container_limits()])


def _container_limits() -> Iterator[int]:
    """Limits of the control groups that the process is in and of those around them: a container's, or a cluster job's.

    Version 2 has one hierarchy, in version 1 memory has its own (man 7 cgroups). A container sees its own group as the root.
    """
    try:
        groups = CONTROL_GROUPS_OF_PROCESS.read_text().splitlines()
    except OSError:  # no such thing here
        return
    for _, controllers, path in (line.split(":", 2) for line in groups):
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / "memory" if controllers else CONTROL_GROUPS
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield from _number_in(folder / file)


def _number_in(file: Path) -> Iterator[int]:
    """The number that a file holds; none where there is no such file or a word in it, as "max"."""
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isdecimal():
        yield int(text)


def smaller_batch(batch_size: int, fixed_bytes: int, peak_bytes: int, available_bytes: int) -> int:
    """The largest batch below batch_size that fits in 90 % of what is available; 0 where not even one clip does.

    A batch takes fixed_bytes and as much for each clip as the batch of batch_size, which took peak_bytes in all.
    """
    room = USABLE * available_bytes // 100 - fixed_bytes
    of_clips = peak_bytes - fixed_bytes
    if room < 0:
        return 0
    fitting = room * batch_size // of_clips if of_clips > 0 else batch_size
    return min(fitting, batch_size - 1)


def accumulated(global_batch: int, largest: int) -> tuple[int, int]:
    """(batch size, accumulation steps) whose product is closest to a global batch; of equally close, the larger batch.

    No batch is above `largest`, nor below half of it: small ones, whose products come closest, would waste the device.
    """
    pairs = [(batch, max(1, round(global_batch / batch))) for batch in range(largest, largest // 2, -1)]
    return min(pairs, key=lambda pair: abs(pair[0] * pair[1] - global_batch))


def advice(batch_size: int, accumulation: int, suggested: int, hint: str = "") -> str:
    """What to change where a batch does not fit: flags for batches of at most `suggested` clips and about the same training.

    `hint` is what else would help, "add --amp" say.
    """
    if suggested < 1:
        return f"not even --batch-size 1 fits: {hint or 'take shorter clips or a smaller model'}"
    wanted = batch_size * accumulation
    batch, steps = accumulated(wanted, suggested)
    made = batch * steps
    kept = f"the global batch ({wanted}" if made == wanted else f"about the same global batch ({made} against {wanted}"
    change = f"lower --batch-size from {batch_size} to {batch} and set --grad-accumulation-steps {steps}"
    return f"{change}, which keeps {kept} clips a process)" + (f"; or {hint}" if hint else "")


@contextmanager
def explain_out_of_memory(describe: Callable[[], str]) -> Iterator[None]:
    """Turn running out of a device's memory into a DataError that ends with describe(): what to do, from advice() say."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise DataError(_out_of_memory(error, describe)) from None
    except RuntimeError as error:
        if not any(words in str(error) for words in NO_ROOM):
            raise
        raise DataError(_out_of_memory(error, describe)) from None


def _out_of_memory(error: BaseException, describe: Callable[[], str]) -> str:
    said = str(error)
    if found := WANTED_BYTES.search(said):
        wanted = f"no room for {int(found[1]) / 1e9:,.2f} GB more; "
    elif found := WANTED_SIZE.search(said):
        wanted = f"no room for {found[1]} more; "
    else:
        wanted = ""
    return f"out of memory: {wanted}{describe()}"
