"""Fixtures of every test: one thread, and random numbers that depend only on the test's name; and the order of files."""

import gc
import os
import zlib
from pathlib import Path

import pytest
import torch

os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("matplotlibrc"))
# PyTorch's compiler: no probe of the CPU's instructions, and no pool of processes, each of which imports PyTorch.
os.environ |= {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}

# Files that take longest, which start first: a long file at the end would keep one process busy while the others wait.
LONGEST = (
    "test_page", "exports/test_targets", "test_without_gpu", "test_speed", "train/test_command", "prepare/test_command",
    "test_scale", "test_multiproc", "test_train", "test_kills", "test_fast_ways", "test_hostile",
    "test_training_features", "test_full_disk",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then all others with slow tests; `--dist loadfile` hands files out in this order.

    Tests marked `gpu` are skipped without a GPU.
    """
    if not torch.cuda.is_available():
        for item in (item for item in items if item.get_closest_marker("gpu")):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[int, bool]:
        name = item.path.with_suffix("").as_posix()
        first = next((number for number, ending in enumerate(LONGEST) if name.endswith(ending)), len(LONGEST))
        return first, item.path not in slow

    items.sort(key=place)  # stable: the order within a file stays


def pytest_collection_finish() -> None:
    """Keep all that is imported by now out of garbage collections, each of which would walk it: a tenth of the fast tests' time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: with tensors this small, several threads are slower, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_seed(request):
    """Seed by the test's name, so that its numbers do not depend on other tests."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
