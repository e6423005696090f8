"""Tacotron 2's attention decoder: text memory and previous frames in; mel frames, stop gates and alignments out.

Sources: Shen et al. 2018 (Tacotron 2); Chorowski et al. 2015 (location-sensitive attention); after Liu et al. 2019, "Maximizing
mutual information for Tacotron": dropped frames, which here are zeros, as before the first step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.draws import Draws
from common.layers import ConvNorm, LinearNorm, length_mask
from tacotron2.config import Tacotron2Config, Tacotron2TrainingConfig
from tacotron2.guard import DecodingGuard, StopRule

# B batch, S symbols, T frames, M mels, r frames a step, K decoder steps (T / r, rounded up), E encoder channels
# A attention channels, H attention LSTM size, D decoder LSTM size, P prenet size


class Prenet(nn.Module):
    """Two linear layers without bias. Their dropout stays on in inference; without it the decoder repeats itself."""

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.dim, self.p_dropout = dim, 0.5
        self.layers = nn.ModuleList([LinearNorm(in_dim, dim, bias=False), LinearNorm(dim, dim, bias=False)])

    def draw_keep_masks(self, steps: int, batch: int, device: torch.device) -> Tensor:
        """True for each unit that dropout keeps: (K, 2 layers, B, P), drawn step by step."""
        return torch.rand(steps, 2, batch, self.dim, device=device) >= self.p_dropout

    def keep_masks(self, draws: Draws, steps: int) -> Tensor:
        """The same (K, 2, B, P) from each item's own random numbers, step by step too."""
        return draws.uniform(steps, 2, self.dim).movedim(0, 2) >= self.p_dropout

    def forward(self, frames: Tensor, keep: Tensor | None = None) -> Tensor:
        """Frames (K, B, r·M) -> (K, B, P), with keep masks (K, 2, B, P), drawn here by default."""
        if keep is None:
            keep = self.draw_keep_masks(frames.shape[0], frames.shape[1], frames.device)
        x = frames
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) * keep[:, i] / (1 - self.p_dropout)
        return x


class LocationLayer(nn.Module):
    """Features of where attention has been: a convolution over [previous, cumulative] weights and a projection."""

    def __init__(self, attention_dim: int, n_filters: int, kernel_size: int) -> None:
        super().__init__()
        self.location_conv = ConvNorm(2, n_filters, kernel_size, bias=False)
        self.location_dense = LinearNorm(n_filters, attention_dim, bias=False, gain="tanh")

    def forward(self, history: Tensor) -> Tensor:
        """[previous, cumulative] weights (B, 2, S) -> features (B, S, A)."""
        return self.location_dense(self.location_conv(history).transpose(1, 2))


class Memory(NamedTuple):
    """Inputs of attention at every step: encoder outputs (B, S, E), their keys (B, S, A), True past a text's end (B, S)."""

    values: Tensor
    keys: Tensor
    padding: Tensor


class Attention(nn.Module):
    """Location-sensitive attention: energies v·tanh(W_q h + W_m memory + W_l location)."""

    def __init__(self, config: Tacotron2Config) -> None:
        super().__init__()
        dim = config.attention_dim
        self.query_layer = LinearNorm(config.attention_rnn_dim, dim, bias=False, gain="tanh")
        self.memory_layer = LinearNorm(config.encoder_embedding_dim, dim, bias=False, gain="tanh")
        self.v = LinearNorm(dim, 1, bias=False)
        self.location_layer = LocationLayer(
            dim, config.attention_location_n_filters, config.attention_location_kernel_size
        )

    def memory(self, values: Tensor, lengths: Tensor) -> Memory:
        """Encoder outputs (B, S, E) and their lengths (B,) -> the inputs of every step."""
        return Memory(values, self.memory_layer(values), ~length_mask(lengths, values.shape[1]))

    def forward(self, hidden: Tensor, history: Tensor, memory: Memory) -> Tensor:
        """Weights (B, S) for an attention LSTM's hidden state (B, H), given [previous, cumulative] weights (B, 2, S)."""
        features = self.query_layer(hidden[:, None]) + self.location_layer(history) + memory.keys
        energies = self.v(torch.tanh(features))[:, :, 0].to(history.dtype)  # a softmax loses too much in half precision
        return torch.softmax(energies.masked_fill(memory.padding, float("-inf")), dim=1)


