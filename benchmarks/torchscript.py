"""Tacotron 2's free run as TorchScript: the plain step in a scripted loop, the reference of the prepared decoder.

model = scripted(model)
model.infer(ids, lengths)
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from common.draws import Draws
from common.fast import shallow_copy
from tacotron2.decoder import Decoder, DecoderOutput
from tacotron2.model import Tacotron2

# B batch, S symbols, K decoder steps, E encoder channels, D decoder LSTM size


def scripted(model: Tacotron2) -> Tacotron2:
    """The same model with the same weights, and a decoder whose infer is scripted."""
    return shallow_copy(model, Tacotron2, decoder=ScriptedDecoder.of(model.decoder))


class ScriptedDecoder(Decoder):
    """A decoder whose free run is TorchScript; it stops by gates alone."""

    @classmethod
    def of(cls, decoder: Decoder) -> ScriptedDecoder:
        """Script a plain decoder's step in a loop."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, which is what this measures
            loop = torch.jit.script(DecoderLoop(decoder))
        return shallow_copy(decoder, cls, loop=loop)

    @torch.no_grad()
    def infer(
        self, values: Tensor, text_lengths: Tensor, max_steps: int | None = None, draws: Draws | None = None
    ) -> DecoderOutput:
        """The plain decoder's infer, to rounding; its dropout comes from PyTorch's generator."""
        outputs, alignments, steps = self.loop(values, text_lengths, max_steps or self.max_decoder_steps)  # type: ignore[operator]
        mels, gates = self.project(outputs)
        return DecoderOutput(mels, gates, alignments, steps * self.n_frames_per_step)


class DecoderLoop(nn.Module):
    """The plain decoder's step and a loop that TorchScript compiles."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.threshold, self.early_stopping = decoder.gate_threshold, decoder.early_stopping

    def forward(self, values: Tensor, text_lengths: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Encoder outputs (B, S, E) -> [decoder hidden, context] (K, B, D + E), alignments (B, K, S), steps (B,)."""
        memory = self.decoder.attention_layer.memory(values, text_lengths)
        state = self.decoder.start(memory)
        frame = torch.zeros(1, len(values), self.decoder.linear_projection.linear_layer.out_features).to(values)
        running = torch.ones(len(values), dtype=torch.bool, device=values.device)
        steps = torch.zeros(len(values), dtype=torch.int64, device=values.device)
        outputs: list[Tensor] = []
        alignments: list[Tensor] = []
        for _ in range(limit):
            state = self.decoder.step(self.decoder.prenet(frame)[0], state, memory)
            outputs.append(torch.cat((state.decoder_hidden, state.context), dim=1))
            alignments.append(state.weights)
            frame = self.decoder.linear_projection(outputs[-1])[None]
            running = running & (torch.sigmoid(self.decoder.gate_layer(outputs[-1])[:, 0]) <= self.threshold)
            steps += running
            if self.early_stopping and not bool(running.any()):
                break
        return torch.stack(outputs), torch.stack(alignments, dim=1), steps
