"""The decoder fed its own frames: plainly, step by step, and fast, from weights that are prepared once.

Fast: the frames' projection and the prenet's first layer, which are both linear, are one product; each LSTM's two products are one;
all that a step carries lies in one row, so that nothing is joined; a GPU repeats chunks of steps as one recorded graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from common import precision
from common.kernels.packed import Kept, can_round, packed
from common.layers import kept
from tacotron2.guard import AttentionStop, outside_window

if TYPE_CHECKING:
    from tacotron2.decoder import Decoder, Memory

# B batch, S symbols, K decoder steps, M mels, r frames a step, E encoder channels, A attention channels
# H attention LSTM size, D decoder LSTM size, P prenet size, k width of the location kernel, n steps of a chunk

Product = Callable[[Tensor], Tensor]  # (B, inputs) -> (B, outputs)

TYPICAL_ROWS = 8  # what products are arranged for; right for one row too
CPU_CHUNK, GPU_CHUNK = 8, 20  # steps between two looks at the gates, for which a GPU has to wait
GPU_SYMBOLS = 32  # texts are padded to a multiple: a recorded graph serves one size
MAX_READY = 8  # sizes of batches kept


class FreeRun(NamedTuple):
    """[decoder hidden, context] (K, B, D + E), alignments (B, K, S), steps before each item's end (B,): see Stop."""

    outputs: Tensor
    alignments: Tensor
    steps: Tensor


def run_freely(decoder: Decoder, memory: Memory, limit: int) -> FreeRun:
    """Feed the decoder its own frames until every item has ended or `limit` steps are done, one step after the other."""
    state, values = decoder.start(memory.values), memory.values
    frame = values.new_zeros(len(values), decoder.linear_projection.linear_layer.out_features)
    stop, window = Stop(decoder, memory, limit), decoder.guard.attention_window
    places, outputs, alignments = torch.arange(values.shape[1], device=values.device), [], []
    for _ in range(stop.limit):
        heard = memory
        if window:
            heard = memory._replace(padding=memory.padding | outside_window(places, state.weights, window))
        state = decoder.step(decoder.prenet(frame), state, heard)
        outputs.append(torch.cat((state.decoder.hidden, state.context), dim=1))
        alignments.append(state.weights)
        frame = decoder.linear_projection(outputs[-1])
        if stop.see(decoder.gate_layer(outputs[-1])[None, :, 0], state.weights[None]):
            break
    return FreeRun(torch.stack(outputs), torch.stack(alignments, dim=1), stop.steps)


class Stop:
    """Counts each item's steps before its gate first fired, or the guard's rule did, or else up to the item's limit."""

    def __init__(self, decoder: Decoder, memory: Memory, limit: int) -> None:
        self.threshold, self.early = decoder.gate_threshold, decoder.early_stopping
        guard, r, lengths = decoder.guard, decoder.n_frames_per_step, (~memory.padding).sum(1)
        self.limits = guard.step_limits(lengths, r, limit)  # (B,)
        self.limit = int(self.limits.max()) if guard.max_frames_per_symbol else limit  # host sync, once a run
        self.attention = AttentionStop(guard.attention_stop, r, lengths) if guard.attention_stop else None
        self.running = torch.ones_like(lengths, dtype=torch.bool)
        self.steps = torch.zeros_like(lengths)

    def see(self, gates: Tensor, weights: Tensor) -> bool:
        """Gate logits (n, B) and attention (n, B, S) of the next steps -> whether to end: all items have, and that ends a run."""
        silent = torch.sigmoid(gates) <= self.threshold
        if self.attention:
            silent &= ~self.attention.see(weights)
        silent = silent.cummin(0).values & self.running
        self.steps = torch.minimum(self.steps + silent.sum(0), self.limits)
        self.running = silent[-1] & (self.steps < self.limits)
        return self.early and not bool(self.running.any())  # host sync, once a call

    def done(self) -> int:
        """How many steps a run has: with the one at which the last item ended."""
        return int(torch.minimum(self.steps + 1, self.limits).max()) if self.early else self.limit  # host sync


class Weights(NamedTuple):
    """What free running multiplies by. Products of few rows are functions; the LSTMs' gates come in the order i, f, o, g."""

    attention: Product  # [prenet, attention hidden, context] -> gates
    query: Product
    decoder: Product  # [attention hidden, context, decoder hidden] -> gates
    ending: Product  # [context, decoder hidden] -> the prenet's first layer of the next frames, and the gate
    prenet: Product  # its second layer
    kernel: Tensor  # (A, 2k); twice what it is, as the query, the keys and v: see tacotron2/teacher_forcing.py
    v: Tensor  # (1, A)


