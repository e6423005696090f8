"""Tacotron 2's free-running decoder as TorchScript, as a reference for ours: the plain steps in one scripted loop.

model.decoder.prepared = ScriptedDecoder(model.decoder)
model.infer(ids, lengths)
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacotron2.decoder import Decoder, Memory
from tacotron2.free_running import FreeRun

# B batch, S symbols, K decoder steps, E encoder channels, A attention channels, D decoder LSTM size


class ScriptedDecoder:
    """Replacement for the loop of Decoder.infer; shares the decoder's weights."""

    def __init__(self, decoder: Decoder) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the benchmark measures TorchScript, deprecated or not
            self.loop = torch.jit.script(DecoderLoop(decoder))

    def __call__(self, memory: Memory, limit: int) -> FreeRun:
        """Run the decoder: same result as run_freely, up to rounding."""
        return FreeRun(*self.loop(memory.values, memory.keys, memory.padding, limit))


class DecoderLoop(nn.Module):
    """Layers and loop of a decoder, in the subset of Python that TorchScript supports."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        attention = decoder.attention_layer
        self.prenet = nn.ModuleList(layer.linear_layer for layer in decoder.prenet.layers)
        self.attention_rnn, self.decoder_rnn = decoder.attention_rnn, decoder.decoder_rnn
        self.query = attention.query_layer.linear_layer
        self.location_conv = attention.location_layer.location_conv.conv
        self.location_dense = attention.location_layer.location_dense.linear_layer
        self.v = attention.v.linear_layer
        self.frames, self.gate = decoder.linear_projection.linear_layer, decoder.gate_layer.linear_layer
        self.p_dropout, self.threshold = decoder.prenet.p_dropout, decoder.gate_threshold
        self.early_stopping = decoder.early_stopping

    def forward(self, values: Tensor, keys: Tensor, padding: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Run the loop: encoder outputs (B, S, E), keys (B, S, A), padding (B, S) -> the fields of FreeRun."""
        batch, symbols = values.shape[0], values.shape[1]
        zeros = values.new_zeros(batch, self.attention_rnn.hidden_size)
        attention, context = (zeros, zeros), values.new_zeros(batch, values.shape[2])
        zeros = values.new_zeros(batch, self.decoder_rnn.hidden_size)
        decoder, history = (zeros, zeros), values.new_zeros(batch, 2, symbols)
        frame = values.new_zeros(batch, self.frames.out_features)
        running = torch.ones(batch, dtype=torch.bool, device=values.device)
        steps = torch.zeros(batch, dtype=torch.int64, device=values.device)
        outputs: list[Tensor] = []
        alignments: list[Tensor] = []
        for _ in range(limit):
            for layer in self.prenet:
                frame = F.dropout(torch.relu(layer(frame)), self.p_dropout, True)
            attention = self.attention_rnn(torch.cat((frame, context), dim=1), attention)
            location = self.location_dense(self.location_conv(history).transpose(1, 2))
            energies = self.v(torch.tanh(self.query(attention[0])[:, None] + location + keys))[:, :, 0]
            weights = torch.softmax(energies.masked_fill(padding, float("-inf")), dim=1)
            context = torch.bmm(weights[:, None], values)[:, 0]
            history = torch.stack((weights, history[:, 1] + weights), dim=1)
            decoder = self.decoder_rnn(torch.cat((attention[0], context), dim=1), decoder)
            outputs.append(torch.cat((decoder[0], context), dim=1))
            alignments.append(weights)
            frame = self.frames(outputs[-1])
            running = running & (torch.sigmoid(self.gate(outputs[-1])[:, 0]) <= self.threshold)
            steps += running
            if self.early_stopping and not bool(running.any()):
                break
        return torch.stack(outputs), torch.stack(alignments, dim=1), steps
