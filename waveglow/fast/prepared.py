"""The rows "prepared" and "half": a copy for inference only, with folded weights in float32 or half precision."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from common import precision
from common.fast import Request, shallow_copy
from common.layers import at_least_float32
from waveglow.fast import weights
from waveglow.fast.gated_layers import gated_layers, group
from waveglow.fast.training import MatrixProduct
from waveglow.fast.upsampling import UpsampleProduct
from waveglow.model import WN, Invertible1x1Conv, WaveGlow

# B batch, G groups, C channels of a flow, N channels of the condition


def convert_to_prepared(model: WaveGlow, request: Request) -> WaveGlow:
    """Return a model for inference, with WN's weights in the device's half precision if that is requested and faster."""
    weight = model.upsample.weight
    dtype = precision.half_dtype(weight.device, request.half) or weight.dtype
    wns = [PreparedWN(cast(WN, wn), dtype) for wn in model.WN]
    return infer_only(model, UpsampleProduct(model.upsample, dtype), wns)


def infer_only(model: WaveGlow, upsample: nn.Module, wns: list[Any]) -> WaveGlow:
    """Return a copy of a plain model for inference with these parts and stored inverses; it shares no weights with the model."""
    convinv = nn.ModuleList(StoredInverse(cast(Invertible1x1Conv, convinv)) for convinv in model.convinv)
    prepared = shallow_copy(model, WaveGlow, upsample=upsample, WN=nn.ModuleList(wns), convinv=convinv).eval()
    prepared.forward = refuse_forward  # type: ignore[method-assign, assignment]
    return prepared


def refuse_forward(*inputs: object) -> None:
    """Raise RuntimeError: stands in for a prepared model's forward."""
    raise RuntimeError("this WaveGlow is prepared for inference and has infer alone: call forward of the plain model")


class PreparedWN(nn.Module):
    """A plain WN's layers with weights folded and merged once, in `dtype`, without gradients."""

    @torch.no_grad()
    def __init__(self, wn: WN, dtype: torch.dtype) -> None:
        super().__init__()
        start, layers = weights.merge(wn)
        self.dilations = weights.dilations(wn)
        self.start = constant(start, dtype)
        self.layers = nn.ParameterList(constant(weight, dtype) for layer in layers for weight in layer)

    def forward(self, x_a: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """One half of the channels (B, C/2, G) and the condition (B, N, G) -> shift b and log s, (B, C/2, G) each."""
        inputs = weights.layer_inputs(self.start, x_a.to(self.start.dtype), condition)
        return weights.split_outputs(gated_layers(inputs, self.dilations, group(list(self.layers))), x_a.dtype)


class StoredInverse(MatrixProduct):
    """The inverse of a plain 1x1 convolution, computed once, at least in float32."""

    def __init__(self, convinv: Invertible1x1Conv) -> None:
        nn.Module.__init__(self)
        weight = at_least_float32(convinv.conv.weight.detach()[:, :, 0])
        self.weight = constant(torch.linalg.inv(weight), weight.dtype)

    def inverse(self, x: Tensor) -> Tensor:
        """(B, C, G) -> W^-1 x (B, C, G)."""
        return self.mix(self.weight.to(x.dtype), x)


def constant(weight: Tensor, dtype: torch.dtype) -> nn.Parameter:
    """Copy a weight into a parameter that is not trained."""
    return nn.Parameter(weight.detach().to(dtype, copy=True), requires_grad=False)
