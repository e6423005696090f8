"""The memory benchmark's table, against bytes counted by hand and against itself."""

from __future__ import annotations

import pytest

from benchmarks.memory import TITLES
from tests.recipe import Result, run

pytestmark = pytest.mark.slow

SMALL = ["--cpu", "--channels", 192, "--layers", 4, "--segment-length", 4096, "--batch-size", 8, "--repeats", 1]


def rows(result: Result) -> list[list[float]]:
    assert (result.code, result.err) == (0, "")
    head, titles, *lines = result.out.splitlines()
    assert head.startswith("cpu, 1 threads, PyTorch ")
    assert "".join(titles.split()) == "".join(TITLES).replace(" ", "")
    return [[float(cell) for cell in line.replace(" x", "").split()] for line in lines]


def n_weights(n_flows: int, channels: int, layers: int) -> int:
    """Parameters of the published layout: four flows of 8 channels, then four of 6."""

    def conv(inputs: int, outputs: int, kernel: int = 1) -> int:
        return outputs * (inputs * kernel + 2)  # weight_v, weight_g and bias

    def network(half: int) -> int:
        inner = layers * (conv(channels, 2 * channels, 3) + conv(640, 2 * channels)) + conv(half, channels)
        inner += (layers - 1) * conv(channels, 2 * channels) + conv(channels, channels)
        return inner + 2 * half * (channels + 1)

    halves = [4, 4, 4, 4, 3, 3, 3, 3][:n_flows]
    return 80 * 80 * 1024 + 80 + sum(network(half) + 4 * half**2 for half in halves)


def test_the_table() -> None:
    table = rows(run("benchmarks/memory.py", *SMALL, "--flows", 1, 8))
    assert [row[0] for row in table] == [1, 8]
    for flows, plain, again, less, gradients, seconds, longer_seconds, longer in table:
        assert gradients == pytest.approx(4 * n_weights(int(flows), 192, 4) / 1e6, abs=0.06)
        assert again > gradients  # they are there at the end of the step
        assert less == pytest.approx(plain / again, abs=0.006)
        assert longer == pytest.approx(longer_seconds / seconds, rel=0.1)
    # Without, the inner tensors of eight flows. With, seven more flows add their gradients and 20 of the flow's channels each.
    assert table[1][1] > 1.1 * table[1][2]
    saved_mb = 7 * 20 * (8 * 4096 // 8) * 4 / 1e6
    assert table[1][2] - table[0][2] < table[1][4] - table[0][4] + saved_mb + 0.2


def test_flags_that_cannot_work_are_refused() -> None:
    refused = run("benchmarks/memory.py", *SMALL, "--flows", 0)
    assert refused.code == 2
    assert "argument --flows: 0, expected at least 1" in refused.err
    refused = run("benchmarks/memory.py", *SMALL, "--flows", 2, "--channels", 7)
    assert (refused.code, refused.err) == (2, "error: --wn-channels 7: expected an even number\n")
