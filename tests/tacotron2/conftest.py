"""A small Tacotron 2 whose every weight and statistic matters, and batches for it."""

import pytest
import torch
from torch import nn

from tacotron2.data_function import Tacotron2Batch
from tacotron2.model import Tacotron2

SMALL = {
    "n_mel_channels": 5, "n_symbols": 11, "symbols_embedding_dim": 6, "encoder_kernel_size": 3,
    "encoder_n_convolutions": 2, "encoder_embedding_dim": 8, "attention_rnn_dim": 7, "attention_dim": 4,
    "attention_location_n_filters": 3, "attention_location_kernel_size": 5, "decoder_rnn_dim": 9, "prenet_dim": 6,
    "max_decoder_steps": 9, "postnet_embedding_dim": 7, "postnet_n_convolutions": 3,
}  # fmt: skip


@pytest.fixture
def small_model():
    """small_model(dtype, **config) -> Tacotron2 in evaluation mode, its dropout off."""

    def build(dtype: torch.dtype = torch.float64, **config) -> Tacotron2:
        model = Tacotron2(**{**SMALL, **config}).to(dtype).eval()
        model.decoder.p_attention_dropout = model.decoder.p_decoder_dropout = 0.0
        model.decoder.prenet.p_dropout = model.encoder.p_dropout = model.postnet.p_dropout = 0.0
        with torch.no_grad():
            for name, parameter in model.decoder.named_parameters():
                if name.startswith(("prenet", "attention", "gate")):
                    parameter.mul_(1.5)  # far from uniform attention and from a linear model
            for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm1d)):
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.normal_(std=0.3)
                norm.running_mean.normal_(std=0.3)
                norm.running_var.uniform_(0.5, 1.5)
        return model

    return build


@pytest.fixture
def make_batch():
    """make_batch(text_lengths, mel_lengths, dtype, r) -> a zero-padded Tacotron2Batch of random clips."""

    def make(text_lengths, mel_lengths, dtype=torch.float64, r: int = 1) -> Tacotron2Batch:
        symbols, frames = max(text_lengths), max(mel_lengths)
        texts, mels = torch.tensor(text_lengths), torch.tensor(mel_lengths)
        place = torch.arange(frames)
        return Tacotron2Batch(
            text=torch.randint(1, 11, (len(texts), symbols)) * (torch.arange(symbols) < texts[:, None]),
            text_lengths=texts,
            mels=(torch.randn(len(mels), 5, frames) * (place < mels[:, None])[:, None]).to(dtype),
            gates=(place // r >= (mels[:, None] - 1) // r).to(dtype),
            mel_lengths=mels,
            names=("",) * len(texts),
        )

    return make
