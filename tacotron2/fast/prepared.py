"""Free running with packed weights and no allocations, in chunks of steps between two looks at the gates.

The prenet's first layer is linear in the frames, and these are linear in [context, decoder hidden], so one product gives both the
gate and the prenet's next input. On a GPU a chunk is recorded as a CUDA graph.

On a CPU an item's result has the same bits in any batch, provided the packed products do: they and the attention over padded texts
add up each item's numbers in a fixed order, and the layers that gain nothing from a batch run item by item.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from common import precision
from common.draws import Draws
from common.fast import Request, shallow_copy
from common.kernels.packed import Product, is_float16, pack, reads_float16
from common.layers import LinearNorm, flatten_lstms, length_mask
from tacotron2.decoder import Decoder, DecoderOutput, Memory
from tacotron2.fast.training import location_kernel
from tacotron2.guard import StopRule, outside_window
from tacotron2.model import Tacotron2, Tacotron2Inference

# B batch, S symbols, K decoder steps, M mels, r frames a step, E encoder channels, A attention channels
# H attention LSTM size, D decoder LSTM size, P prenet size, k width of the location kernel, n steps of a chunk

TYPICAL_ROWS = 8  # the batch size that products are packed for; others work too
CPU_CHUNK, GPU_CHUNK = 8, 20  # steps between two looks at the gates, which make a GPU wait
# Texts are padded to a multiple: on a CPU so that a longer neighbour does not change the order of attention's sums, on a GPU
# because a recorded graph serves one size.
CPU_SYMBOLS, GPU_SYMBOLS = 16, 32
MAX_SIZES = 8  # batch sizes that keep their buffers


def convert(model: Tacotron2, request: Request) -> Tacotron2:
    """A copy of the model for inference only, with packed decoder weights, rounded to float16 for half precision or int8.

    Later changes to the plain model do not affect it.
    """
    prepared = copy.deepcopy(model).eval().requires_grad_(False)
    flatten_lstms(prepared)
    decoder = PreparedDecoder.of(prepared.decoder, half=request.half or request.int8)
    return shallow_copy(prepared, PreparedTacotron2, decoder=decoder)


def rounds(model: Tacotron2, request: Request) -> bool:
    """True where float16 weights are requested and pay: by half precision, and on a CPU by int8 too."""
    device = model.decoder.attention_rnn.weight_hh.device
    if device.type != "cpu":
        return request.half
    return (request.half or request.int8) and reads_float16(device)


class Weights(NamedTuple):
    """Products of few rows, and two weights. The LSTMs' gates come in the order i, f, o, g."""

    attention: Product  # [prenet, attention hidden, context] -> gates
    query: Product
    decoder: Product  # [attention hidden, context, decoder hidden] -> gates
    ending: Product  # [context, decoder hidden] -> the prenet's first layer of the next frames, and the gate
    prenet: Product  # its second layer
    kernel: Tensor  # (A, 2k); doubled, as the query, the keys and v: see tacotron2/fast/training.py
    v: Tensor  # (1, A)


def packed_weights(decoder: Decoder, dtype: torch.dtype, float16: bool) -> Weights:
    """A decoder's weights as free running needs them."""
    attention, context = decoder.attention_layer, decoder.attention_layer.memory_layer.linear_layer.in_features
    first, second = (cast(LinearNorm, layer).linear_layer.weight for layer in decoder.prenet.layers)
    frames, gate = decoder.linear_projection.linear_layer, decoder.gate_layer.linear_layer
    ending = torch.cat((first @ frames.weight, gate.weight))

    def product(weight: Tensor, bias: Tensor | None = None) -> Product:
        halves = float16 or is_float16(
            weight
        )  # voices are stored in half precision, so that nothing of theirs is rounded
        return pack(weight.to(dtype), TYPICAL_ROWS, None if bias is None else bias.detach().to(dtype), halves)

    def lstm(rnn: nn.LSTMCell, *columns: Tensor) -> Product:
        return product(_i_f_o_g(torch.cat(columns, dim=1)), _i_f_o_g(rnn.bias_ih + rnn.bias_hh))

    attention_rnn, decoder_rnn = decoder.attention_rnn, decoder.decoder_rnn
    of_prenet, of_context = attention_rnn.weight_ih.tensor_split((len(second),), dim=1)
    return Weights(
        attention=lstm(attention_rnn, of_prenet, attention_rnn.weight_hh, of_context),
        query=product(2 * attention.query_layer.linear_layer.weight),
        decoder=lstm(decoder_rnn, decoder_rnn.weight_ih, decoder_rnn.weight_hh),
        ending=product(ending.roll(context, dims=1), torch.cat((first @ frames.bias, gate.bias))),
        prenet=product(second),
        kernel=2 * location_kernel(attention.location_layer),
        v=2 * attention.v.linear_layer.weight,
    )


