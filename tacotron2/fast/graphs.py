"""The row "graphs": trains the decoder in chunks of steps that a GPU replays, without launching kernels from Python.

The equations and the backward are those of training.py. Dropout's masks are drawn for all steps beforehand, as a recorded draw
would need its generator's state set at each replay of the backward.

A replay reads and writes the same memory each time, so it overwrites everything the previous replay left there, including the
tensors its backward needs. The backward therefore runs a chunk again before differentiating it. One pair of recordings then
serves all chunks of all batches, and each chunk stores only its inputs and the state before it. A recording for each place in the
sequence would save the second forward, at the price of all inner tensors of the longest sequence, for every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from common import precision
from common.fast import Request, shallow_copy
from common.kernels.recurrence import autocast_dtype, draw_keep_mask
from tacotron2.decoder import DecoderState, Memory
from tacotron2.fast.training import LoopMasks, LoopWeights, TrainingDecoder, run_steps
from tacotron2.model import Tacotron2

# B batch, S symbols, T steps of a sequence, K decoder steps or steps of a chunk, P prenet size
# E encoder channels, D decoder LSTM size

# Steps of a chunk: few enough that padding the last chunk costs little, and many enough to make each weight's gradient one large
# product.
STEPS = 32
SYMBOLS = 32  # texts are padded to a multiple of this, as a recording serves one size

Tensors = tuple[Tensor, ...]
# settings, state, a chunk's inputs (K, …), constants -> outputs (K, …), state. Draws no random numbers and makes no host sync.
ChunkFunction = Callable[[Hashable, Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]

MAX_RECORDED = 8  # shapes with buffers and recordings of their own


def convert(model: Tacotron2, request: Request) -> Tacotron2:
    """The same model, with the same parameters, and a decoder that runs in chunks."""
    decoder = shallow_copy(model.decoder, RecordedDecoder)
    decoder.loop = ChunkedLoop(run_chunk, STEPS)
    return shallow_copy(model, type(model), decoder=decoder).train(model.training)


class RecordedDecoder(TrainingDecoder):
    """A decoder that runs in chunks when gradients are needed; validation runs all steps together."""

    loop: ChunkedLoop

    def run(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Prenet outputs of all steps (K, B, P) -> [decoder hidden, context] (K, B, D + E), alignments (B, K, S)."""
        if not torch.is_grad_enabled():
            return super().run(inputs, memory)
        symbols = memory.values.shape[1]
        memory = pad_memory(memory, -symbols % SYMBOLS)
        rates = (self.p_attention_dropout, self.p_decoder_dropout) if self.training else (0.0, 0.0)
        sizes = self.attention_rnn.hidden_size, self.decoder_rnn.hidden_size
        shape, device = inputs.shape[:2], inputs.device
        keeps = (keep_mask((*shape, size), p, device) for size, p in zip(sizes, rates, strict=True))
        state, constants = tuple(self.start(memory)), (*memory, *self.loop_weights())
        hidden, weights = self.loop(rates, state, (inputs, *keeps), constants)
        return hidden, weights[:, :, :symbols].transpose(0, 1)


def keep_mask(shape: tuple[int, ...], p: float, device: torch.device) -> Tensor:
    """True for each number that dropout keeps: all of them without dropout, which draws nothing."""
    return draw_keep_mask(shape, p, device) if p else torch.ones(shape, dtype=torch.bool, device=device)


