"""The decoder's recurrences over all steps of a batch: plainly, as inference takes them, and fast, for training.

In teacher forcing the decoder LSTM does not feed attention, so the fast way runs attention over all steps first and the decoder
LSTM after it. Both LSTMs' input halves are one GEMM over all steps; the backward of both loops is written by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common.sound.packed import packed
from common.sound.recurrence import LSTMTape, compute_dtype, dropout_mask, lstm_sequence

if TYPE_CHECKING:
    from tacotron2.decoder import Decoder, Memory

# B batch, S symbols, K decoder steps, E encoder channels, A attention channels, H attention LSTM size, D decoder LSTM size
# k width of the location kernel


def run_step_by_step(decoder: Decoder, prenet: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Prenet outputs (K, B, P) -> [decoder hidden, context] (K, B, D + E) and alignments (B, K, S), one step after the other."""
    state = decoder.start(memory.values)
    states = [state := decoder.step(frame, state, memory) for frame in prenet]
    outputs = torch.stack([torch.cat((state.decoder.hidden, state.context), dim=1) for state in states])
    return outputs, torch.stack([state.weights for state in states], dim=1)


def run_all_steps(decoder: Decoder, prenet: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """The same as run_step_by_step, to rounding."""
    hidden, contexts, alignments = _attend(decoder, prenet, memory)
    rnn = decoder.decoder_rnn
    gates = F.linear(torch.cat((hidden, contexts), dim=2), rnn.weight_ih, rnn.bias_ih + rnn.bias_hh)
    decoded = lstm_sequence(gates, rnn.weight_hh, decoder.p_decoder_dropout, decoder.training)
    return torch.cat((decoded, contexts), dim=2), alignments.transpose(0, 1)


def _attend(decoder: Decoder, prenet: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
    """Prenet outputs (K, B, P) -> attention LSTM's hidden states (K, B, H), contexts (K, B, E), weights (K, B, S)."""
    rnn, (steps, batch, prenet_dim) = decoder.attention_rnn, prenet.shape
    attention = decoder.attention_layer
    mask = dropout_mask(rnn.weight_hh, (steps, batch, rnn.hidden_size), decoder.p_attention_dropout, decoder.training)
    # v·tanh(x) = 2v·sigmoid(2x) - sum(v), the softmax does not see the constant, and sigmoid is the cheaper of the two.
    return AttentionSequence.apply(
        F.linear(prenet, rnn.weight_ih[:, :prenet_dim], rnn.bias_ih + rnn.bias_hh),
        torch.cat((rnn.weight_ih[:, prenet_dim:], rnn.weight_hh), dim=1),
        2 * attention.query_layer.linear_layer.weight,
        2 * attention.location_layer.kernel(),
        2 * attention.v.linear_layer.weight,
        2 * memory.keys.transpose(1, 2),
        memory.values,
        memory.padding,
        mask,
    )


def _windows(history: Tensor, kernel: Tensor) -> Tensor:
    """[previous, cumulative] weights (N, 2, S) -> the k of either around each symbol (N, 2k, S), for a kernel (A, 2k)."""
    size = kernel.shape[1] // 2
    return F.unfold(history[:, :, None], (1, size), padding=(0, size // 2))


class _Buffers:
    """What attention writes at each step going forward and reads going backward."""

    def __init__(self, gates: Tensor, keys: Tensor, values: Tensor, dtype: torch.dtype) -> None:
        steps, batch, width = gates.shape
        channels, symbols = keys.shape[1:]
        self.lstm = LSTMTape(gates)
        self.hidden = gates.new_empty(steps, batch, width // 4)
        self.contexts = gates.new_empty(steps, batch, values.shape[2])
        self.weights = gates.new_empty(steps, batch, symbols)
        # previous and cumulative weights, as each step sees them
        self.history = gates.new_zeros(steps + 1, batch, 2, symbols)
        # by far the largest: kept in the GEMMs' precision
        self.features = torch.empty(steps, batch, channels, symbols, dtype=dtype, device=gates.device)
        # [context, hidden] as the next step sees them, in the GEMMs' precision
        self.inputs = torch.zeros(steps + 1, batch, values.shape[2] + width // 4, dtype=dtype, device=gates.device)


sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input


class AttentionSequence(torch.autograd.Function):
    """Attention LSTM and attention with energies v·sigmoid(query + keys + location) over all steps.

    gates (K, B, 4H), recurrent weight (4H, E + H), query weight (A, H), location kernel (A, 2k), v (1, A), keys (B, A, S),
    values (B, S, E), padding (B, S), dropout mask (K, B, H) or None -> hidden (K, B, H), contexts (K, B, E), weights (K, B, S).
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        recurrent: Tensor,
        query: Tensor,
        kernel: Tensor,
        v: Tensor,
        keys: Tensor,
        values: Tensor,
        padding: Tensor,
        mask: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.dtypes = [x.dtype for x in (gates, recurrent, query, kernel, v, keys, values)]
        full, dtype = recurrent.dtype, compute_dtype(recurrent)
        kernel, keys, values = kernel.to(full), keys.to(full).contiguous(), values.to(full)
        recurrent, query = recurrent.to(dtype), query.to(dtype)
        b = _Buffers(gates.to(full, copy=True), keys, values, dtype)
        context_dim, kernels = values.shape[2], kernel.expand(len(values), -1, -1)
        recur, ask = packed(recurrent, len(values)), packed(query, len(values))
        with torch.autocast(gates.device.type, enabled=False):
            for t in range(len(gates)):
                b.lstm.forward(t, recur(b.inputs[t]), out=b.hidden[t])
                if mask is not None:
                    b.hidden[t].mul_(mask[t])
                hidden = b.inputs[t + 1, :, context_dim:].copy_(b.hidden[t])
                features = torch.bmm(kernels, _windows(b.history[t], kernel))
                features.add_(keys).add_(ask(hidden)[:, :, None]).sigmoid_()
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
        b.hidden, b.contexts, b.weights = (x.detach() for x in outputs)  # else the outputs would own what owns them
        return outputs

    @staticmethod
    def backward(ctx: Any, d_hidden: Tensor, d_contexts: Tensor, d_weights: Tensor) -> tuple[Tensor | None, ...]:
        b, (recurrent, query, kernel, v, values) = ctx.buffers, ctx.constants
        b.lstm.start_backward()
        d_gates, d_energies = torch.empty_like(b.lstm.gates), torch.empty_like(b.weights)
        d_all_contexts, d_keys = torch.empty_like(b.contexts), torch.zeros_like(b.features[0], dtype=values.dtype)
        d_feature, d_kernel = torch.empty_like(d_keys), d_keys.new_zeros(len(values), *kernel.shape)
        d_queries = d_gates.new_empty(*b.hidden.shape[:2], len(query))
        context_dim, (kernel_size, symbols) = values.shape[2], (kernel.shape[1] // 2, values.shape[1])
        d_inputs, back = torch.zeros_like(b.inputs[0]), packed(recurrent.t(), len(values))  # of step t + 1
        # of step t + 1; in its second half the sum over all later cumulative weights
        d_history = torch.zeros_like(b.history[0])
        values_t, column, kernels = values.transpose(1, 2), v.t(), kernel.t().expand(len(values), -1, -1)
        for t in range(len(d_gates) - 1, -1, -1):
            torch.add(d_contexts[t], d_inputs[:, :context_dim], out=d_all_contexts[t])
            d_w = torch.bmm(d_all_contexts[t][:, None], values_t)[:, 0].add_(d_weights[t]).add_(d_history.sum(1))
            w = b.weights[t]
            torch.mul(w, d_w - (w * d_w).sum(1, keepdim=True), out=d_energies[t])
            torch.mul(d_energies[t][:, None], column, out=d_feature)
            sigmoid_backward(d_feature, b.features[t].to(d_feature.dtype), grad_input=d_feature)
            d_keys += d_feature
            d_kernel.baddbmm_(d_feature, _windows(b.history[t], kernel).transpose(1, 2))
            torch.sum(d_feature, 2, out=d_queries[t])
            d_windows = torch.bmm(kernels, d_feature)
            d_seen = F.fold(d_windows, (1, symbols), (1, kernel_size), padding=(0, kernel_size // 2))[:, :, 0]
            d_history[:, 1] += d_seen[:, 1]
            d_history[:, 0] = d_seen[:, 0]
            d_state = d_inputs[:, context_dim:] + d_hidden[t] + d_queries[t].to(query.dtype) @ query
            if ctx.mask is not None:
                d_state.mul_(ctx.mask[t])
            b.lstm.backward(t, d_state, out=d_gates[t])
            d_inputs = back(d_gates[t].to(recurrent.dtype))
        gradients = (
            d_gates,
            *_weight_gradients(ctx, d_gates, d_queries),
            d_kernel.sum(0),
            torch.matmul(b.features, d_energies.to(b.features.dtype)[..., None]).sum((0, 1)).t(),
            d_keys,
            torch.einsum("tbs,tbe->bse", b.weights, d_all_contexts),
        )
        return *(g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True)), None, None


def _weight_gradients(ctx: Any, d_gates: Tensor, d_queries: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the recurrent and the query weight from those of every step: one GEMM each."""
    b, (recurrent, query, _, _, values) = ctx.buffers, ctx.constants
    hidden = b.inputs[1:, :, values.shape[2] :].flatten(0, 1)
    return (
        d_gates.flatten(0, 1).to(recurrent.dtype).t() @ b.inputs[:-1].flatten(0, 1),
        d_queries.flatten(0, 1).to(query.dtype).t() @ hidden,
    )