def _i_f_o_g(rows: Tensor) -> Tensor:
    """An LSTM's rows i, f, g, o reordered so that the sigmoids are neighbours."""
    i, f, g, o = rows.chunk(4)
    return torch.cat((i, f, o, g))


class FreeRun(NamedTuple):
    """[context, decoder hidden] (K, B, E + D), alignments (B, K, S), and each item's steps (B,)."""

    hidden: Tensor
    alignments: Tensor
    steps: Tensor


class PreparedTacotron2(Tacotron2):
    """A model for free running only. On a CPU all but the decoder runs item by item, which costs next to nothing there."""

    @torch.no_grad()
    def infer(
        self, text: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> Tacotron2Inference:
        """The plain model's infer, to rounding."""
        if text.device.type != "cpu":
            return super().infer(text, text_lengths, max_steps, draws)
        decoder, r = cast(PreparedDecoder, self.decoder), self.decoder.n_frames_per_step
        run = decoder.run_freely(self._memory(text, text_lengths), text_lengths, max_steps, draws)
        limits = self.frame_limits(text_lengths, max_steps) // r
        steps = torch.minimum(run.steps + 1, limits).tolist()  # the postnet's context: see the plain model
        mels = [self._frames(run.hidden[:k, i : i + 1]) for i, k in enumerate(steps)]
        frames = pad_sequence(mels, batch_first=True).transpose(1, 2)
        padding = r * len(run.hidden) - frames.shape[2]  # above 0 if nothing stops a run early
        return Tacotron2Inference(F.pad(frames, (0, padding)), run.steps * r, run.alignments)

    def _memory(self, text: Tensor, text_lengths: Tensor) -> Memory:
        """The inputs of attention for a batch of texts (B, S)."""
        alone = []
        for ids, length in zip(text, text_lengths, strict=True):
            values = self.encoder(self.embedding(ids[None, :length]), length[None], mask_padding=True)
            alone.append(self.decoder.attention_layer.memory(values, length[None]))
        values, keys = (
            pad_sequence([part[0] for part in parts], batch_first=True)
            for parts in ([memory.values for memory in alone], [memory.keys for memory in alone])
        )
        return Memory(values, keys, ~length_mask(text_lengths, values.shape[1]))

    def _frames(self, hidden: Tensor) -> Tensor:
        """[context, decoder hidden] (K, 1, E + D) of an item -> its frames after the postnet (T, M)."""
        mels, _ = cast(PreparedDecoder, self.decoder).project_run(hidden)
        return self.postnet(mels, None)[0].t()


class PreparedDecoder(Decoder):
    """A decoder for free running only.

    With `half`, a GPU multiplies in float16, while a CPU stores large weights in float16 and multiplies in float32. Sums and the
    state stay in float32.
    """

    def forward(self, *_: Tensor) -> DecoderOutput:
        """Raises RuntimeError: teacher forcing is for the plain model."""
        raise RuntimeError("a prepared Tacotron 2 has only infer; train and evaluate the plain model")

    chunk: int  # steps between two looks at the gates
    multiple: int  # symbols; texts are padded to a multiple of this
    dtype: torch.dtype
    weights: Weights
    sizes: dict[tuple[int, int], FreeSteps]

    @classmethod
    @torch.no_grad()
    def of(cls, decoder: Decoder, half: bool) -> PreparedDecoder:
        """Pack a plain decoder's weights as they are now."""
        prepared, like = shallow_copy(decoder, cls), decoder.attention_rnn.weight_hh
        on_cpu = like.device.type == "cpu"
        prepared.chunk, prepared.multiple = (CPU_CHUNK, CPU_SYMBOLS) if on_cpu else (GPU_CHUNK, GPU_SYMBOLS)
        prepared.dtype = torch.float16 if half and not on_cpu else like.dtype
        prepared.weights, prepared.sizes = packed_weights(decoder, prepared.dtype, half), {}
        return prepared

    @torch.no_grad()
    def infer(
        self, values: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> DecoderOutput:
        """The plain decoder's infer, to rounding."""
        memory = self.attention_layer.memory(values, text_lengths)
        run = self.run_freely(memory, text_lengths, max_steps, draws)
        return DecoderOutput(*self.project_run(run.hidden), run.alignments, run.steps * self.n_frames_per_step)

    def run_freely(self, memory: Memory, text_lengths: Tensor, max_steps: int | None, draws: Draws | None) -> FreeRun:
        """All of infer except the projection to frames."""
        with torch.autocast(memory.values.device.type, enabled=False):
            steps, stop = self._steps_for(memory), self.stop_rule(text_lengths, max_steps)
            hidden, alignments = self._run_chunks(steps, memory, stop, draws)
        return FreeRun(hidden, alignments[:, :, : memory.values.shape[1]].transpose(0, 1), stop.steps)

    def project_run(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[context, decoder hidden] (K, B, E + D) -> frames (B, M, T), gate logits (B, T)."""
        context = self.attention_layer.memory_layer.linear_layer.in_features
        return self.project(hidden.roll(-context, dims=2))

    def _run_chunks(
        self, steps: FreeSteps, memory: Memory, stop: StopRule, draws: Draws | None
    ) -> tuple[Tensor, Tensor]:
        """Run chunks until the rule stops them -> [context, decoder hidden] (K, B, E + D), alignments (K, B, S)."""
        batch, device = memory.values.shape[0], memory.values.device
        draw: Callable[[int], Tensor] = partial(self.prenet.draw_keep_masks, batch=batch, device=device)
        if draws:
            draw = partial(self.prenet.keep_masks, draws)
        before = torch.get_rng_state()
        steps.start(memory)
        outputs, alignments = [], []
        keep = draw(steps.chunk)
        while not stop.finished:
            steps.run(keep)
            outputs.append(steps.outputs.clone())
            alignments.append(steps.weights.clone())
            keep = draw(steps.chunk)  # while a GPU runs the chunk, which the rule waits for
            stop.update(steps.gates, steps.weights)
        total = stop.total_steps()
        if not draws and device.type == "cpu":
            torch.set_rng_state(before)  # steps past the end drew masks, which the plain decoder does not
            draw(total)
        return torch.cat(outputs)[:total], torch.cat(alignments)[:total]

    def _steps_for(self, memory: Memory) -> FreeSteps:
        """Buffers, and on a GPU the recorded graph, for a batch of this size."""
        batch, symbols = memory.values.shape[:2]
        symbols += -symbols % self.multiple
        if (batch, symbols) not in self.sizes:
            if len(self.sizes) == MAX_SIZES:
                del self.sizes[next(iter(self.sizes))]
            with torch.inference_mode(False), torch.no_grad():  # inference tensors could not be written outside of it
                self.sizes[batch, symbols] = FreeSteps(self, batch, symbols)
        return self.sizes[batch, symbols]


class FreeSteps:
    """A chunk of steps for B texts of at most S symbols; each call reads and writes the same tensors."""

    def __init__(self, decoder: PreparedDecoder, batch: int, symbols: int) -> None:
        self.w, self.chunk, self.p_dropout = decoder.weights, decoder.chunk, decoder.prenet.p_dropout
        like, self.window = self.w.kernel, decoder.guard.attention_window
        prenet, hidden = decoder.prenet.dim, decoder.attention_rnn.hidden_size
        context, last = decoder.attention_layer.memory_layer.linear_layer.in_features, decoder.decoder_rnn.hidden_size
        self.state = like.new_zeros(batch, prenet + hidden + context + last, dtype=decoder.dtype)
        self.input, self.hidden, self.context, self.last = self.state.split((prenet, hidden, context, last), dim=1)
        self.attention_input, self.decoder_input = self.state[:, :-last], self.state[:, prenet:]
        self.output = self.state[:, prenet + hidden :]
        self.next_frame = like.new_zeros(batch, prenet)  # the prenet's first layer, before its activation
        self.cells = like.new_zeros(batch, hidden), like.new_zeros(batch, last)
        width = self.w.kernel.shape[1] // 2
        self.kernel, self.v = self.w.kernel.expand(batch, -1, -1), self.w.v.expand(batch, 1, -1)
        # [previous, cumulative] weights with zeros on either side, and views of them and of the kernel's windows on them
        self.history = like.new_zeros(batch, 2, symbols + width - 1)
        self.previous, self.cumulative = self.history[:, :, width // 2 : width // 2 + symbols].unbind(1)
        self.windows = self.history.unfold(2, symbols, 1)  # (B, 2, k, S)
        self.keys = like.new_zeros(batch, len(self.w.kernel), symbols)
        self.values = like.new_zeros(batch, symbols, context)
        self.padding = torch.ones(batch, symbols, dtype=torch.bool, device=like.device)
        self.masks = like.new_zeros(self.chunk, 2, batch, prenet)
        self.outputs = like.new_zeros(self.chunk, batch, context + last)
        self.weights = like.new_zeros(self.chunk, batch, symbols)
        self.gates = like.new_zeros(self.chunk, batch)
        self.chunk_views = [
            (*self.masks[i], self.outputs[i], self.weights[i], self.gates[i]) for i in range(self.chunk)
        ]
        self.repeat = precision.repeatable(self._run, like.device)

    def start(self, memory: Memory) -> None:
        """Begin with a batch's texts, from zeros."""
        for tensor in (self.state, self.next_frame, *self.cells, self.history, self.keys, self.values):
            tensor.zero_()
        self.padding.fill_(True)
        symbols = memory.values.shape[1]
        self.keys[:, :, :symbols] = 2 * memory.keys.transpose(1, 2)
        self.values[:, :symbols] = memory.values
        self.padding[:, :symbols] = memory.padding

    def run(self, keep: Tensor) -> None:
        """Take a chunk of steps with the prenet's keep masks (chunk, 2, B, P)."""
        self.masks.copy_(keep).div_(1 - self.p_dropout)  # outside of the recorded graph, which reads them
        self.repeat()

    def _run(self) -> None:
        next_frame = self.next_frame
        for *masks, output, weights, gates in self.chunk_views:
            self._step(next_frame, *masks)
            output.copy_(self.output)
            weights.copy_(self.previous)
            ending = self.w.ending(self.output)
            next_frame, gate = ending[:, :-1], ending[:, -1]
            gates.copy_(gate)
        self.next_frame.copy_(next_frame)

    def _step(self, next_frame: Tensor, first_mask: Tensor, second_mask: Tensor) -> None:
        w = self.w
        first = next_frame.relu_().mul_(first_mask).to(self.state.dtype)
        torch.mul(w.prenet(first).relu_(), second_mask, out=self.input)
        _lstm(w.attention(self.attention_input), self.cells[0], out=self.hidden)
        features = self.keys + w.query(self.hidden)[:, :, None]
        features.baddbmm_(self.kernel, self.windows.flatten(1, 2)).sigmoid_()
        energies = torch.bmm(self.v, features)[:, 0]
        if self.window:
            energies.masked_fill_(outside_window(self.previous, self.window), float("-inf"))
        torch.softmax(energies.masked_fill_(self.padding, float("-inf")), dim=1, out=self.previous)
        # Copied, as a GPU may have the state in another type, which bmm would not write.
        self.context.copy_(torch.bmm(self.previous[:, None], self.values)[:, 0])
        self.cumulative.add_(self.previous)
        _lstm(w.decoder(self.decoder_input), self.cells[1], out=self.last)


def _lstm(gates: Tensor, cell: Tensor, out: Tensor) -> None:
    """An LSTM's step from pre-activations (B, 4H), i, f, o, g: updates its cell (B, H), writes its hidden state to out."""
    gates = gates.to(cell.dtype)
    size = cell.shape[1]
    sigmoids, signal = gates.tensor_split((3 * size,), dim=1)
    i, f, o = sigmoids.sigmoid_().chunk(3, dim=1)
    cell.mul_(f).addcmul_(i, signal.tanh_())
    torch.mul(o, cell.tanh(), out=out)
