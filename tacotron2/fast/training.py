"""Trains the decoder on all steps of a batch together, with a hand-written backward: the plain equations in another order.

In teacher forcing the decoder LSTM does not feed attention, so attention runs over all steps first and the decoder LSTM after it.
The input halves of both LSTMs are one GEMM over all steps. The row "compiled", at the end, trains with a compiled step in a loop.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common import precision
from common.fast import Request, shallow_copy
from common.kernels.packed import pack
from common.kernels.recurrence import CHUNK, LSTMTape, compute_dtype, dropout_mask, lstm_sequence, sigmoid_backward
from tacotron2.decoder import Decoder, LocationLayer, Memory
from tacotron2.model import Tacotron2

# B batch, S symbols, K decoder steps, P prenet size, E encoder channels, A attention channels, H attention LSTM size
# D decoder LSTM size, k width of the location kernel


def convert(model: Tacotron2, request: Request) -> Tacotron2:
    """A model with the same parameters and a decoder that runs all steps of a batch together."""
    return shallow_copy(model, type(model), decoder=shallow_copy(model.decoder, TrainingDecoder))


class TrainingDecoder(Decoder):
    """The plain decoder with another way to run over all steps; its free run is unchanged."""

    def run(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Prenet outputs of all steps (K, B, P) -> [decoder hidden, context] (K, B, D + E), alignments (B, K, S)."""
        rnn, decoder_rnn, attention = self.attention_rnn, self.decoder_rnn, self.attention_layer
        rates = (rnn, self.p_attention_dropout), (decoder_rnn, self.p_decoder_dropout)
        mask, decoder_mask = (
            dropout_mask(own.weight_hh, (*inputs.shape[:2], own.hidden_size), p, self.training) for own, p in rates
        )
        of_prenet, of_context = rnn.weight_ih.tensor_split((inputs.shape[2],), dim=1)
        # v·tanh(x) = 2v·sigmoid(2x) - sum(v). The constant cancels in the softmax, and sigmoid is the cheaper function.
        hidden, contexts, weights = AttentionSequence.apply(
            F.linear(inputs, of_prenet, rnn.bias_ih + rnn.bias_hh),
            torch.cat((of_context, rnn.weight_hh), dim=1),
            2 * attention.query_layer.linear_layer.weight,
            2 * location_kernel(attention.location_layer),
            2 * attention.v.linear_layer.weight,
            2 * memory.keys.transpose(1, 2),
            memory.values,
            memory.padding,
            mask,
        )
        both = torch.cat((hidden, contexts), dim=2)
        gates = F.linear(both, decoder_rnn.weight_ih, decoder_rnn.bias_ih + decoder_rnn.bias_hh)
        decoded = lstm_sequence(gates, decoder_rnn.weight_hh, decoder_mask)
        return torch.cat((decoded, contexts), dim=2), weights.transpose(0, 1)


def location_kernel(layer: LocationLayer) -> Tensor:
    """Convolution and projection as one, since both are linear: (A, 2k) for windows of k weights of either history."""
    return layer.location_dense.linear_layer.weight @ layer.location_conv.conv.weight.flatten(1)


