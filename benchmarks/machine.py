"""What this machine can do at most, measured: the rates of matrix products and of reading memory; and the work that a call is.

machine = Machine(device)
flops = count_flops(call)
limit = limit_seconds([Work(flops, weight_bytes, reads)], machine.product_rate(half=False), machine.read_rate)
"""

from __future__ import annotations

import datetime
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from common import precision
from common.inference.vocoders import time_call
from common.kernels.int8 import can_multiply

SIZES_CPU, SIZES_GPU, SIZES_QUICK = (1024, 2048), (4096, 8192), (128,)  # of square products
BYTES, BYTES_QUICK = 2**28, 2**22  # more than caches hold
READS = 10  # between two looks at the clock, so that a GPU's launches do not count
REPEATS = 5


class Work(NamedTuple):
    """Operations of a call, a multiplication and an addition being two, and how often it has to read how many bytes of weights."""

    flops: float
    weight_bytes: int = 0
    reads: int = 1


class Machine:
    """A device's rates: those of products are measured at once, that of reading for each number of bytes that is asked for."""

    def __init__(self, device: torch.device, quick: bool = False) -> None:
        self.device, self.quick = device, quick
        self._read_rates: dict[int, float] = {}
        self.half = precision.half_dtype(device, True)
        eighths = torch.int8 if can_multiply(device) else None
        self.rates = {dtype: self._best_product(dtype) for dtype in (torch.float32, self.half, eighths) if dtype}

    def product_rate(self, half: bool, int8: bool = False) -> float:
        """Operations a second of large products: float32 (TF32 where a GPU has it), the half precision that pays, if any, or int8.

        KeyError for int8 where inference does not multiply in it.
        """
        return self.rates[torch.int8 if int8 else self.half if half and self.half else torch.float32]

    def read_rate(self, n_bytes: int) -> float:
        """Bytes a second of reading so many bytes again and again: what fits into a cache is read faster than memory."""
        if n_bytes not in self._read_rates:
            self._read_rates[n_bytes] = self._measured_read_rate(n_bytes)
        return self._read_rates[n_bytes]

    def describe(self) -> dict[str, Any]:
        """Device, software, date and rates, for a report."""
        return {
            "device": self._name(),
            "cpu": cpu_name(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
            "flops_per_sec": {str(dtype).removeprefix("torch."): rate for dtype, rate in self.rates.items()},
            "read_bytes_per_sec": self.read_rate(BYTES_QUICK if self.quick else BYTES),
        }

    def _name(self) -> str:
        if self.device.type == "cpu":
            return "cpu"
        return torch.get_device_module(self.device).get_device_name(self.device)

    def _best_product(self, dtype: torch.dtype) -> float:
        sizes = SIZES_QUICK if self.quick else SIZES_CPU if self.device.type == "cpu" else SIZES_GPU
        return max(2 * size**3 / self._fastest(_products(size, dtype, self.device)) for size in sizes)

    def _measured_read_rate(self, n_bytes: int) -> float:
        numbers = torch.ones(max(1, n_bytes // 4), device=self.device)

        def again(read: Callable[[], Any]) -> None:
            for _ in range(READS):
                read()

        reads = [functools.partial(again, read) for read in (numbers.sum, numbers.amax)]
        return READS * numbers.nbytes / self._fastest(reads)

    def _fastest(self, calls: Iterable[Callable[[], Any]]) -> float:
        """The least of the calls' seconds, each the median of some after the first."""
        return min(
            statistics.median([time_call(call, self.device)[1] for _ in range(REPEATS + 1)][1:]) for call in calls
        )


def _products(size: int, dtype: torch.dtype, device: torch.device) -> Iterator[Callable[[], Any]]:
    """The same number of operations in the orders and libraries that products come in: 2 x size^3 each."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    if dtype == torch.int8:
        yield lambda: torch._int_mm(a, b)
        yield lambda: torch._int_mm(a, b.t())
        return
    yield lambda: a @ b
    yield lambda: a @ b.t()
    signal, kernel = a[None], b.view(size, size // 4, 4)
    yield lambda: F.conv1d(F.pad(signal[:, : size // 4], (0, 3)), kernel)


def cpu_name() -> str:
    """What the CPU calls itself; nothing where the system does not tell."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def count_flops(call: Callable[[], Any]) -> int:
    """Operations of all products and convolutions in a call, backward included; a multiplication and an addition are two.

    cuDNN is off in it: its LSTM would not be seen.
    """
    with torch.backends.cudnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def limit_seconds(works: Iterable[Work], product_rate: float, read_rate: Callable[[int], float]) -> float:
    """The least seconds that pieces of work take one after the other, each bound by its products or by reading its weights."""
    return sum(max(work.flops / product_rate, _reading(work, read_rate)) for work in works)


def _reading(work: Work, read_rate: Callable[[int], float]) -> float:
    return work.reads * work.weight_bytes / read_rate(work.weight_bytes) if work.weight_bytes else 0.0
