"""Training of the decoder in chunks of steps that a GPU replays, the row "graphs": no launch of kernels from Python.

The equations and the backward are those of training.py. Dropout's masks are drawn for all steps before, as a recorded draw would
need its generator's state set at each replay of the backward.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from common.chunks import ChunkedLoop, Tensors
from common.fast import Request, shallow_copy
from common.kernels.dropout import draw_keep_mask
from tacotron2.decoder import DecoderState, Memory
from tacotron2.fast.training import LoopMasks, LoopWeights, TrainingDecoder, run_steps
from tacotron2.model import Tacotron2

# B batch, S symbols, K decoder steps, P prenet size, E encoder channels, D decoder LSTM size

STEPS = 32  # of a chunk: so few that padding the last one costs little, so many that each weight's gradient is a large product
SYMBOLS = 32  # texts are padded to a multiple, as a recording serves one size


def convert(model: Tacotron2, request: Request) -> Tacotron2:
    """The same model, with the same parameters, and a decoder that runs in chunks."""
    decoder = shallow_copy(model.decoder, RecordedDecoder)
    decoder.loop = ChunkedLoop(run_chunk, STEPS)
    return shallow_copy(model, Tacotron2, decoder=decoder).train(model.training)


class RecordedDecoder(TrainingDecoder):
    """The decoder with a run in chunks where gradients are wanted; validation runs all steps together."""

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
    """True for each number that dropout keeps; without dropout, which draws nothing, True for all."""
    return draw_keep_mask(shape, p, device) if p else torch.ones(shape, dtype=torch.bool, device=device)


def run_chunk(rates: Hashable, state: Tensors, inputs: Tensors, constants: Tensors) -> tuple[Tensors, Tensors]:
    """Some steps of the decoder, as ChunkedLoop takes them: `rates` of dropout; prenet outputs and masks; memory and weights."""
    x, *keeps = inputs
    memory, weights = Memory(*constants[:3]), LoopWeights(*constants[3:])
    of_dropout = cast(tuple[float, float], rates)
    dtype = weights.recurrent.dtype
    masks = LoopMasks(*(keep.to(dtype).div_(1 - p) for keep, p in zip(keeps, of_dropout, strict=True)))
    hidden, attention, last = run_steps(x, masks, DecoderState(*state), memory, weights)
    return (hidden, attention), tuple(last)


def pad_memory(memory: Memory, symbols: int) -> Memory:
    """The memory with so many symbols more, which attention leaves out."""
    values, keys = (F.pad(x, (0, 0, 0, symbols)) for x in (memory.values, memory.keys))
    return Memory(values, keys, F.pad(memory.padding, (0, symbols), value=True))
