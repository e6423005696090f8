"""The row "compiled": trains with a decoder step compiled by torch.compile; the loop over steps stays in Python."""

from __future__ import annotations

import torch
from torch import Tensor

from common import precision
from common.fast import Request, shallow_copy
from tacotron2.decoder import Decoder, DecoderState, Memory
from tacotron2.model import Tacotron2


def convert(model: Tacotron2, request: Request) -> Tacotron2:
    """Return a model with the same parameters and a decoder step that is compiled at its first call."""
    decoder = shallow_copy(model.decoder, CompiledDecoder)
    mode = precision.LOOP_COMPILE_MODES[request.compile]
    decoder.compiled_step = torch.compile(Decoder.step, dynamic=True, mode=mode)
    return shallow_copy(model, Tacotron2, decoder=decoder).train(model.training)


class CompiledDecoder(Decoder):
    """The plain decoder with a compiled step."""

    compiled_step: object

    def step(self, x: Tensor, state: DecoderState, memory: Memory) -> DecoderState:
        """Decoder.step."""
        assert callable(self.compiled_step)
        result: DecoderState = self.compiled_step(self, x, state, memory)
        return result
