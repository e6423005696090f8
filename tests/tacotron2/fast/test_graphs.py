"""The decoder in chunks against the plain decoder and against all steps together: outputs and every gradient."""

import contextlib
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


def forward(
    decoder: Decoder, frames: int, symbols: int = 5, device: torch.device = CPU, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """Outputs of a batch of three clips, a loss of them, and all that it depends on: parameters and the memory."""
    generator = torch.Generator().manual_seed(frames)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    memory, mels = draw(3, symbols, SIZES["encoder_embedding_dim"]).requires_grad_(), draw(3, 3, frames)
    lengths = torch.tensor([symbols, 3, 1], device=device), torch.tensor([frames] * 3, device=device)
    output = decoder(memory, lengths[0], mels, lengths[1])
    parts = [output.mels, output.gates, output.alignments]
    loss = sum((part * draw(*part.shape)).sum() for part in parts)
    return parts, loss, [memory, *decoder.parameters()]


def results_of(*runs: tuple[list[Tensor], Tensor, list[Tensor]]) -> list[Tensor]:
    """Outputs and all gradients of some runs, whose backward begins when all of them have run forward."""
    return [x.detach().cpu() for parts, loss, own in runs for x in (*parts, *torch.autograd.grad(loss, own))]


def step(decoder: Decoder, *words: Any, **options: Any) -> list[Tensor]:
    return results_of(forward(decoder, *words, **options))


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


@pytest.mark.parametrize("device", [CPU, pytest.param(GPU, marks=requires_pretence)], ids=str)
def test_no_run_overwrites_what_another_needs(device: torch.device) -> None:
    """Each writes the same buffers, and each replay of a pretended GPU the same memory.

    Losses of two batches before their backward, of three chunks and of two; then other texts, and another rate of dropout.
    """
    decoder = make_decoder(p_attention_dropout=0.3)
    with PretendGpu(Rules()) if device == GPU else contextlib.nullcontext():
        decoder.to(device).train()
        recorded = in_chunks(decoder)
        for frames, symbols, rate in (((17, 9), 5, 0.2), ((9,), 9, 0.2), ((7,), 5, 0.4)):
            decoder.p_decoder_dropout = recorded.p_decoder_dropout = rate
            results = []
            for way in (recorded, together(decoder)):
                torch.manual_seed(symbols)
                results.append(results_of(*(forward(way, n, symbols, device) for n in frames)))
            assert_close(*results)
    assert len(recorded.loop.chunks) == 3


@requires_pretence
def test_a_gpu_replays_and_runs_no_python(monkeypatch) -> None:
    """Beyond the bound on recordings a new size runs unrecorded, with the same results."""
    monkeypatch.setattr(graphs, "MAX_RECORDED", 1)
    calls: list[int] = []

    def counted(rates: Hashable, *tensors: Tensors) -> tuple[Tensors, Tensors]:
        calls.append(1)
        return run_chunk(rates, *tensors)

    decoder, counts = make_decoder(), []
    with PretendGpu(Rules()):
        decoder.to(GPU).train()
        recorded = in_chunks(decoder)
        recorded.loop.function = counted
        for symbols in (5, 5, 9):
            assert_close(step(recorded, 9, symbols, GPU), step(together(make_decoder().train()), 9, symbols))
            counts.append(len(calls))
        (chunk,) = recorded.loop.chunks.values()
        assert all(isinstance(work.__self__, Graph) for work in (chunk.forward, chunk.backward))
    assert 0 < counts[0] == counts[1] < counts[2]


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
                results.append(step(way, frames, device=device, dtype=torch.float32))
        assert_close(*results, bound)
