"""The rows "compiled" and "compiled, channels last": training with torch.compile, which fuses the plain equations."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.fast import Request, shallow_copy
from waveglow.model import WN, WaveGlow, WeightNormConv1d

# B batch, G groups


def convert_to_compiled(model: WaveGlow, request: Request) -> WaveGlow:
    """Return a model with the same parameters whose forward and backward are compiled at their first call, once for each shape."""
    compiled = shallow_copy(model, WaveGlow).train(model.training)
    compiled.compile(mode=precision.COMPILE_MODES[request.compile])
    return compiled


def convert_to_channels_last(model: WaveGlow, request: Request) -> WaveGlow:
    """Return the same model, compiled with channels innermost in memory."""
    return convert_to_compiled(with_channels_last(model), request)


def with_channels_last(model: WaveGlow) -> WaveGlow:
    """Return a model with the same parameters whose layers keep channels innermost."""
    layers = nn.ModuleList(_with_channels_last(cast(WN, wn)) for wn in model.WN)
    return shallow_copy(model, WaveGlow, WN=layers).train(model.training)


def _with_channels_last(wn: WN) -> WN:
    stacks = {
        name: nn.ModuleList(shallow_copy(conv, ChannelsLastConv1d) for conv in cast(nn.ModuleList, getattr(wn, name)))
        for name in ("in_layers", "cond_layers", "res_skip_layers")
    }
    return shallow_copy(wn, WN, **stacks)


class ChannelsLastConv1d(WeightNormConv1d):
    """The plain convolution applied to images of height 1, for which cuDNN has kernels that read channels innermost."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, G) -> (B, out, G), channels innermost in memory."""
        norm = torch.linalg.vector_norm(self.weight_v, dim=(1, 2), keepdim=True)
        weight = (self.weight_g * self.weight_v / norm)[:, :, None].contiguous(memory_format=torch.channels_last)
        picture = x[:, :, None].contiguous(memory_format=torch.channels_last)
        return F.conv2d(picture, weight, self.bias, padding=(0, self.padding), dilation=(1, self.dilation))[:, :, 0]
