"""Fixtures of every test: one thread, and random numbers that depend only on the test's name."""

from __future__ import annotations

import zlib

import pytest
import torch


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
