"""The memory of a training step: its peak, the memory available, and advice if that is not enough."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from common import precision
from common.errors import DataError
from common.system import memory_limit

CONTROL_GROUPS = Path("/sys/fs/cgroup")
CONTROL_GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
CPU_IN_TRACE = 0  # the number of a CPU in "Device Type" of a trace
USABLE = 90  # per cent of the memory; code, libraries and gaps between tensors take the rest
REQUESTED_BYTES = re.compile(r"tried to allocate (\d+) bytes")
REQUESTED_SIZE = re.compile(r"allocate (\d[\d.]* [KMGT]iB)")


class StateBytes(NamedTuple):
    """Bytes of a training state: weights with buffers, gradients of the trained weights, the optimizer's averages."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """The sum of all three."""
        return sum(self)


def state_bytes(model: nn.Module) -> StateBytes:
    """Count the bytes of a model's training state in this process, which do not depend on the batch size.

    Adam has two averages of a parameter's size. The count leaves out DistributedDataParallel's buckets, which are as large as the
    gradients, and the optimizer's step counts.
    """
    weights = sum(map(_bytes, (*model.parameters(), *model.buffers())))
    gradients = sum(_bytes(parameter) for parameter in model.parameters() if parameter.requires_grad)
    return StateBytes(weights, gradients, 2 * gradients)


def _bytes(tensor: Tensor) -> int:
    return getattr(tensor, "to_local", lambda: tensor)().nbytes  # of a sharded tensor, the part of this process


def measure_peak(device: torch.device, work: Callable[[], Any]) -> int:
    """Measure the bytes of tensors at the highest point of work(), above those alive before it.

    On a CPU this counts the blocks that this thread and PyTorch's threads allocate and free during work(). Older memory that work()
    frees makes no difference there, while on a GPU it makes room. Scratch space that libraries allocate by themselves is left out.
    On a GPU work() runs twice, and the peak of precision.peak_memory is reset.
    """
    if precision.allocated_memory(device) is None:
        return _peak_on_cpu(work)
    # In the first call cuBLAS takes memory that it keeps, and cuDNN's search for algorithms needs scratch space.
    work()
    before = precision.allocated_memory(device) or 0
    precision.peak_memory(device)  # resets the peak so far
    work()
    return (precision.peak_memory(device) or 0) - before


class Allocation(NamedTuple):
    """A block of the CPU's memory: when it was taken (microseconds), its address, its bytes; negative bytes free it."""

    time: float
    address: int
    size: int


def _peak_on_cpu(work: Callable[[], Any]) -> int:
    sizes: dict[int, int] = {}  # bytes of the live blocks by address
    alive = peak = 0
    for _, address, size in sorted(_allocations(work)):
        if size > 0:
            sizes[address] = size
            alive += size
            peak = max(peak, alive)
        else:  # a block from before work() has no entry
            alive -= sizes.pop(address, 0)
    return peak


def _allocations(work: Callable[[], Any]) -> list[Allocation]:
    """List every allocation of work(), read from the trace that PyTorch's profiler exports."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else the profiler writes its start and stop to stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_bytes(), object_hook=_keep_allocations)
    return [event for event in events or () if isinstance(event, Allocation)]


def _keep_allocations(entry: dict[str, Any]) -> Any:
    """Reduce one object of a trace to an allocation on the CPU, the list of events, or the few keys that these need.

    Called while the trace is parsed, as a large model's step has hundreds of thousands of events.
    """
    if "traceEvents" in entry:
        return entry["traceEvents"]
    if "Bytes" in entry:
        return entry
    if entry.get("name") == "[memory]" and entry["args"]["Device Type"] == CPU_IN_TRACE:
        return Allocation(entry["ts"], entry["args"]["Addr"], entry["args"]["Bytes"])
    return None


def available_memory(device: torch.device) -> int:
    """Return the bytes this process may use: a whole GPU, or the machine's memory within the limits of process and container."""
    on_gpu = precision.total_memory(device)
    if on_gpu is not None:
        return on_gpu
    in_machine, of_process = psutil.virtual_memory().total, memory_limit()
    return min(in_machine, *_container_limits(), of_process or in_machine)


def _container_limits() -> Iterator[int]:
    """Yield the limits of the process's control groups and their parents, such as a container's or a cluster job's.

    Version 2 has one hierarchy; in version 1 memory has its own (man 7 cgroups). Inside a container its own group is the root.
    """
    try:
        groups = CONTROL_GROUPS_OF_PROCESS.read_text().splitlines()
    except OSError:  # a system without control groups
        return
    for _, controllers, path in (line.split(":", 2) for line in groups):
        if controllers and "memory" not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / "memory" if controllers else CONTROL_GROUPS
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                with suppress(OSError, ValueError):  # there may be no such file, or a word in it, such as "max"
                    yield int((folder / file).read_text())


def smaller_batch(batch_size: int, fixed_bytes: int, peak_bytes: int, available_bytes: int) -> int:
    """Return the largest batch below batch_size that fits in 90 % of available_bytes; 0 if not even one clip fits.

    A batch takes fixed_bytes plus equal bytes for each clip; the batch of batch_size takes peak_bytes in all.
    """
    room = USABLE * available_bytes // 100 - fixed_bytes
    of_clips = peak_bytes - fixed_bytes
    if room < 0:
        return 0
    fitting = room * batch_size // of_clips if of_clips > 0 else batch_size
    return min(fitting, batch_size - 1)


def split_batch(global_batch: int, largest: int) -> tuple[int, int]:
    """Return (batch size, accumulation steps) with the product closest to a global batch; if equally close, the larger batch.

    Batches above `largest` and below half of it are left out: small ones come closest but waste the device.
    """
    pairs = [(batch, max(1, round(global_batch / batch))) for batch in range(largest, largest // 2, -1)]
    return min(pairs, key=lambda pair: abs(pair[0] * pair[1] - global_batch))


def advice(batch_size: int, accumulation: int, suggested: int, hint: str = "") -> str:
    """Name the flags for batches of at most `suggested` clips and about the same training.

    `hint` is another way out, "add --amp" for example.
    """
    if suggested < 1:
        return f"not even --batch-size 1 fits: {hint or 'take shorter clips or a smaller model'}"
    before = batch_size * accumulation
    batch, steps = split_batch(before, suggested)
    after = batch * steps
    same = f"the global batch ({before}"
    if after != before:
        same = f"about the same global batch ({after} against {before}"
    change = f"lower --batch-size from {batch_size} to {batch} and set --grad-accumulation-steps {steps}"
    return f"{change}, which keeps {same} clips a process)" + (f"; or {hint}" if hint else "")


@contextmanager
def explain_out_of_memory(describe: Callable[[], str]) -> Iterator[None]:
    """Turn running out of a device's memory into a DataError that ends with describe(), the advice on flags."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not precision.is_out_of_memory(error):
            raise
        request, message = "", str(error)
        if match := REQUESTED_BYTES.search(message):
            request = f"no room for {int(match[1]) / 1e9:,.2f} GB more; "
        elif match := REQUESTED_SIZE.search(message):
            request = f"no room for {match[1]} more; "
        raise DataError(f"out of memory: {request}{describe()}") from None
