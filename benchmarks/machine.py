"""Measure the machine's limits, the rates of matrix products and memory reads, and count the work of a call.

machine = Machine(device)
flops = count_flops(call)
limit = limit_seconds([Work(flops, weight_bytes, reads)], machine.product_rate(half=False), machine.read_rate)
"""

from __future__ import annotations

import datetime
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from common import precision
from common.inference.vocoders import time_call
from common.kernels.int8 import can_multiply
from common.kernels.private_ops import int8_matmul, processor

SIZES_CPU, SIZES_GPU, SIZES_QUICK = (1024, 2048), (4096, 8192), (128,)  # sides of square matrices
BYTES, BYTES_QUICK = 2**28, 2**22  # more than the size of caches
READS = 10  # per measurement, so that a GPU's launch time is negligible
REPEATS = 5


class Work(NamedTuple):
    """Operations of a call (a multiply-add counts as two), bytes of its weights, and how often it reads them."""

    flops: float
    weight_bytes: int = 0
    reads: int = 1


class Machine:
    """Rates of a device: of products, measured at construction, and of reads, measured on demand."""

    def __init__(self, device: torch.device, quick: bool = False) -> None:
        self.device, self.quick = device, quick
        self._read_rates: dict[int, float] = {}
        self.half = precision.half_dtype(device, True)
        int8 = torch.int8 if can_multiply(device) else None
        self.rates = {dtype: self._best_product(dtype) for dtype in (torch.float32, self.half, int8) if dtype}

    def product_rate(self, half: bool, int8: bool = False) -> float:
        """Operations per second of large products, in float32 (TF32 if the GPU has it), half precision if faster, or int8.

        Raises KeyError for int8 on a machine where inference does not use it.
        """
        return self.rates[torch.int8 if int8 else self.half if half and self.half else torch.float32]

    def read_rate(self, n_bytes: int) -> float:
        """Bytes per second of repeated reads of `n_bytes`; data that fits into a cache is read faster."""
        if n_bytes not in self._read_rates:
            self._read_rates[n_bytes] = self._measure_read_rate(n_bytes)
        return self._read_rates[n_bytes]

    def describe(self) -> dict[str, Any]:
        """Device, software, date and rates, for a report."""
        return {
            "device": self._name(),
            "cpu": processor().name,
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

    def _measure_read_rate(self, n_bytes: int) -> float:
        numbers = torch.ones(max(1, n_bytes // 4), device=self.device)

        def repeat(read: Callable[[], Any]) -> None:
            for _ in range(READS):
                read()

        reads = [functools.partial(repeat, read) for read in (numbers.sum, numbers.amax)]
        return READS * numbers.nbytes / self._fastest(reads)

    def _fastest(self, calls: Iterable[Callable[[], Any]]) -> float:
        """Seconds of the fastest call, each measured as the median of repeats after the first."""
        return min(
            statistics.median([time_call(call, self.device)[1] for _ in range(REPEATS + 1)][1:]) for call in calls
        )


def _products(size: int, dtype: torch.dtype, device: torch.device) -> Iterator[Callable[[], Any]]:
    """Yield products of 2 x size^3 operations each, in different layouts and libraries."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    if dtype == torch.int8:
        yield lambda: int8_matmul(a, b)
        yield lambda: int8_matmul(a, b.t())
        return
    yield lambda: a @ b
    yield lambda: a @ b.t()
    signal, kernel = a[None], b.view(size, size // 4, 4)
    yield lambda: F.conv1d(F.pad(signal[:, : size // 4], (0, 3)), kernel)


def stamp() -> str:
    """CPU, threads, version of PyTorch and date, for a report."""
    today = datetime.date.today().isoformat()
    return f"{processor().name}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}, {today}"


def count_flops(call: Callable[[], Any]) -> int:
    """Count the operations of all products and convolutions in a call, backward included; a multiply-add counts as two.

    cuDNN is disabled here, as the counter misses its LSTM.
    """
    with torch.backends.cudnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def limit_seconds(works: Iterable[Work], product_rate: float, read_rate: Callable[[int], float]) -> float:
    """Lower bound in seconds for works in sequence, each limited by its products or by reading its weights."""
    return sum(max(work.flops / product_rate, _read_seconds(work, read_rate)) for work in works)


def _read_seconds(work: Work, read_rate: Callable[[int], float]) -> float:
    return work.reads * work.weight_bytes / read_rate(work.weight_bytes) if work.weight_bytes else 0.0