def run_chunk(rates: Hashable, state: Tensors, inputs: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
    """Steps of the decoder as a ChunkFunction: `rates` of dropout; prenet outputs and masks; memory and weights."""
    x, *keeps = inputs
    memory, weights = Memory(*constants[:3]), LoopWeights(*constants[3:])
    of_dropout = cast(tuple[float, float], rates)
    dtype = weights.recurrent.dtype
    masks = LoopMasks(*(keep.to(dtype).div_(1 - p) for keep, p in zip(keeps, of_dropout, strict=True)))
    hidden, attention, last = run_steps(x, masks, DecoderState(*state), memory, weights)
    return (hidden, attention), tuple(last)


def pad_memory(memory: Memory, symbols: int) -> Memory:
    """The memory with extra symbols that attention leaves out."""
    values, keys = (F.pad(x, (0, 0, 0, symbols)) for x in (memory.values, memory.keys))
    return Memory(values, keys, F.pad(memory.padding, (0, symbols), value=True))


class ChunkedLoop:
    """A loop by `function` over chunks of `length` steps. Gradients reach all floating-point inputs and constants."""

    def __init__(self, function: ChunkFunction, length: int) -> None:
        self.function, self.length = function, length
        self.chunks: dict[Hashable, Chunk] = {}
        self.shared: dict[Hashable, Tensor] = {}
        self.pool: Any = None

    def __call__(self, settings: Hashable, state: Tensors, inputs: Tensors, constants: Tensors) -> Tensors:
        """Run from a state, which gets no gradient, over inputs (T, …): the outputs of all steps (T, …).

        The last chunk is padded with zeros, and its outputs past T are left out.
        """
        half = autocast_dtype(state[0].device)
        shapes = tuple(x.shape for x in (*state, *constants)), tuple(x.shape[1:] for x in inputs)
        key = settings, half, shapes, tuple(x.dtype for x in (*state, *inputs, *constants))
        chunk = self.chunks.get(key)
        if chunk is None:
            chunk = Chunk(self, settings, half, state, inputs, constants)
            if len(self.chunks) < MAX_RECORDED:
                chunk.record()
                self.chunks[key] = chunk
        outputs: Tensors = _Loop.apply(chunk, state, len(inputs), *inputs, *constants)
        return outputs

    def shared_buffers(self, use: str, tensors: Tensors) -> Tensors:
        """Buffers for the constants of all chunks: most of them are weights, of one shape, and each run loads them anew."""
        buffers = []
        for position, x in enumerate(tensors):
            key = use, position, x.shape, x.dtype
            if key not in self.shared:
                self.shared[key] = x.new_zeros(x.shape)
            buffers.append(self.shared[key])
        return tuple(buffers)

    def repeatable(self, work: Callable[[], None], device: torch.device) -> Callable[[], None]:
        """Record `work`. Recordings share memory, as one ends before another starts and leaves its results in buffers."""
        self.pool = self.pool or precision.recording_pool(device)
        return precision.repeatable(work, device, self.pool)


class Chunk:
    """The function for one set of shapes, on buffers that every call overwrites."""

    def __init__(
        self,
        loop: ChunkedLoop,
        settings: Hashable,
        half: torch.dtype | None,
        state: Tensors,
        inputs: Tensors,
        constants: Tensors,
    ) -> None:
        self.loop, self.settings, self.half, self.device = loop, settings, half, state[0].device
        self.state, self.constants = _buffers(state), loop.shared_buffers("values", constants)
        self.inputs = tuple(x.new_zeros(loop.length, *x.shape[1:]) for x in inputs)
        with torch.no_grad(), precision.autocast(self.device, half):
            outputs, _ = loop.function(settings, self.state, self.inputs, self.constants)
        self.outputs, self.d_outputs = _buffers(outputs), _buffers(outputs)
        self.d_state, self.d_inputs = _buffers(self.state), _buffers(self.inputs)
        self.d_constants = loop.shared_buffers("gradients", constants)
        self.forward, self.backward = self._forward, self._backward

    def record(self) -> None:
        """On a GPU replace forward and backward by replays."""
        self.forward, self.backward = (
            self.loop.repeatable(work, self.device) for work in (self.forward, self.backward)
        )

    def _forward(self) -> None:
        """The state before the chunk, inputs, constants -> the state after the chunk, in the same buffers, and outputs."""
        # The cache of autocast would hold copies in the recording's memory, and give them to others.
        with torch.no_grad(), precision.autocast(self.device, self.half, cache=False):
            outputs, state = self.loop.function(self.settings, self.state, self.inputs, self.constants)
            _copy_all(self.outputs, outputs)
            _copy_all(self.state, state)

    def _backward(self) -> None:
        """Also d_outputs, and d_state after the chunk -> d_inputs, d_state before the chunk; adds to d_constants."""
        with torch.enable_grad(), precision.autocast(self.device, self.half, cache=False):
            parts = [_leaves(part) for part in (self.state, self.inputs, self.constants)]
            outputs, state = self.loop.function(self.settings, *parts)
        wanted = [leaf for part in parts for leaf in part if leaf.requires_grad]
        with precision.autocast(self.device, None):
            gradients = iter(torch.autograd.grad((*outputs, *state), wanted, (*self.d_outputs, *self.d_state)))
        for leaves, buffers in zip(parts, (self.d_state, self.d_inputs, self.d_constants), strict=True):
            for leaf, buffer in zip(leaves, buffers, strict=True):
                if leaf.requires_grad and buffers is self.d_constants:
                    buffer.add_(next(gradients))
                elif leaf.requires_grad:
                    buffer.copy_(next(gradients))


class _Loop(torch.autograd.Function):
    """All chunks of a sequence as one function: DistributedDataParallel gets each parameter's gradient once, as a sum."""

    @staticmethod
    def forward(ctx: Any, chunk: Chunk, state: Tensors, n_inputs: int, *tensors: Tensor) -> Tensors:
        inputs, constants = tensors[:n_inputs], tensors[n_inputs:]
        _copy_all(chunk.constants, constants)
        _copy_all(chunk.state, state)
        steps, length = len(inputs[0]), chunk.loop.length
        outputs = tuple(x.new_empty(steps, *x.shape[1:]) for x in chunk.outputs)
        ctx.states = []
        for start in range(0, steps, length):
            ctx.states.append([x.clone() for x in chunk.state])
            _load(chunk.inputs, inputs, start)
            chunk.forward()
            _store(outputs, chunk.outputs, start)
        ctx.chunk, ctx.n_inputs = chunk, n_inputs
        ctx.save_for_backward(*tensors)
        return outputs

    @staticmethod
    def backward(ctx: Any, *d_outputs: Tensor) -> tuple[Any, ...]:
        chunk, tensors = ctx.chunk, ctx.saved_tensors
        inputs, length = tensors[: ctx.n_inputs], chunk.loop.length
        _copy_all(chunk.constants, tensors[ctx.n_inputs :])  # another batch may have been there meanwhile
        for buffer in (*chunk.d_state, *chunk.d_constants):
            buffer.zero_()
        d_inputs = tuple(torch.empty_like(x) if x.is_floating_point() else None for x in inputs)
        for number, state in reversed(list(enumerate(ctx.states))):
            _copy_all(chunk.state, state)
            _load(chunk.inputs, inputs, number * length)
            _load(chunk.d_outputs, d_outputs, number * length)
            chunk.backward()
            _store(d_inputs, chunk.d_inputs, number * length)
        d_constants = (x.clone() if x.is_floating_point() else None for x in chunk.d_constants)
        return None, None, None, *d_inputs, *d_constants


def _buffers(tensors: Tensors) -> Tensors:
    return tuple(x.new_zeros(x.shape) for x in tensors)


def _leaves(tensors: Tensors) -> Tensors:
    return tuple(x.detach().requires_grad_(x.is_floating_point()) for x in tensors)


def _copy_all(targets: Tensors, sources: Any) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _load(buffers: Tensors, sequences: Tensors, start: int) -> None:
    """Copy a chunk of sequences (T, …) to buffers (K, …), with zeros past their end."""
    for buffer, sequence in zip(buffers, sequences, strict=True):
        part = sequence[start : start + len(buffer)]
        buffer[: len(part)].copy_(part)
        buffer[len(part) :].zero_()


def _store(sequences: tuple[Tensor | None, ...], buffers: Tensors, start: int) -> None:
    """Copy buffers (K, …) to a chunk of sequences (T, …), as far as these reach; None takes nothing."""
    for sequence, buffer in zip(sequences, buffers, strict=True):
        if sequence is not None:
            part = sequence[start : start + len(buffer)]
            part.copy_(buffer[: len(part)])
