"""The rows "prepared" and "half": a copy for inference only, with folded weights in float32 or half precision."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.fast import Request, shallow_copy
from common.layers import at_least_float32
from waveglow.fast.gated_layers import dilations_of, gated_layers, group, layer_inputs, merge_weights, split_outputs
from waveglow.fast.training import MatrixProduct
from waveglow.model import WN, Invertible1x1Conv, Upsample, WaveGlow

# B batch, M mels, T frames, G groups, g samples of a group, C channels of a flow, N channels of the condition
# U channels of upsampled mels, K frames within the kernel's length
# s samples of a part, the longest that divides both a group and a frame, P parts of a frame


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


class UpsampleProduct(nn.Module):
    """A plain Upsample for inference: a frame and the K - 1 before it, times a weight for all samples of the frame.

    oneDNN takes seconds for the first transposed convolution of each length. The product is computed in the plain module's dtype;
    the condition is returned in `dtype`.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, upsample: Upsample, dtype: torch.dtype) -> None:
        super().__init__()
        self.n_group, self.dtype = upsample.n_group, dtype
        assert upsample.bias is not None
        self.size = math.gcd(upsample.hop_length, upsample.n_group)
        kernel, hop_length = upsample.weight.detach(), upsample.hop_length  # (M, U, kernel size)
        self.n_channels, self.n_frames = kernel.shape[1], math.ceil(kernel.shape[2] / hop_length)
        taps = F.pad(kernel, (0, self.n_frames * hop_length - kernel.shape[2])).unflatten(
            2, (self.n_frames, -1, self.size)
        )
        # (P * U * s, K * M): the oldest frame first, which meets the last taps
        weight = taps.flip(2).permute(3, 1, 4, 2, 0).flatten(3).flatten(0, 2)
        bias = upsample.bias.detach().repeat_interleave(self.size).repeat(hop_length // self.size)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, mels: Tensor, n_groups: int) -> Tensor:
        """Mels (B, M, T) -> the condition (B, U * g, G), G at most the whole groups of T frames; channels innermost in memory."""
        mels = mels.to(self.weight.dtype)
        windows = F.pad(mels, (self.n_frames - 1, 0)).unfold(2, self.n_frames, 1).permute(0, 2, 3, 1).flatten(2)
        with torch.autocast("cpu", enabled=False):  # half precision is slower here on a CPU
            upsampled = F.linear(windows, self.weight, self.bias)  # (B, T, P * U * s)
        per_group = self.n_group // self.size
        parts = upsampled.view(len(mels), -1, self.n_channels, self.size)[:, : n_groups * per_group]
        groups = parts.to(self.dtype).unflatten(1, (n_groups, per_group))
        return groups.transpose(2, 3).flatten(2).transpose(1, 2)


class PreparedWN(nn.Module):
    """A plain WN's layers with weights folded and merged once, in `dtype`, without gradients."""

    @torch.no_grad()
    def __init__(self, wn: WN, dtype: torch.dtype) -> None:
        super().__init__()
        start, layers = merge_weights(wn)
        self.dilations = dilations_of(wn)
        self.start = constant(start, dtype)
        self.layers = nn.ParameterList(constant(weight, dtype) for layer in layers for weight in layer)

    def forward(self, x_a: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """One half of the channels (B, C/2, G) and the condition (B, N, G) -> shift b and log s, (B, C/2, G) each."""
        inputs = layer_inputs(self.start, x_a.to(self.start.dtype), condition)
        return split_outputs(gated_layers(inputs, self.dilations, group(list(self.layers))), x_a.dtype)


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