def prepare_weights(decoder: Decoder, dtype: torch.dtype, half: bool, int8: bool) -> Weights:
    """A decoder's weights in free running's arrangement.

    With `int8` the columns that multiply LSTM states and the context, all within [-1, 1], are in 8 bits, and all else in float16:
    the prenet's outputs have no bound.
    """
    attention, context = decoder.attention_layer, decoder.context_dim
    first, second = decoder.prenet.weights()
    frames, gate = decoder.linear_projection.linear_layer, decoder.gate_layer.linear_layer
    ending = torch.cat((first @ frames.weight, gate.weight))

    otherwise: Kept = "float16" if half or int8 else "full"

    def product(weight: Tensor, bias: Tensor | None = None, kept: Kept = otherwise) -> Product:
        return packed(weight.to(dtype), TYPICAL_ROWS, None if bias is None else bias.detach().to(dtype), kept)

    def lstm(rnn: nn.LSTMCell, fed: int, *parts: Tensor) -> Product:
        """The first `fed` inputs are the prenet's."""
        weight, bias = _i_f_o_g(torch.cat(parts, dim=1)), _i_f_o_g(rnn.bias_ih + rnn.bias_hh)
        if not int8:
            return product(weight, bias)
        of_states = product(weight[:, fed:], bias, "int8")
        if not fed:
            return of_states
        of_fed = product(weight[:, :fed])
        return lambda x: of_states(x[:, fed:]) + of_fed(x[:, :fed])

    listening, speaking = decoder.attention_rnn, decoder.decoder_rnn
    of_prenet, of_context = listening.weight_ih.tensor_split((len(second),), dim=1)
    return Weights(
        attention=lstm(listening, len(second), of_prenet, listening.weight_hh, of_context),
        query=product(2 * attention.query_layer.linear_layer.weight),
        decoder=lstm(speaking, 0, speaking.weight_ih, speaking.weight_hh),
        ending=product(ending.roll(context, dims=1), torch.cat((first @ frames.bias, gate.bias))),
        prenet=product(second),
        kernel=2 * attention.location_layer.kernel(),
        v=2 * attention.v.linear_layer.weight,
    )


def _i_f_o_g(rows: Tensor) -> Tensor:
    """An LSTM's rows i, f, g, o in the order in which all sigmoids are neighbours."""
    i, f, g, o = rows.chunk(4)
    return torch.cat((i, f, o, g))


class PreparedDecoder:
    """A decoder's weights as free running reads them; later changes of the decoder do not reach them.

    With `half` a GPU multiplies in float16, and a CPU keeps large weights in it; sums and what is carried stay in float32.
    With `int8` a CPU keeps the largest in 8 bits and multiplies in them, the others in float16; a GPU takes no notice.
    """

    @torch.no_grad()
    def __init__(self, decoder: Decoder, half: bool, int8: bool) -> None:
        like = decoder.attention_rnn.weight_hh
        self.decoder = decoder
        on_cpu = like.device.type == "cpu"
        self.chunk, self.multiple = (CPU_CHUNK, 1) if on_cpu else (GPU_CHUNK, GPU_SYMBOLS)
        self.dtype = torch.float16 if half and like.device.type != "cpu" else like.dtype
        self.weights = prepare_weights(decoder, self.dtype, half, int8 and can_round(like.device))
        self.window = decoder.guard.attention_window
        self.ready: dict[tuple[int, int], FreeSteps] = {}

    def __call__(self, memory: Memory, limit: int) -> FreeRun:
        """The same as run_freely, to rounding."""
        with torch.autocast(memory.values.device.type, enabled=False):
            steps = self._steps_for(memory)
            steps.start(memory)
            stop, outputs, alignments = Stop(self.decoder, memory, limit), [], []
            for _ in range(0, stop.limit, steps.chunk):
                before = torch.get_rng_state()
                steps.run()
                outputs.append(steps.outputs.clone())
                alignments.append(steps.weights.clone())
                if stop.see(steps.gates, steps.weights):
                    break
        done, context = stop.done(), self.decoder.context_dim
        if memory.values.device.type == "cpu":
            torch.set_rng_state(before)  # what is drawn next is what it would be without the steps after the last
            steps.draw(done - (len(outputs) - 1) * steps.chunk)
        made = torch.cat(outputs)[:done]
        made = made.roll(-context, dims=2)  # [context, decoder hidden] -> [decoder hidden, context]
        weights = torch.cat(alignments)[:done, :, : memory.values.shape[1]]
        return FreeRun(made, weights.transpose(0, 1), stop.steps)

    def _steps_for(self, memory: Memory) -> FreeSteps:
        """Buffers, and on a GPU the recorded graph, for a batch of this size."""
        batch, symbols = memory.values.shape[:2]
        symbols += -symbols % self.multiple
        if self.window != self.decoder.guard.attention_window:  # it is part of what is recorded
            self.window = self.decoder.guard.attention_window
            self.ready.clear()
        if (batch, symbols) not in self.ready:
            if len(self.ready) == MAX_READY:
                del self.ready[next(iter(self.ready))]
            with torch.inference_mode(False), torch.no_grad():  # inference tensors could not be written outside of it
                self.ready[batch, symbols] = FreeSteps(self, batch, symbols)
        return self.ready[batch, symbols]


