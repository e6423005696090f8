"""The decoder in chunks against the plain decoder and against all steps together: outputs and every gradient."""

from collections.abc import Hashable
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.cases import clips
from common import precision
from common.fast import shallow_copy
from common.run.distributed import Dist
from common.training.arguments import parse_training_arguments
from common.training.loop import train_step
from common.training.optimization import Pace
from models import REGISTRY
from tacotron2.decoder import Decoder
from tacotron2.fast import graphs
from tacotron2.fast.graphs import ChunkedLoop, RecordedDecoder, Tensors, run_chunk
from tacotron2.fast.training import TrainingDecoder
from tests.gpu_rules import Rules
from tests.pretend_gpu import CPU, GPU, Graph, PretendGpu, requires_pretence
from tests.recipe import MODELS
from tests.tacotron2.fast.test_prepared import SIZES as SMALL
from tests.tacotron2.test_decoder import make_decoder as plain_decoder
from train import make_state

SIZES = SMALL | {"n_frames_per_step": 2}
CHUNK = 4


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch) -> None:
    monkeypatch.setattr(graphs, "SYMBOLS", 4)


def make_decoder(**config: Any) -> Decoder:
    torch.manual_seed(1)
    return plain_decoder(**{**SIZES, **config})


def in_chunks(decoder: Decoder) -> RecordedDecoder:
    recorded = shallow_copy(decoder, RecordedDecoder)
    recorded.loop = ChunkedLoop(run_chunk, CHUNK)
    return recorded


def together(decoder: Decoder) -> TrainingDecoder:
    return shallow_copy(decoder, TrainingDecoder)


def step(decoder: Decoder, frames: int, device: torch.device = CPU, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Outputs of a batch of three clips, and all gradients; the memory's too."""
    generator = torch.Generator().manual_seed(frames)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    memory, mels = draw(3, 5, SIZES["encoder_embedding_dim"]).requires_grad_(), draw(3, 3, frames)
    lengths = torch.tensor([5, 3, 1], device=device), torch.tensor([frames] * 3, device=device)
    output = decoder(memory, lengths[0], mels, lengths[1])
    parts = output.mels, output.gates, output.alignments
    loss = sum((part * draw(*part.shape)).sum() for part in parts)
    gradients = torch.autograd.grad(loss, [memory, *decoder.parameters()])
    return [x.detach().cpu() for x in (*parts, *gradients)]


def assert_close(got: list[Tensor], want: list[Tensor], bound: float = 1e-9) -> None:
    largest = max(float(tensor.abs().max()) for tensor in want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= bound * max(float(theirs.abs().max()), 1e-2 * largest)


@pytest.mark.parametrize("frames", [1, 7, 8, 9, 23])
def test_chunks_are_the_plain_decoder(frames: int) -> None:
    """2 frames a step and 4 steps a chunk: a part of a chunk, a whole one, one and a part, three."""
    decoder = make_decoder().train()
    assert_close(step(in_chunks(decoder), frames), step(decoder, frames))


def test_dropout_has_the_masks_of_all_steps_together() -> None:
    decoder = make_decoder(p_attention_dropout=0.3, p_decoder_dropout=0.2).train()
    results = []
    for way in (in_chunks(decoder), together(decoder), together(decoder)):
        torch.manual_seed(5 if len(results) < 2 else 6)
        results.append(step(way, 23))
    assert_close(results[0], results[1])
    with pytest.raises(AssertionError):
        assert_close(results[0], results[2])


def test_mixed_precision_rounds_as_all_steps_together_do() -> None:
    """Backward runs a chunk again outside of autocast's context, with its types."""
    decoder = make_decoder(attention_rnn_dim=64, decoder_rnn_dim=48).float().train()
    results = []
    for way in (in_chunks(decoder), together(decoder)):
        with precision.autocast(CPU, torch.bfloat16):
            results.append(step(way, 23, dtype=torch.float32))
    exact = step(decoder, 23, dtype=torch.float32)
    assert_close(results[0][:3], results[1][:3], 1e-6)
    assert_close(results[0], results[1], 0.02)
    assert any(not torch.equal(rounded, full) for rounded, full in zip(results[0], exact, strict=True))


@pytest.mark.parametrize("numbers", ["", "--amp --amp-dtype bfloat16"])
def test_steps_of_training_with_accumulation(numbers: str) -> None:
    """Two steps of two batches of unlike sizes, with the same draws: losses and norms of gradients of the default way."""
    results = []
    for way in ("", "--graphs"):
        sizes = MODELS["Tacotron2"].split()
        words = ["-m", "Tacotron2", *sizes, "--grad-accumulation-steps", "2", *numbers.split(), *way.split()]
        args, spec = parse_training_arguments(words, REGISTRY, "")
        precision.seed_everything(3)
        state, _ = make_state(spec, args, Dist(0, 0, 1, CPU), Pace(1, 2, 2), warm=False)
        state.trained.train()
        batches = [clips(2, 10, 90), clips(3, 7, 200)]
        results += [[(step.loss, step.grad_norm) for step in (train_step(state, batches) for _ in range(2))]]
        decoder = state.trained.decoder
        assert isinstance(decoder, RecordedDecoder) == (way == "--graphs")
    first, second = decoder.loop.chunks.values()
    shared = [a is b for a, b in zip(first.constants, second.constants, strict=True)]
    assert shared == [False] * 3 + [True] * 9  # memory, which batches of another size have another one of; weights
    for got, want in zip(results[1], results[0], strict=True):
        assert got == pytest.approx(want, rel=1e-2 if numbers else 1e-4)


def test_validation_runs_without_chunks() -> None:
    decoder = make_decoder().eval()
    recorded = in_chunks(decoder)
    inputs = torch.randn(1, 5, 8).double(), torch.tensor([5]), torch.randn(1, 3, 9).double(), torch.tensor([9])
    with torch.no_grad():
        torch.testing.assert_close(recorded(*inputs).mels, decoder(*inputs).mels, rtol=0, atol=1e-12)
    assert not recorded.loop.chunks


@requires_pretence
def test_replays_overwrite_nothing_that_is_needed() -> None:
    """On a pretended GPU each replay writes the same memory: three chunks, two lengths in turn, and dropout."""
    decoder = make_decoder(p_attention_dropout=0.3, p_decoder_dropout=0.2)
    with PretendGpu(Rules()):
        decoder.to(GPU).train()
        recorded = in_chunks(decoder)
        for frames in (23, 9, 23):
            results = []
            for way in (recorded, together(decoder)):
                torch.manual_seed(frames)
                results.append(step(way, frames, GPU))
            assert_close(*results)
    assert len(recorded.loop.chunks) == 1


@pytest.mark.gpu
@pytest.mark.parametrize(("half", "bound"), [(None, 1e-4), (torch.float16, 0.05)], ids=str)
def test_chunks_are_recorded_on_a_gpu(half: torch.dtype | None, bound: float) -> None:
    device = torch.device("cuda", 0)
    decoder = make_decoder(p_attention_dropout=0.3, p_decoder_dropout=0.2).float().to(device).train()
    recorded = in_chunks(decoder)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False, tf32=False)
    for frames in (23, 9, 23):
        results = []
        for way in (recorded, together(decoder)):
            torch.manual_seed(frames)
            with precision.autocast(device, half):
                results.append(step(way, frames, device, torch.float32))
        assert_close(*results, bound)


# Loops in chunks against the same loop step by step, on a CPU and as replays of a pretended GPU that overwrite one memory


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
