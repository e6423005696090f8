"""The plain parts of Tacotron 2 in TorchScript, torch.export with dynamic sizes, and torch.compile, against eager mode."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tacotron2.decoder import Decoder, DecoderState, Memory
from tacotron2.model import Tacotron2

pytestmark = pytest.mark.slow

SIZES = {
    "n_mel_channels": 3,
    "symbols_embedding_dim": 12,
    "encoder_embedding_dim": 8,
    "attention_rnn_dim": 6,
    "attention_dim": 5,
    "attention_location_n_filters": 4,
    "attention_location_kernel_size": 3,
    "decoder_rnn_dim": 7,
    "prenet_dim": 4,
    "postnet_embedding_dim": 6,
    "n_frames_per_step": 2,
}
BATCH, LENGTH = Dim("batch", max=64), Dim("length", max=4096)


class Encode(nn.Module):
    """Symbol ids to memory."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        self.embedding, self.encoder = model.embedding, model.encoder

    def forward(self, text: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.embedding(text), lengths, True)


class Step(nn.Module):
    """Previous frames, keep masks of the prenet, state and memory to the next state, frames and gates."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, frames: Tensor, keep: Tensor, state: DecoderState, memory: Memory):
        state = self.decoder.step(self.decoder.prenet(frames, keep)[0], state, memory)
        mels, gates = self.decoder.project(torch.cat((state.decoder_hidden, state.context), dim=1)[None])
        return state, mels, gates


def model() -> Tacotron2:
    torch.manual_seed(0)
    return Tacotron2(**SIZES).eval()


def encoder(batch: int, length: int) -> tuple[nn.Module, tuple, tuple]:
    lengths = torch.arange(length, length - batch, -1).clamp(min=1)
    shapes = {0: BATCH, 1: LENGTH}, {0: BATCH}
    return Encode(model()), (torch.randint(1, 40, (batch, length)), lengths), shapes


def step(batch: int, length: int) -> tuple[nn.Module, tuple, tuple]:
    decoder = model().decoder
    memory = decoder.attention_layer.memory(torch.randn(batch, length, 8), torch.full((batch,), length - 1))
    state = DecoderState(*(torch.rand_like(zeros) for zeros in decoder.start(memory)))
    keep = decoder.prenet.draw_keep_masks(1, batch, memory.values.device)
    one, both = {0: BATCH}, {0: BATCH, 1: LENGTH}
    shapes = {1: BATCH}, {2: BATCH}, DecoderState(one, one, one, both, both, one, one), Memory(both, both, both)  # type: ignore[arg-type]
    return Step(decoder), (torch.randn(1, batch, 6), keep, state, memory), shapes


def postnet(batch: int, length: int) -> tuple[nn.Module, tuple, tuple]:
    mask = torch.arange(length)[None, None] < length - torch.arange(batch)[:, None, None]
    shapes = {0: BATCH, 2: LENGTH}, {0: BATCH, 2: LENGTH}
    return model().postnet, (torch.randn(batch, 3, length), mask), shapes


def flat(outputs: object) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return [tensor for part in outputs for tensor in flat(part)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("part", [encoder, step, postnet])
@pytest.mark.parametrize("way", ["script", "export", "compile"])
@torch.no_grad()
def test_a_part_runs_elsewhere_at_other_sizes(part: Callable, way: str) -> None:
    """Built from one size of batch and text, run at three others."""
    module, inputs, shapes = part(2, 5)
    if way == "script":
        other: Callable = torch.jit.script(module)
    elif way == "export":
        other = torch.export.export(module, inputs, dynamic_shapes=shapes).module()
    else:
        other = torch.compile(module, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 5), (3, 9), (4, 6)):
        _, inputs, _ = part(batch, length)
        for result, expected in zip(flat(other(*inputs)), flat(module(*inputs)), strict=True):
            torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)