class FreeSteps:
    """A chunk of steps for B texts of at most S symbols: reads and writes the same tensors at each call."""

    def __init__(self, prepared: PreparedDecoder, batch: int, symbols: int) -> None:
        decoder, self.w = prepared.decoder, prepared.weights
        like = self.w.kernel
        self.chunk, self.p_dropout = prepared.chunk, decoder.prenet.p_dropout
        prenet, hidden, context = decoder.prenet_dim, decoder.attention_rnn.hidden_size, decoder.context_dim
        last = decoder.decoder_rnn.hidden_size
        self.carried = like.new_zeros(batch, prenet + hidden + context + last, dtype=prepared.dtype)
        self.fed, self.hidden, self.context, self.last = self.carried.split((prenet, hidden, context, last), dim=1)
        self.attention_input, self.decoder_input = self.carried[:, :-last], self.carried[:, prenet:]
        self.made = self.carried[:, prenet + hidden :]
        self.next_frame = like.new_zeros(batch, prenet)  # the prenet's first layer, before its activation
        self.cells = like.new_zeros(batch, hidden), like.new_zeros(batch, last)
        width = self.w.kernel.shape[1] // 2
        self.kernel, self.v = self.w.kernel.expand(batch, -1, -1), self.w.v.expand(batch, 1, -1)
        # [previous, cumulative] weights with zeros on either side, and views of them and of the kernel's windows on them
        self.history = like.new_zeros(batch, 2, symbols + width - 1)
        inside = self.history[:, :, width // 2 : width // 2 + symbols]
        self.previous, self.cumulative = inside.unbind(1)
        self.windows = self.history.unfold(2, symbols, 1)  # (B, 2, k, S)
        self.keys = like.new_zeros(batch, len(self.w.kernel), symbols)
        self.values = like.new_zeros(batch, symbols, context)
        self.padding = torch.ones(batch, symbols, dtype=torch.bool, device=like.device)
        self.window, self.places = prepared.window, torch.arange(symbols, device=like.device)
        self.masks = like.new_zeros(self.chunk, 2, batch, prenet)
        self.outputs = like.new_zeros(self.chunk, batch, context + last)
        self.weights = like.new_zeros(self.chunk, batch, symbols)
        self.gates = like.new_zeros(self.chunk, batch)
        self.chunk_views = [
            (*self.masks[i], self.outputs[i], self.weights[i], self.gates[i]) for i in range(self.chunk)
        ]
        self.run = precision.repeatable(self._run, like.device)

    def start(self, memory: Memory) -> None:
        """Begin with a batch's texts, from zeros."""
        for tensor in (self.carried, self.next_frame, *self.cells, self.history, self.keys, self.values):
            tensor.zero_()
        self.padding.fill_(True)
        symbols = memory.values.shape[1]
        self.keys[:, :, :symbols] = 2 * memory.keys.transpose(1, 2)
        self.values[:, :symbols] = memory.values
        self.padding[:, :symbols] = memory.padding

    def draw(self, steps: int) -> Tensor:
        """What dropout keeps in so many steps (steps, 2, B, P)."""
        return kept((steps, *self.masks.shape[1:]), self.p_dropout, self.masks.device)

    def _run(self) -> None:
        self.masks.copy_(self.draw(self.chunk)).div_(1 - self.p_dropout)
        next_frame = self.next_frame
        for *masks, outputs, weights, gates in self.chunk_views:
            self._step(next_frame, *masks)
            outputs.copy_(self.made)
            weights.copy_(self.previous)
            ending = self.w.ending(self.made)
            next_frame, gate = ending[:, :-1], ending[:, -1]
            gates.copy_(gate)
        self.next_frame.copy_(next_frame)

    def _step(self, next_frame: Tensor, first_mask: Tensor, second_mask: Tensor) -> None:
        w = self.w
        fed = next_frame.relu_().mul_(first_mask).to(self.carried.dtype)
        torch.mul(w.prenet(fed).relu_(), second_mask, out=self.fed)
        _lstm(w.attention(self.attention_input), self.cells[0], out=self.hidden)
        features = self.keys + w.query(self.hidden)[:, :, None]
        features.baddbmm_(self.kernel, self.windows.flatten(1, 2)).sigmoid_()
        energies = torch.bmm(self.v, features)[:, 0]
        if self.window:
            energies.masked_fill_(outside_window(self.places, self.previous, self.window), float("-inf"))
        torch.softmax(energies.masked_fill_(self.padding, float("-inf")), dim=1, out=self.previous)
        # Copied, as a GPU may carry another type, which bmm would not write.
        self.context.copy_(torch.bmm(self.previous[:, None], self.values)[:, 0])
        self.cumulative.add_(self.previous)
        _lstm(w.decoder(self.decoder_input), self.cells[1], out=self.last)


def _lstm(gates: Tensor, cell: Tensor, out: Tensor) -> None:
    """An LSTM's step from pre-activations (B, 4H), i, f, o, g: moves its cell (B, H), writes its hidden state to out."""
    gates = gates.to(cell.dtype)
    size = cell.shape[1]
    open_by, signal = gates.tensor_split((3 * size,), dim=1)
    i, f, o = open_by.sigmoid_().chunk(3, dim=1)
    cell.mul_(f).addcmul_(i, signal.tanh_())
    torch.mul(o, cell.tanh(), out=out)
