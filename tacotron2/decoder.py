"""Tacotron 2's attention decoder: text memory and previous frames in, mel frames, stop gates and alignments out.

Inference, and teacher forcing in evaluation mode, take the same plain steps. Training runs the same equations for all steps
together, in tacotron2/teacher_forcing.py. The prenet and the projections always see all the frames that are known at once.
Sources: Shen et al. 2018 (Tacotron 2); Chorowski et al. 2015 (location-sensitive attention); after Liu et al. 2019, "Maximizing
mutual information for Tacotron": dropped frames, which here are zeros, as before the first step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.layers import ConvNorm, LinearNorm, LSTMState, at_least_float32, dropout, length_mask
from tacotron2.config import Tacotron2Config, Tacotron2TrainingConfig
from tacotron2.free_running import PreparedDecoder, run_freely
from tacotron2.guard import DecodingGuard
from tacotron2.teacher_forcing import run_all_steps, run_step_by_step

# B batch, S symbols, T frames, M mels, r frames a step, K decoder steps (T / r, rounded up), E encoder channels
# A attention channels, H attention LSTM size, D decoder LSTM size, P prenet size


class Prenet(nn.Module):
    """Two bias-free linear layers whose dropout stays on in inference: without it the decoder repeats itself."""

    def __init__(self, in_dim: int, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([LinearNorm(in_dim, dim, bias=False), LinearNorm(dim, dim, bias=False)])
        self.p_dropout = 0.5

    def weights(self) -> tuple[Tensor, Tensor]:
        """Of the first layer (P, r·M) and the second (P, P)."""
        first, second = (cast(LinearNorm, layer).linear_layer.weight for layer in self.layers)
        return first, second

    def forward(self, x: Tensor) -> Tensor:
        """(…, r·M) -> (…, P)."""
        for layer in self.layers:
            x = dropout(torch.relu(layer(x)), self.p_dropout)
        return x


class LocationLayer(nn.Module):
    """Features of where attention has been: a convolution over [previous, cumulative] weights and a projection."""

    def __init__(self, attention_dim: int, n_filters: int, kernel_size: int) -> None:
        super().__init__()
        self.location_conv = ConvNorm(2, n_filters, kernel_size, bias=False)
        self.location_dense = LinearNorm(n_filters, attention_dim, bias=False, gain="tanh")

    def kernel(self) -> Tensor:
        """Both steps in one, as they are linear: (A, 2k) for windows of k weights of either history."""
        return self.location_dense.linear_layer.weight @ self.location_conv.conv.weight.flatten(1)

    def forward(self, history: Tensor) -> Tensor:
        """[previous, cumulative] weights (B, 2, S) -> features (B, S, A)."""
        return self.location_dense(self.location_conv(history).transpose(1, 2))


class Memory(NamedTuple):
    """What attention reads at every step: encoder outputs (B, S, E), their keys (B, S, A), True past a text's end (B, S)."""

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

    def prepare(self, memory: Tensor, lengths: Tensor) -> Memory:
        """memory (B, S, E) and its lengths (B,) -> what every step reads."""
        return Memory(memory, self.memory_layer(memory), ~length_mask(lengths, memory.shape[1]))

    def forward(self, hidden: Tensor, history: Tensor, memory: Memory) -> Tensor:
        """Weights (B, S) for an attention LSTM's hidden state (B, H), given [previous, cumulative] weights (B, 2, S)."""
        features = self.query_layer(hidden[:, None]) + self.location_layer(history) + memory.keys
        energies = at_least_float32(self.v(torch.tanh(features))[:, :, 0])
        return torch.softmax(energies.masked_fill(memory.padding, float("-inf")), dim=1)


