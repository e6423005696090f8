"""The checker of tests/test_without_gpu.py finds the faults that are put before it, and the pretended GPU computes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from common import precision
from tests.gpu_rules import BrokenRule, Rules, has_gpu_kernel, place
from tests.pretend_gpu import GPU, PretendGpu, requires_pretence

pytestmark = requires_pretence


def gpu(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype, device=GPU)


FAULTS: dict[str, Callable[[], object]] = {
    r"add.Tensor: a tensor \(3,\) of the CPU": lambda: gpu(3) + torch.zeros(3),  # a factory without device=
    r"index.Tensor: a tensor \(2,\) of the CPU": lambda: gpu(3)[torch.tensor([0, 1])],
    r"mm.default: inputs of .*float16.*float32": lambda: gpu(2, 2, dtype=torch.float16) @ gpu(2, 2),
    r"convolution.default: inputs": lambda: F.conv1d(gpu(1, 2, 4).half(), gpu(2, 2, 1)),
    r"_linalg_slogdet.default: no half precision": lambda: torch.linalg.slogdet(gpu(2, 2).half()),
    r"a generator of the CPU": lambda: torch.rand(3, generator=torch.Generator(), device=GPU),
    r"without waiting": lambda: gpu(3).to("cpu", non_blocking=True),
    r"no such operator for a GPU": lambda: torch.ops.mkldnn._linear_pointwise(gpu(2, 2), gpu(2, 2), None, "none", [], ""),
    r"tensors of a recorded graph are still in use": lambda: record(lambda: KEPT.append(gpu(3) + 1)),
    r"waits for the GPU while a graph is recorded": lambda: record(lambda: gpu(3).sum().item()),
    r"on the CPU while a graph is recorded": lambda: record(lambda: torch.zeros(3)),
}  # fmt: skip
KEPT: list[Tensor] = []


def record(work: Callable[[], object]) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()


@pytest.mark.parametrize("message", FAULTS)
def test_a_fault_is_found(message: str) -> None:
    KEPT.clear()
    with PretendGpu(Rules()), pytest.raises(BrokenRule, match=message):
        FAULTS[message]()


WAITS: dict[str, Callable[[], object]] = {
    "item": lambda: gpu(3).sum().item(),
    "tolist": lambda: gpu(3).tolist(),
    "cpu": lambda: gpu(3).cpu(),
    "nonzero": lambda: gpu(3).nonzero(),
    "mask": lambda: gpu(3)[gpu(3) > 0],
    "equal": lambda: torch.equal(gpu(3), gpu(3)),
    "repeat_interleave": lambda: gpu(2).repeat_interleave(gpu(2).long()),
    "inverse": lambda: torch.linalg.inv(gpu(1, 1)),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_counted(name: str) -> None:
    with PretendGpu(rules := Rules()):
        WAITS[name]()
    assert sum(rules.waits.values()) >= 1
    assert not rules.uploads


def test_uploads_are_counted_and_pointwise_scalars_are_free() -> None:
    with PretendGpu(rules := Rules()):
        assert (gpu(2) * torch.tensor(3.0)).tolist() == [3, 3]
        torch.tensor([1.0, 2.0], device=GPU)
        torch.zeros(2).to(GPU, non_blocking=True)
    assert rules.uploads == {"outside": 1}
    assert place() == "outside"


def test_recorded_work_repeats_on_the_same_tensors_without_python() -> None:
    """A replay reads what stands in the inputs now and draws new numbers; numbers of Python are those of the recording."""
    calls = []
    with PretendGpu(Rules()) as gpu:
        source, drawn, total = (torch.zeros(4, device=GPU) for _ in range(3))

        def work() -> None:
            calls.append(1)
            torch.add(source * 2, torch.rand(4, device=GPU), out=drawn)
            total.add_(len(calls))

        precision.seed_everything(5)
        again = precision.repeatable(work, GPU)
        recorded = len(calls)
        assert gpu.capture_mode == "thread_local"  # else a CUDA call of a loader's thread ends the recording
        assert gpu.capture_device == GPU  # else the current device's stream would record nothing of another one
        total.zero_()
        seen = []
        for start in (10.0, 10.0, 20.0):
            source.fill_(start)
            again()
            seen.append(drawn.cpu())
        precision.seed_everything(5)
        source.fill_(10.0)
        again()
        assert torch.equal(drawn.cpu(), seen[0])  # recording has not moved the generator
        assert total.tolist() == [4 * recorded] * 4
    assert len(calls) == recorded == precision.WARM_UP_CALLS + 1
    assert [int(numbers[0]) for numbers in seen] == [20, 20, 40]
    assert not torch.equal(seen[0], seen[1])


def test_nothing_is_left_of_the_pretence() -> None:
    with PretendGpu(Rules()):
        assert torch.cuda.is_available() and precision.pick_device() == GPU
    assert not torch.cuda.is_available()
    with pytest.raises((RuntimeError, AssertionError), match=r"CUDA|cuda"):
        torch.zeros(3, device="cuda")
    x = torch.ones(3, requires_grad=True)
    x.sum().backward()
    assert torch.equal(x.grad, torch.ones(3))  # type: ignore[arg-type]


def test_the_list_of_kernels() -> None:
    assert all(
        has_gpu_kernel(f"aten::{name}") for name in ("add.Tensor", "mm", "native_dropout", "_fused_adam_", "zeros")
    )
    assert not any(map(has_gpu_kernel, ("aten::mkldnn_linear", "mkldnn::_linear_pointwise", "aten::nothing")))
