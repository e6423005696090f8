"""What every test gets: one thread, and random numbers that depend on its own name only."""

from __future__ import annotations

import zlib

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small take ten times as long where threads wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_seed(request):
    """A test alone, in another order or after new ones draws the same numbers."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