class DecoderState(NamedTuple):
    """What decoding carries from step to step: both LSTMs, the context (B, E), weights and their sum so far (B, S)."""

    attention: LSTMState
    context: Tensor
    weights: Tensor
    cumulative: Tensor
    decoder: LSTMState


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
        self.prenet_dim, self.context_dim = config.prenet_dim, config.encoder_embedding_dim
        # how to train, and how to run freely with any weights: no part of the config
        self.plain, self.drop_frame_rate = False, Tacotron2TrainingConfig.drop_frame_rate
        self.guard = DecodingGuard()
        self.prepared: PreparedDecoder | None = None
        self.register_load_state_dict_post_hook(_forget_prepared)
        memory_dim, step_dim = config.encoder_embedding_dim, config.n_mel_channels * config.n_frames_per_step
        self.prenet = Prenet(step_dim, config.prenet_dim)
        self.attention_rnn = nn.LSTMCell(config.prenet_dim + memory_dim, config.attention_rnn_dim)
        self.attention_layer = Attention(config)
        self.decoder_rnn = nn.LSTMCell(config.attention_rnn_dim + memory_dim, config.decoder_rnn_dim)
        self.linear_projection = LinearNorm(config.decoder_rnn_dim + memory_dim, step_dim)
        self.gate_layer = LinearNorm(config.decoder_rnn_dim + memory_dim, 1, gain="sigmoid")

    def forward(self, memory: Tensor, memory_lengths: Tensor, mels: Tensor, mel_lengths: Tensor) -> DecoderOutput:
        """Teacher forcing: memory (B, S, E), target mels (B, M, T); T need not be a multiple of r.

        In training drop_frame_rate of the steps are fed zeros, as the first one is: then the text alone says what comes next.
        """
        fed = self._previous_frames(mels)
        if self.training and self.drop_frame_rate:
            fed = fed * (torch.rand_like(fed[:, :, :1]) >= self.drop_frame_rate)
        prenet = self.prenet(fed)
        prepared = self.attention_layer.prepare(memory, memory_lengths)
        run = run_all_steps if self.training and not self.plain else run_step_by_step
        outputs, alignments = run(self, prenet, prepared)
        mel_outputs, gates = self._project(outputs)
        frames = mels.shape[2]
        return DecoderOutput(mel_outputs[:, :, :frames], gates[:, :frames], alignments, mel_lengths)

    @torch.no_grad()
    def infer(self, memory: Tensor, memory_lengths: Tensor, max_steps: int | None = None) -> DecoderOutput:
        """Feed the decoder its own frames until every item has ended or max_steps (max_decoder_steps) are done.

        An item ends when its gate fires or, with an attention_stop, that rule does: its length counts the frames before. Where
        neither happens, its length is its frame_limits.
        """
        run = self.prepared or partial(run_freely, self)
        made = run(self.attention_layer.prepare(memory, memory_lengths), max_steps or self.max_decoder_steps)
        mels, gates = self._project(made.outputs)
        return DecoderOutput(mels, gates, made.alignments, made.steps * self.n_frames_per_step)

    def frame_limits(self, text_lengths: Tensor, max_steps: int | None = None) -> Tensor:
        """Frames (B,) after which infer cuts texts of these lengths (B,): an item that is as long has not ended by itself."""
        r = self.n_frames_per_step
        return self.guard.step_limits(text_lengths, r, max_steps or self.max_decoder_steps) * r

    def prepare(self, half: bool, int8: bool = False) -> None:
        """Let infer run fast from now on, from today's weights; for half precision and int8 see PreparedDecoder."""
        self.prepared = PreparedDecoder(self, half, int8)

    def start(self, memory: Tensor) -> DecoderState:
        """The state before the first step: zeros."""
        batch, symbols, channels = memory.shape
        attention = LSTMState.zeros(memory[:, 0], self.attention_rnn.hidden_size)
        decoder = LSTMState.zeros(memory[:, 0], self.decoder_rnn.hidden_size)
        weights = attention.hidden.new_zeros(batch, symbols)
        return DecoderState(attention, attention.hidden.new_zeros(batch, channels), weights, weights, decoder)

    def step(self, prenet: Tensor, state: DecoderState, memory: Memory) -> DecoderState:
        """One decoder step for the prenet's view (B, P) of the previous frames."""
        rnn_input = torch.cat((prenet, state.context), dim=1)
        attention = LSTMState(*self.attention_rnn(rnn_input, state.attention))
        attention = attention.dropout(self.p_attention_dropout, self.training)
        history = torch.stack((state.weights, state.cumulative), dim=1)
        weights = self.attention_layer(attention.hidden, history, memory)
        context = torch.bmm(weights[:, None], memory.values)[:, 0]
        decoder = LSTMState(*self.decoder_rnn(torch.cat((attention.hidden, context), dim=1), state.decoder))
        decoder = decoder.dropout(self.p_decoder_dropout, self.training)
        return DecoderState(attention, context, weights, state.cumulative + weights, decoder)

    def _previous_frames(self, mels: Tensor) -> Tensor:
        """Target mels (B, M, T) -> what each step is fed (K, B, r·M): zeros, then the frames of the step before."""
        r = self.n_frames_per_step
        mels = F.pad(mels, (0, -mels.shape[2] % r))
        steps = mels.transpose(1, 2).unflatten(1, (-1, r)).flatten(2).transpose(0, 1)
        return F.pad(steps[:-1], (0, 0, 0, 0, 1, 0))

    def _project(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """[decoder hidden, context] (K, B, D + E) -> frames (B, M, T), gate logits (B, T): a step's r frames share its gate."""
        r = self.n_frames_per_step
        outputs = outputs.transpose(0, 1)
        mels = self.linear_projection(outputs).unflatten(2, (r, self.n_mel_channels)).flatten(1, 2)
        return mels.transpose(1, 2), self.gate_layer(outputs)[:, :, 0].repeat_interleave(r, dim=1)


def _forget_prepared(decoder: nn.Module, _incompatible_keys: Any) -> None:
    assert isinstance(decoder, Decoder)
    decoder.prepared = None
