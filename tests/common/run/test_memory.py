"""Peaks against closed forms, batches that fit against a search of all, and memory that runs out."""

from __future__ import annotations

import re
import resource
import threading
from itertools import product
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from common.errors import DataError
from common.run.memory import (
    advice,
    available_memory,
    explain_out_of_memory,
    measure_peak,
    smaller_batch,
    split_batch,
    state_bytes,
)

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)
MIB = 1 << 20
FLOATS = MIB // 4  # of float32 in one MiB
SCALARS = 256  # bytes that an operation may take for the numbers it is given


def double_and_drop() -> None:
    x = torch.empty(FLOATS)
    y = x * 2  # 2 MiB now
    del x
    z = torch.cat((y, y))  # 3 MiB
    del y
    torch.empty(FLOATS // 2)  # 2.5 MiB
    del z


def a_peak_in_the_middle() -> None:
    x = torch.empty(FLOATS)
    many = [torch.empty(FLOATS) for _ in range(7)]
    del many
    torch.stack((x, x))


@pytest.mark.parametrize(
    ("work", "mebibytes"),
    [(double_and_drop, 3), (lambda: torch.ones(3 * FLOATS).mul_(2), 3), (a_peak_in_the_middle, 8)],
)
def test_peak_of_operations(work, mebibytes: int) -> None:
    assert mebibytes * MIB <= measure_peak(CPU, work) <= mebibytes * MIB + SCALARS


def test_peak_of_backward() -> None:
    torch.set_num_threads(2)  # conftest puts it back
    x = torch.zeros(FLOATS, requires_grad=True)
    threads_of_hook = []
    x.register_hook(lambda gradient: threads_of_hook.append(threading.get_ident()))

    def work() -> None:
        y = x
        for _ in range(9):
            y = y.exp()  # keeps its result for backward
        loss = y.sum()
        del y  # a name for it would keep the last result alive
        loss.backward()

    # forward leaves a MiB of each step; backward adds one gradient, and of each step after the first the next one
    assert 10 * MIB <= measure_peak(CPU, work) <= 10 * MIB + SCALARS
    assert threads_of_hook == [threading.get_ident()]  # a CPU's backward runs in the calling thread


def test_memory_from_before_is_not_counted() -> None:
    blocks: list[torch.Tensor] = []
    assert measure_peak(CPU, lambda: blocks.extend(torch.empty(FLOATS) for _ in range(8))) == 8 * MIB

    def free_and_take() -> None:
        blocks.clear()
        blocks.append(torch.empty(2 * FLOATS))

    assert measure_peak(CPU, free_and_take) == 2 * MIB
    assert measure_peak(CPU, blocks.clear) == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_peak_on_a_real_gpu() -> None:
    block = torch.empty(5 * FLOATS, device=GPU)

    def work() -> None:
        x = torch.empty(FLOATS, device=GPU)
        torch.cat((x, x))

    assert measure_peak(GPU, work) == 3 * MIB
    assert block.nbytes < available_memory(GPU)
    message = r"^out of memory: no room for \d[\d.]* GiB more; less$"
    with pytest.raises(DataError, match=message), explain_out_of_memory(lambda: "less"):
        torch.empty(2 * available_memory(GPU), dtype=torch.uint8, device=GPU)


def test_state_is_what_adam_has_after_a_step() -> None:
    model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    model(torch.randn(4, 7)).sum().backward()
    optimizer.step()
    state = state_bytes(model)
    assert state.weights == sum(tensor.nbytes for tensor in model.state_dict().values())
    assert state.gradients == sum(p.grad.nbytes for p in model.parameters() if p.grad is not None) == 4 * (35 + 10 + 18)
    slots = [value for slot in optimizer.state.values() for name, value in slot.items() if name != "step"]
    assert state.optimizer == sum(value.nbytes for value in slots)
    assert state_bytes(model.double()).gradients == 8 * (35 + 10 + 18)
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    model[1].weight = model[0].weight  # counts once
    assert state_bytes(model) == (144, 144, 288)


def test_a_cpu_has_its_machines_memory_up_to_the_limit(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("common.run.memory.CONTROL_GROUPS_OF_PROCESS", tmp_path / "absent")
    machine = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024  # type: ignore[index]
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert available_memory(CPU) == machine
    try:
        for limit in (machine // 2, 3 * machine):
            resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
            assert available_memory(CPU) == min(limit, machine)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("groups", "limits", "least"),
    [
        ("0::/\n", {"memory.max": "1000000"}, 1000000),  # a container
        ("0::/job/step\n", {"job/memory.max": "2000000", "job/step/memory.max": "3000000"}, 2000000),
        ("0::/job/step\n", {"job/step/memory.max": "1500000", "elsewhere/memory.max": "1"}, 1500000),
        ("5:cpu:/b\n4:memory:/a\n0::/\n",
         {"memory/a/memory.limit_in_bytes": "7000000", "memory/b/memory.limit_in_bytes": "1"}, 7000000),  # b limits others
        ("4:memory:/docker/1a\n", {"memory/memory.limit_in_bytes": "8000000"}, 8000000),  # mounted as the root
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("", {"memory.max": "1"}, None),
    ],
)  # fmt: skip
def test_a_cpu_has_its_containers_memory(tmp_path, monkeypatch, groups: str, limits: dict, least: int | None) -> None:
    for name, limit in limits.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(limit + "\n")
    (tmp_path / "own").write_text(groups)
    monkeypatch.setattr("common.run.memory.CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr("common.run.memory.CONTROL_GROUPS_OF_PROCESS", tmp_path / "own")
    assert available_memory(CPU) == (psutil.virtual_memory().total if least is None else least)


def test_the_largest_smaller_batch_that_fits() -> None:
    costs = [(0, 10), (300, 1), (300, 37), (300, 999), (1000, 1)]
    for batch_size, (fixed, per_clip), available in product((1, 2, 7, 104), costs, (200, 1000, 1234, 10**6)):
        fits = [b for b in range(1, batch_size) if fixed + b * per_clip <= 0.9 * available]
        assert smaller_batch(batch_size, fixed, fixed + batch_size * per_clip, available) == max(fits, default=0)
    assert smaller_batch(8, 500, 500, 1000) == 7  # a peak without clips
    assert smaller_batch(8, 901, 901, 1000) == 0


def test_accumulation_comes_closest_to_the_global_batch() -> None:
    for global_batch, largest in product((1, 2, 40, 97, 104, 416), (1, 2, 3, 10, 48)):
        batch, steps = split_batch(global_batch, largest)
        batches = [b for b in range(1, largest + 1) if 2 * b > largest]
        tried = [(abs(b * k - global_batch), -b) for b in batches for k in range(1, 2 * global_batch + 1)]
        assert (abs(batch * steps - global_batch), -batch) == min(tried)


def test_advice() -> None:
    assert "from 8 to 6 and set --grad-accumulation-steps 4, which keeps the global batch (24 clips" in advice(8, 3, 6)
    assert "keeps about the same global batch (96 against 97 clips a process); or add" in advice(97, 1, 48, "add --amp")
    assert advice(8, 1, 0, "add --amp") == "not even --batch-size 1 fits: add --amp"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0"), "no room for 2.50 GiB more; "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1500000000 bytes."),
         "no room for 1.50 GB more; "),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), ""),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), ""),
        (RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com"), ""),
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 7.28 TiB for an array with shape (10,)"), "no room for 7.28 TiB more; "),
    ],
)  # fmt: skip
def test_messages_of_full_memory(error: Exception, message: str) -> None:
    with pytest.raises(DataError) as caught, explain_out_of_memory(lambda: "lower something"):
        raise error
    assert str(caught.value) == f"out of memory: {message}lower something"
    for other in (RuntimeError("shapes cannot be multiplied"), ValueError("can't allocate memory")):
        with pytest.raises(type(other)), explain_out_of_memory(lambda: "lower something"):
            raise other
