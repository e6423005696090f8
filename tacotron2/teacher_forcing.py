"""The decoder's recurrences over all steps of a batch: plainly, as inference takes them, and fast, for training.

In teacher forcing the decoder LSTM does not feed attention, so the fast way runs attention over all steps first and the decoder
LSTM after it. Both LSTMs' input halves are one GEMM over all steps, and so is every large weight gradient (DeferredProduct).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from common.layers import DeferredProduct, at_least_float32, lstm_sequence, lstm_update

if TYPE_CHECKING:
    from tacotron2.decoder import Decoder, LocationLayer, Memory

# B batch, S symbols, K decoder steps, E encoder channels, A attention channels, H attention LSTM size, D decoder LSTM size


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
    return torch.cat((decoded, contexts), dim=2), alignments


def _attend(decoder: Decoder, prenet: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
    """Prenet outputs (K, B, P) -> attention LSTM's hidden states (K, B, H), contexts (K, B, E), alignments (B, K, S)."""
    attention, state = decoder.attention_layer, decoder.start(memory.values)
    lstm, context, weights, cumulative = state.attention, state.context, state.weights, state.cumulative
    recurrent, query, read = _deferred_products(decoder, prenet, memory)
    kernel, v = _location_kernel(attention.location_layer), attention.v.linear_layer.weight
    steps = []
    for _ in range(len(prenet)):
        lstm = lstm_update(recurrent(torch.cat((context, lstm.hidden), dim=1)), lstm.cell)
        lstm = lstm.dropout(decoder.p_attention_dropout, decoder.training)
        location = F.linear(_windows(torch.stack((weights, cumulative), dim=1), kernel.shape[1] // 2), kernel)
        features = torch.tanh(location + memory.keys + query(lstm.hidden)[:, None])
        energies = at_least_float32(F.linear(features, v)[:, :, 0])
        weights = torch.softmax(energies.masked_fill(memory.padding, float("-inf")), dim=1)
        cumulative = cumulative + weights
        context = read(weights)
        steps.append((lstm.hidden, context, weights))
    hidden, contexts, alignments = zip(*steps, strict=True)
    return torch.stack(hidden), torch.stack(contexts), torch.stack(alignments, dim=1)


def _location_kernel(layer: LocationLayer) -> Tensor:
    """The location layer's convolution and projection, both linear, as one matrix (A, 2k) for the windows of _windows."""
    conv, dense = layer.location_conv.conv.weight, layer.location_dense.linear_layer.weight
    return dense @ conv.flatten(1)


def _windows(history: Tensor, size: int) -> Tensor:
    """[previous, cumulative] weights (B, 2, S) -> the window of `size` of both around each symbol (B, S, 2·size)."""
    padded = F.pad(history, (size // 2, size // 2))
    return padded.unfold(2, size, 1).transpose(1, 2).flatten(2)


def _deferred_products(
    decoder: Decoder, prenet: Tensor, memory: Memory
) -> tuple[DeferredProduct, DeferredProduct, DeferredProduct]:
    """The attention LSTM's pre-activations for [context, hidden], the query for hidden, and the context for weights."""
    rnn, (steps, batch, prenet_dim) = decoder.attention_rnn, prenet.shape
    gates = F.linear(prenet, rnn.weight_ih[:, :prenet_dim], rnn.bias_ih + rnn.bias_hh)
    recurrent_weight = torch.cat((rnn.weight_ih[:, prenet_dim:], rnn.weight_hh), dim=1)
    query_weight = decoder.attention_layer.query_layer.linear_layer.weight
    queries = gates.new_zeros(steps, batch, query_weight.shape[0])
    contexts = memory.values.new_zeros(steps, batch, memory.values.shape[2])
    return (
        DeferredProduct(gates, recurrent_weight),
        DeferredProduct(queries, query_weight),
        DeferredProduct(contexts, memory.values, batched=True),
    )
