"""Loops in chunks against the same loop step by step, on a CPU and as replays of a pretended GPU that overwrite one memory."""

from collections.abc import Hashable
from typing import Any

import pytest
import torch
from torch import Tensor

from tacotron2.fast import graphs
from tacotron2.fast.graphs import ChunkedLoop, Tensors
from tests.gpu_rules import Rules
from tests.pretend_gpu import CPU, GPU, Graph, PretendGpu, requires_pretence

CASES = [(11, 3, 1.5), (1, 5, 0.7), (8, 3, 1.5), (11, 5, 0.7)]  # steps, size, scale
DEVICES = [CPU, pytest.param(GPU, marks=requires_pretence)]


class Recurrence:
    """s(t) = scale · tanh(W x(t) + U s(t - 1)) where kept; outputs s(t)² and x(t)·s(t). Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, scale: Hashable, state: Tensors, inputs: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
        self.calls += 1
        assert isinstance(scale, float)
        (s,), (x, keep), (w, u) = state, inputs, constants
        squares, products = [], []
        for x_t, keep_t in zip(x, keep, strict=True):
            s = scale * torch.tanh(x_t @ w + s @ u) * keep_t
            squares.append(s * s)
            products.append(x_t * s)
        return (torch.stack(squares), torch.stack(products)), (s,)


class Problem:
    """Inputs, directions of the outputs, and the results step by step, in float64."""

    def __init__(self, steps: int, size: int, seed: int, scale: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.scale = scale
        shapes = [(2, size), (steps, 2, size), (size, size), (size, size), *[(steps, 2, size)] * 2]
        self.tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        self.keep = torch.rand(steps, 2, size, generator=generator) > 0.3
        self.wanted = self.results(CPU, Recurrence())

    def loss(self, device: torch.device, run: Any) -> tuple[Tensor, list[Tensor]]:
        """The loss of a loop, and the tensors that it depends on."""
        s, x, w, u, *directions = (tensor.to(device) for tensor in self.tensors)
        leaves = [x.requires_grad_(), w.requires_grad_(), u.requires_grad_()]
        outputs = run(self.scale, (s,), (x, self.keep.to(device)), (w, u))
        outputs = outputs[0] if isinstance(outputs[0], tuple) else outputs
        return sum((o * d).sum() for o, d in zip(outputs, directions, strict=True)), leaves

    def results(self, device: torch.device, run: Any) -> list[Tensor]:
        """The loss and its gradients."""
        for tensor in self.tensors:
            tensor.requires_grad_(False)
        loss, leaves = self.loss(device, run)
        return [x.detach().cpu() for x in (loss, *torch.autograd.grad(loss, leaves))]

    def check(self, results: list[Tensor]) -> None:
        for got, want in zip(results, self.wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_chunks_are_step_by_step(device: torch.device) -> None:
    """Sequences shorter than a chunk, of some chunks, and of some and a part; two sizes and two settings in turn."""
    problems = [Problem(steps, size, seed=steps, scale=scale) for steps, size, scale in CASES]
    with PretendGpu(Rules()):
        loop = ChunkedLoop(Recurrence(), 4)
        for problem in problems:
            problem.check(problem.results(device, loop))
        assert len(loop.chunks) == 2


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_losses_of_two_batches_before_their_backward(device: torch.device) -> None:
    """Each run overwrites all buffers, and no result of another run, forward or backward."""
    problems = [Problem(steps, 3, seed=steps) for steps in (9, 6)]
    with PretendGpu(Rules()):
        loop = ChunkedLoop(Recurrence(), 4)
        losses = [problem.loss(device, loop) for problem in problems]
        results = [(loss, *torch.autograd.grad(loss, leaves)) for loss, leaves in losses]
        for problem, tensors in zip(problems, results, strict=True):
            problem.check([x.detach().cpu() for x in tensors])


@requires_pretence
def test_a_gpu_replays_and_runs_no_python(monkeypatch) -> None:
    """Beyond the bound on recordings a new size runs unrecorded, with the same results."""
    monkeypatch.setattr(graphs, "MAX_RECORDED", 1)
    first, second = Problem(9, 3, seed=1), Problem(9, 5, seed=2)
    with PretendGpu(Rules()):
        loop = ChunkedLoop(function := Recurrence(), 4)
        first.check(first.results(GPU, loop))
        (chunk,) = loop.chunks.values()
        assert all(isinstance(work.__self__, Graph) for work in (chunk.forward, chunk.backward))
        before = function.calls
        first.check(first.results(GPU, loop))
        assert function.calls == before
        second.check(second.results(GPU, loop))
        assert list(loop.chunks.values()) == [chunk] and function.calls > before