class _Buffers:
    """Tensors that forward writes at each step and backward reads."""

    def __init__(self, gates: Tensor, keys: Tensor, context_dim: int, kernel_size: int, dtype: torch.dtype) -> None:
        steps, batch, width = gates.shape
        symbols = keys.shape[2]
        self.lstm = LSTMTape(gates)
        self.hidden = gates.new_empty(steps, batch, width // 4)
        self.contexts = gates.new_empty(steps, batch, context_dim)
        self.weights = gates.new_empty(steps, batch, symbols)
        # each step's previous and cumulative weights, between zeros for windows past the ends
        around = gates.new_zeros(steps + 1, batch, 2, symbols + kernel_size - 1)
        self.history = around[..., kernel_size // 2 : kernel_size // 2 + symbols]
        self.windows = around.unfold(3, symbols, 1)  # (K + 1, B, 2, k, S), a view
        # by far the largest, hence in the GEMMs' precision
        self.features = torch.empty(steps, *keys.shape, dtype=dtype, device=gates.device)
        # [context, hidden] before each step, in the GEMMs' precision
        self.inputs = torch.empty(steps + 1, batch, context_dim + width // 4, dtype=dtype, device=gates.device)
        self.inputs[0].zero_()


class AttentionSequence(torch.autograd.Function):
    """Attention LSTM and attention with energies v·sigmoid(query + keys + location) over all steps, from a state of zeros.

    gates (K, B, 4H), recurrent weight (4H, E + H), query weight (A, H), location kernel (A, 2k), v (1, A), keys (B, A, S),
    values (B, S, E), padding (B, S), dropout mask (K, B, H) or None -> hidden (K, B, H), contexts (K, B, E), weights (K, B, S).
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        gates, recurrent, query, kernel, v, keys, values, padding, mask = inputs
        ctx.dtypes = [x.dtype for x in inputs[:-2]]
        full, dtype = recurrent.dtype, compute_dtype(recurrent)
        kernel, keys, values = kernel.to(full), keys.to(full).contiguous(), values.to(full)
        recurrent, query = recurrent.to(dtype), query.to(dtype)
        context_dim, kernels, features = values.shape[2], kernel.expand(len(values), -1, -1), torch.empty_like(keys)
        b = _Buffers(gates.to(full, copy=True), keys, context_dim, kernel.shape[1] // 2, dtype)
        windows = torch.empty_like(b.windows[0], memory_format=torch.contiguous_format)
        recur, project_query = pack(recurrent, len(values)), pack(query, len(values))
        with torch.autocast(gates.device.type, enabled=False):
            for t in range(len(gates)):
                b.lstm.forward(t, recur(b.inputs[t]), out=b.hidden[t])
                if mask is not None:
                    b.hidden[t].mul_(mask[t])
                hidden = b.inputs[t + 1, :, context_dim:].copy_(b.hidden[t])
                torch.add(keys, project_query(hidden)[:, :, None], out=features)
                features.baddbmm_(kernels, windows.copy_(b.windows[t]).flatten(1, 2)).sigmoid_()
                b.features[t].copy_(features)
                energies = torch.bmm(v.expand(len(values), 1, -1), features)[:, 0].masked_fill_(padding, float("-inf"))
                weights = torch.softmax(energies, dim=1, out=b.weights[t])
                torch.bmm(weights[:, None], values, out=b.contexts[t][:, None])
                b.inputs[t + 1, :, :context_dim].copy_(b.contexts[t])
                b.history[t + 1, :, 0].copy_(weights)
                torch.add(b.history[t, :, 1], weights, out=b.history[t + 1, :, 1])
        ctx.buffers, ctx.mask = b, mask
        ctx.constants = recurrent, query, kernel, v, values
        outputs = b.hidden, b.contexts, b.weights
        # Detached, as otherwise the outputs and ctx would refer to each other.
        b.hidden, b.contexts, b.weights = (x.detach() for x in outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        b, (recurrent, query, kernel, v, values) = ctx.buffers, ctx.constants
        features = _FeatureGradients(b, kernel, v)
        d_gates, d_all_contexts = torch.empty_like(b.lstm.gates, dtype=recurrent.dtype), torch.empty_like(b.contexts)
        d_queries = torch.empty(*b.hidden.shape[:2], len(query), dtype=query.dtype, device=query.device)
        context_dim = values.shape[2]
        d_inputs, back = torch.zeros_like(b.inputs[0]), pack(recurrent.t(), len(values))  # of step t + 1
        d_previous = torch.zeros_like(b.weights[0])  # of step t's weights, by the window of the next step
        b.lstm.d_cell.zero_()
        values_t = values.transpose(1, 2)
        for t in range(len(d_gates) - 1, -1, -1):
            torch.add(d_contexts[t], d_inputs[:, :context_dim], out=d_all_contexts[t])
            d_w = torch.bmm(d_all_contexts[t][:, None], values_t)[:, 0].add_(d_weights[t])
            d_query, d_previous = features.step(t, d_w.add_(d_previous + features.d_cumulative))
            d_queries[t].copy_(d_query)
            d_state = d_inputs[:, context_dim:] + d_hidden[t] + d_queries[t] @ query
            if ctx.mask is not None:
                d_state.mul_(ctx.mask[t])
            b.lstm.backward(t, d_state, out=d_gates[t])
            d_inputs = back(d_gates[t])
        gradients = (
            d_gates,
            *_weight_gradients(ctx, d_gates, d_queries),
            features.d_kernel,
            features.d_v.sum((0, 2))[None],
            features.d_keys,
            torch.einsum("tbs,tbe->bse", b.weights, d_all_contexts),
        )
        return *(g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True)), None, None


class _FeatureGradients:
    """The backward of attention's energies and weights, step by step from the last.

    Backward batches the step-independent work over a chunk of steps.
    """

    def __init__(self, buffers: _Buffers, kernel: Tensor, v: Tensor) -> None:
        self.buffers, self.v, dtype = buffers, v, buffers.features.dtype
        batch, _, symbols = buffers.features.shape[1:]
        self.kernels_t = kernel.t().to(dtype).expand(batch, -1, -1)
        self.d_kernel = torch.zeros_like(kernel)
        self.d_keys = torch.zeros_like(buffers.features[0], dtype=v.dtype)
        self.d_v = torch.zeros_like(self.d_keys)  # before its sum over batch and symbols
        self.room = self.d_keys.new_empty(CHUNK, *self.d_keys.shape)
        self.d_energies = torch.empty_like(buffers.weights)
        self.d_cumulative = torch.zeros_like(buffers.weights[0])  # of those before step t, by it and all later steps
        # gradients of windows on the 2 histories between zeros, and the k of them that each weight gets, a view
        size = kernel.shape[1] // 2
        width = symbols + size // 2 * 2
        around = kernel.new_zeros(batch, 2, size, width)
        self.d_windows = around[..., size // 2 : size // 2 + symbols]
        diagonals = 2 * size * width, size * width, width - 1, 1
        self.d_history = around.as_strided((batch, 2, size, symbols), diagonals, size - 1)

    def step(self, t: int, d_weights: Tensor) -> tuple[Tensor, Tensor]:
        """Step t's d_weights (B, S) -> the gradients of its query (B, A), and of step t - 1's weights by its window."""
        weights, d_energies = self.buffers.weights[t], self.d_energies[t]
        torch.mul(weights, d_weights - (weights * d_weights).sum(1, keepdim=True), out=d_energies)
        if t == len(self.d_energies) - 1 or (t + 1) % CHUNK == 0:
            self._start_chunk(t)
        d_feature = self.slopes[t % CHUNK].mul_(d_energies[:, None])
        rounded = self.d_features[t % CHUNK].copy_(d_feature)
        self.d_windows.copy_(torch.bmm(self.kernels_t, rounded).view_as(self.d_windows))
        d_previous, d_cumulative = self.d_history.sum(2).unbind(1)
        self.d_cumulative += d_cumulative
        if t % CHUNK == 0:
            self._end_chunk(t)
        return d_feature.sum(2), d_previous

    def _start_chunk(self, last: int) -> None:
        """Derivatives of the energies by the features before their sigmoid, for all steps of the chunk that ends at `last`."""
        rounded = self.buffers.features[last - last % CHUNK : last + 1]
        self.features = self.room[: len(rounded)].copy_(rounded)
        self.slopes = sigmoid_backward(self.v.t().expand_as(rounded), self.features)
        self.d_features = self.slopes.to(rounded.dtype)  # the same tensor where nothing is rounded

    def _end_chunk(self, first: int) -> None:
        """Add a chunk's gradients, which now stand in the slopes, to those of the keys, of v and of the kernel."""
        steps = slice(first, first + len(self.features))
        self.d_keys += self.slopes.sum(0)
        self.d_v += self.features.mul_(self.d_energies[steps, :, None]).sum(0)
        windows = self.buffers.windows[steps].permute(2, 3, 0, 1, 4).contiguous().flatten(0, 1).flatten(1)  # (2k, ·)
        d_features = self.d_features.permute(2, 0, 1, 3).flatten(1)
        self.d_kernel += d_features @ windows.to(d_features.dtype).t()


def _weight_gradients(ctx: Any, d_gates: Tensor, d_queries: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the recurrent and the query weight from those of every step: one GEMM each."""
    b = ctx.buffers
    hidden = b.inputs[1:, :, b.contexts.shape[2] :].flatten(0, 1)
    return (d_gates.flatten(0, 1).t() @ b.inputs[:-1].flatten(0, 1), d_queries.flatten(0, 1).t() @ hidden)


def convert_compiled(model: Tacotron2, request: Request) -> Tacotron2:
    """Return a model with the same parameters and a decoder step that is compiled at its first call."""
    decoder = shallow_copy(model.decoder, type(model.decoder))
    mode = precision.LOOP_COMPILE_MODES[request.compile]
    decoder.step = torch.compile(decoder.step, dynamic=True, mode=mode)  # type: ignore[method-assign]
    return shallow_copy(model, type(model), decoder=decoder).train(model.training)
