"""Tacotron 2: symbol ids to mel spectrograms (Shen et al. 2018, "Natural TTS synthesis by conditioning WaveNet on mel…")."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from common.draws import Draws
from common.layers import ConvStack, bidirectional_lstm, length_mask
from tacotron2.config import Tacotron2Config
from tacotron2.config import Tacotron2TrainingConfig as Training
from tacotron2.decoder import Attention as Attention  # this and the next two: where the published recipe has them
from tacotron2.decoder import Decoder
from tacotron2.decoder import LocationLayer as LocationLayer
from tacotron2.decoder import Prenet as Prenet

# B batch, S symbols, T frames, M mels, E encoder channels, K decoder steps (T / n_frames_per_step)


class Tacotron2Output(NamedTuple):
    """Teacher-forced outputs: frames before and after the postnet (B, M, T), gate logits (B, T), alignments (B, K, S)."""

    mel_outputs: Tensor
    mel_outputs_postnet: Tensor
    gate_outputs: Tensor
    alignments: Tensor


class Tacotron2Inference(NamedTuple):
    """Free-running outputs: frames (B, M, T), their number for each item (B,), alignments (B, K, S)."""

    mels: Tensor
    mel_lengths: Tensor
    alignments: Tensor


class Encoder(ConvStack):
    """Embedded symbols -> memory: convolutions with ReLU, then a bidirectional LSTM over packed sequences."""

    def __init__(self, config: Tacotron2Config) -> None:
        dim, n = config.encoder_embedding_dim, config.encoder_n_convolutions
        dims = [config.symbols_embedding_dim] + [dim] * n
        super().__init__(dims, config.encoder_kernel_size, gains=["relu"] * n, p_dropout=Training.p_convolution_dropout)
        self.lstm = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)

    def forward(self, embedded: Tensor, lengths: Tensor, mask_padding: bool) -> Tensor:
        """(B, S, symbols_embedding_dim), lengths (B,) -> memory (B, S, E), zero past each length."""
        mask = length_mask(lengths, embedded.shape[1])[:, None] if mask_padding else None
        x = self.convolve(embedded.transpose(1, 2), mask).transpose(1, 2)
        if not torch.jit.is_scripting():  # noqa: SIM102 - TorchScript compiles the condition of an `and`
            if torch.compiler.is_exporting():
                return bidirectional_lstm(self.lstm, x, lengths)
        # Sorted here: PyTorch's own sorting makes the host wait for a GPU two more times.
        order = torch.argsort(lengths, descending=True, stable=True)
        sorted_lengths = lengths.index_select(0, order).cpu()  # host sync
        packed = pack_padded_sequence(x.index_select(0, order), sorted_lengths, batch_first=True)
        memory, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        return memory.index_select(0, torch.argsort(order))


class Postnet(ConvStack):
    """Convolutions that predict a residual for the decoder's frames."""

    def __init__(self, config: Tacotron2Config) -> None:
        inner = config.postnet_n_convolutions - 1
        dims = [config.n_mel_channels] + [config.postnet_embedding_dim] * inner + [config.n_mel_channels]
        gains = ["tanh"] * inner + ["linear"]
        super().__init__(dims, config.postnet_kernel_size, gains=gains, p_dropout=Training.p_convolution_dropout)

    def forward(self, mels: Tensor, mask: Tensor | None) -> Tensor:
        """Frames (B, M, T) -> refined frames (B, M, T); frames that are 0 past the mask (B, 1, T) stay 0."""
        return mels + self.convolve(mels, mask)


class Tacotron2(nn.Module):
    """Encoder, attention decoder and postnet; keyword arguments are the fields of Tacotron2Config."""

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = Tacotron2Config(**config)
        self.mask_padding = self.config.mask_padding
        dim = self.config.symbols_embedding_dim
        self.embedding = nn.Embedding(self.config.n_symbols, dim)
        bound = math.sqrt(3.0) * math.sqrt(2.0 / (self.config.n_symbols + dim))
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)
        self.postnet = Postnet(self.config)

    def forward(self, text: Tensor, text_lengths: Tensor, mels: Tensor, mel_lengths: Tensor) -> Tacotron2Output:
        """Teacher forcing: text (B, S) int64, text_lengths (B,), target mels (B, M, T), mel_lengths (B,)."""
        memory = self.encoder(self.embedding(text), text_lengths, self.mask_padding)
        decoded = self.decoder(memory, text_lengths, mels, mel_lengths)
        if not self.mask_padding:
            return Tacotron2Output(decoded.mels, self.postnet(decoded.mels, None), decoded.gates, decoded.alignments)
        mask = length_mask(mel_lengths, mels.shape[2])[:, None]
        frames = decoded.mels * mask
        gates = decoded.gates.masked_fill(~mask[:, 0], 1e3)  # a logit whose sigmoid is 1
        return Tacotron2Output(frames, self.postnet(frames, mask), gates, decoded.alignments)

    def frame_limits(self, text_lengths: Tensor, max_steps: int | None = None) -> Tensor:
        """Frames (B,) after which infer cuts texts of these lengths (B,), with the same max_steps: see Decoder.frame_limits."""
        return self.decoder.frame_limits(text_lengths, max_steps)

    @torch.no_grad()
    def infer(
        self, text: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> Tacotron2Inference:
        """Free running: text (B, S), text_lengths (B,) -> frames, lengths, alignments; padding has no effect on an item.

        The run ends when every item has stopped, or after max_steps decoder steps (max_decoder_steps of the config by default).
        The decoder's guard may stop or cut items earlier; an item as long as its frame_limits did not stop. With `draws` each item
        has its own dropout; otherwise PyTorch's generator draws it for the whole batch.
        """
        memory = self.encoder(self.embedding(text), text_lengths, mask_padding=True)
        decoded = self.decoder.infer(memory, text_lengths, max_steps, draws)
        # The postnet's right context of an item is the step at which its gate fired, in a batch as for the item alone.
        # An item that was cut has no such step, alone or beside longer ones.
        lengths = decoded.lengths + self.decoder.n_frames_per_step
        lengths = torch.minimum(lengths, self.frame_limits(text_lengths, max_steps))
        mask = length_mask(lengths, decoded.mels.shape[2])[:, None]
        mels = self.postnet(decoded.mels * mask, mask)
        return Tacotron2Inference(mels, decoded.lengths, decoded.alignments)