class DecoderState(NamedTuple):
    """From step to step: hidden and cell of both LSTMs (B, H) and (B, D), context (B, E), weights and their sum so far (B, S)."""

    attention_hidden: Tensor
    attention_cell: Tensor
    context: Tensor
    weights: Tensor
    cumulative: Tensor
    decoder_hidden: Tensor
    decoder_cell: Tensor


class DecoderOutput(NamedTuple):
    """Frames (B, M, T), gate logits (B, T), alignments (B, K, S), lengths in frames (B,)."""

    mels: Tensor
    gates: Tensor
    alignments: Tensor
    lengths: Tensor


class Decoder(nn.Module):
    """Attention LSTM, location-sensitive attention, decoder LSTM, and linear projections to r frames and one gate."""

    def __init__(self, config: Tacotron2Config) -> None:
        super().__init__()
        self.n_mel_channels = config.n_mel_channels
        self.n_frames_per_step = config.n_frames_per_step
        self.max_decoder_steps = config.max_decoder_steps
        self.gate_threshold = config.gate_threshold
        self.early_stopping = not config.decoder_no_early_stopping
        self.p_attention_dropout = config.p_attention_dropout
        self.p_decoder_dropout = config.p_decoder_dropout
        # Neither is part of the config, as both suit any weights.
        self.drop_frame_rate = Tacotron2TrainingConfig.drop_frame_rate
        self.guard = DecodingGuard()
        memory_dim, step_dim = config.encoder_embedding_dim, config.n_mel_channels * config.n_frames_per_step
        self.prenet = Prenet(step_dim, config.prenet_dim)
        self.attention_rnn = nn.LSTMCell(config.prenet_dim + memory_dim, config.attention_rnn_dim)
        self.attention_layer = Attention(config)
        self.decoder_rnn = nn.LSTMCell(config.attention_rnn_dim + memory_dim, config.decoder_rnn_dim)
        self.linear_projection = LinearNorm(config.decoder_rnn_dim + memory_dim, step_dim)
        self.gate_layer = LinearNorm(config.decoder_rnn_dim + memory_dim, 1, gain="sigmoid")

    def forward(self, values: Tensor, text_lengths: Tensor, mels: Tensor, mel_lengths: Tensor) -> DecoderOutput:
        """Teacher forcing: encoder outputs (B, S, E), target mels (B, M, T); T need not be a multiple of r.

        In training, a share drop_frame_rate of the steps gets zeros as input, like the first step, and so relies on the text alone.
        """
        frames = self.previous_frames(mels)
        if self.training and self.drop_frame_rate > 0:
            frames = frames * (torch.rand_like(frames[:, :, :1]) >= self.drop_frame_rate)
        hidden, alignments = self.run(self.prenet(frames), self.attention_layer.memory(values, text_lengths))
        outputs, gates = self.project(hidden)
        return DecoderOutput(outputs[:, :, : mels.shape[2]], gates[:, : mels.shape[2]], alignments, mel_lengths)

    def run(self, inputs: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Prenet outputs of all steps (K, B, P) -> [decoder hidden, context] (K, B, D + E), alignments (B, K, S)."""
        state = self.start(memory)
        outputs: list[Tensor] = []
        alignments: list[Tensor] = []
        for x in inputs.unbind(0):
            state = self.step(x, state, memory)
            outputs.append(torch.cat((state.decoder_hidden, state.context), dim=1))
            alignments.append(state.weights)
        return torch.stack(outputs), torch.stack(alignments, dim=1)

    @torch.no_grad()
    def infer(
        self, values: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> DecoderOutput:
        """Free running: each step gets the previous step's frames, until every item has stopped or after max_steps.

        An item stops when its gate fires or its guard's rule holds; its length counts the frames before that. An item that does
        not stop is as long as its frame_limits. The prenet's dropout draws from `draws`, or else from PyTorch's generator.
        """
        memory = self.attention_layer.memory(values, text_lengths)
        state, stop = self.start(memory), self.stop_rule(text_lengths, max_steps)
        frame = values.new_zeros(1, len(values), self.linear_projection.linear_layer.out_features)
        outputs: list[Tensor] = []
        alignments: list[Tensor] = []
        while not stop.finished:
            padding = self.guard.mask(memory.padding, state.weights)
            keep = self.prenet.keep_masks(draws, 1) if draws else None
            state = self.step(self.prenet(frame, keep)[0], state, memory._replace(padding=padding))
            outputs.append(torch.cat((state.decoder_hidden, state.context), dim=1))
            alignments.append(state.weights)
            frame = self.linear_projection(outputs[-1])[None]
            stop.update(self.gate_layer(outputs[-1]).T, state.weights[None])
        mels, gates = self.project(torch.stack(outputs))
        return DecoderOutput(mels, gates, torch.stack(alignments, dim=1), stop.steps * self.n_frames_per_step)

    def step(self, x: Tensor, state: DecoderState, memory: Memory) -> DecoderState:
        """One decoder step, for the prenet's output (B, P) of the previous frames."""
        h, c = self.attention_rnn(torch.cat((x, state.context), dim=1), (state.attention_hidden, state.attention_cell))
        h = F.dropout(h, self.p_attention_dropout, self.training)
        weights = self.attention_layer(h, torch.stack((state.weights, state.cumulative), dim=1), memory)
        context = torch.bmm(weights[:, None], memory.values)[:, 0]
        d, e = self.decoder_rnn(torch.cat((h, context), dim=1), (state.decoder_hidden, state.decoder_cell))
        d = F.dropout(d, self.p_decoder_dropout, self.training)
        return DecoderState(h, c, context, weights, state.cumulative + weights, d, e)

    def start(self, memory: Memory) -> DecoderState:
        """The state before the first step: zeros, in the weights' dtype, which autocast leaves at float32."""
        batch, symbols, channels = memory.values.shape
        like = self.attention_rnn.weight_hh
        attention = like.new_zeros(batch, self.attention_rnn.hidden_size)
        decoder = like.new_zeros(batch, self.decoder_rnn.hidden_size)
        context, weights = like.new_zeros(batch, channels), like.new_zeros(batch, symbols)
        return DecoderState(attention, attention, context, weights, weights, decoder, decoder)

    def project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """[decoder hidden, context] (K, B, D + E) -> frames (B, M, T), gate logits (B, T): a step's r frames share its gate."""
        r = self.n_frames_per_step
        outputs = outputs.transpose(0, 1)
        mels = self.linear_projection(outputs).unflatten(2, (r, self.n_mel_channels)).flatten(1, 2)
        return mels.transpose(1, 2), self.gate_layer(outputs)[:, :, 0].repeat_interleave(r, dim=1)

    def previous_frames(self, mels: Tensor) -> Tensor:
        """Target mels (B, M, T) -> each step's input (K, B, r·M): zeros, then the previous step's frames."""
        r = self.n_frames_per_step
        mels = F.pad(mels, (0, -mels.shape[2] % r))
        steps = mels.transpose(1, 2).unflatten(1, (-1, r)).flatten(2).transpose(0, 1)
        return F.pad(steps[:-1], (0, 0, 0, 0, 1, 0))

    def stop_rule(self, text_lengths: Tensor, max_steps: int | None) -> StopRule:
        """The rule that ends a free run of texts of these lengths (B,)."""
        limits = self.guard.step_limits(text_lengths, self.n_frames_per_step, max_steps or self.max_decoder_steps)
        attention = self.guard.attention_rule(text_lengths, self.n_frames_per_step)
        return StopRule(limits, self.gate_threshold, self.early_stopping, attention)

    def frame_limits(self, text_lengths: Tensor, max_steps: int | None = None) -> Tensor:
        """Frames (B,) after which infer cuts texts of these lengths (B,): an item that is as long did not stop."""
        r = self.n_frames_per_step
        return self.guard.step_limits(text_lengths, r, max_steps or self.max_decoder_steps) * r
