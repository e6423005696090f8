"""The row "int8": prepared inference with WN's products in 8 bits (common/kernels/int8.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import precision
from common.fast import Request
from common.kernels.int8 import LARGEST, Convolution, Levels, Product, can_multiply, even_parts, quantise, write_levels
from waveglow.fast.gated_layers import GateInputs, Layer, dilations_of, layer_inputs, merge_weights, split_outputs
from waveglow.fast.prepared import UpsampleProduct, constant, infer_only
from waveglow.model import WN, WaveGlow

# B batch, G groups, R rows (some of G), C channels of WN, I input channels of a layer, S channels of a skip, k kernel size
# N channels of the condition

BLOCK = 8192  # groups whose gates are computed at once: fewer are slower, more need more memory


def can_convert(model: WaveGlow) -> bool:
    """True for a float32 model on a CPU with 8-bit products."""
    return model.upsample.weight.dtype == torch.float32 and can_multiply(model.upsample.weight.device)


def convert_to_int8(model: WaveGlow, request: Request) -> WaveGlow:
    """Return a model for inference that multiplies in 8 bits and computes the rest of WN in half precision if that is faster."""
    dtype = precision.half_dtype(model.upsample.weight.device, True) or torch.float32
    return infer_only(
        model, QuantisedUpsample(model.upsample, torch.float32), [Int8WN(cast(WN, wn), dtype) for wn in model.WN]
    )


class Int8Condition(NamedTuple):
    """The condition of all flows in levels, uint8 (B, G, N), and the step of each item, NaN where it is not finite."""

    levels: Tensor
    steps: list[float]


class QuantisedUpsample(UpsampleProduct):
    """Upsampling whose output is quantised once for all flows, each item by its own largest number."""

    def forward(self, mels: Tensor, n_groups: int) -> Int8Condition:  # type: ignore[override]
        """Mels (B, M, T) -> the condition in levels."""
        items = [quantise(item) for item in super().forward(mels, n_groups).transpose(1, 2)]
        return Int8Condition(torch.stack([item.levels for item in items]), [item.step for item in items])


class LayerInput(NamedTuple):
    """A layer's input with zeros around it, (G + 2 padding, I), and the step of its levels, NaN where it is not finite."""

    padded: Tensor
    step: float


class Int8Layer:
    """One layer's products; weights are rounded by row.

    As tanh(a) is 2 sigmoid(2a) - 1, a gate is one sigmoid: the weights of its signal and of its output are doubled.
    """

    def __init__(self, layer: Layer, dilation: int, n_skip: int) -> None:
        channels, self.size = layer.res_skip.shape[1], layer.dilated.shape[2]
        self.dilation, self.padding = dilation, dilation * (self.size - 1) // 2
        factors = torch.ones(2 * channels, 1, dtype=layer.bias.dtype)
        factors[:channels] = 2
        self.set_dilated(factors[:, :, None] * layer.dilated.transpose(1, 2), factors[:, 0] * layer.bias)
        self.condition = Product(factors * layer.condition, torch.zeros(2 * channels))
        self.skip = Product(2 * layer.res_skip[-n_skip:], layer.res_skip_bias[-n_skip:])
        residual = layer.res_skip[:-n_skip]
        self.residual = Product(2 * residual, layer.res_skip_bias[:-n_skip]) if len(residual) else None

    def set_dilated(self, weight: Tensor, bias: Tensor) -> None:
        """Store the dilated weight (2C, k, I) and bias (2C,)."""
        self.dilated = Convolution(weight, bias, self.dilation)

    def layer_input(self, first: Tensor, x: Tensor) -> LayerInput:
        """Quantise the layer's input, which is x (G, C); the first layer's is `first` (G, I)."""
        return LayerInput(*quantise(x, padding=self.padding))

    def convolve(self, rows: Tensor, step: float, dtype: torch.dtype) -> Tensor:
        """rows (R + 2 padding, I) in levels of this step -> the dilated convolution (R, 2C)."""
        return self.dilated(Levels(rows, step), dtype)

    def __call__(self, inputs: LayerInput, condition: Levels, start: int, x: Tensor, skips: Tensor) -> None:
        """Add the layer's residual to x (R, C), unless it is the last, and its skip to skips (R, S), in place.

        The rows R, with the condition (R, N), are those of the input from start on.
        """
        gate = self.convolve(inputs.padded[start : start + len(x) + 2 * self.padding], inputs.step, x.dtype)
        self.condition.add_to(gate, condition)
        half = _half_gated(gate)
        self.skip.add_to(skips, half)
        if self.residual is not None:
            self.residual.add_to(x, half)


class Int8FirstLayer(Int8Layer):
    """The first layer; its dilated convolution has too few input channels to gain from 8 bits."""

    def set_dilated(self, weight: Tensor, bias: Tensor) -> None:
        """Store the dilated weight (2C, k, I) and bias (2C,) as they are."""
        self.weight, self.bias = weight.flatten(1), bias

    def layer_input(self, first: Tensor, x: Tensor) -> LayerInput:
        """Pad the first input (G, I); its step is 1, or NaN where it is not finite."""
        padded = F.pad(first, (0, 0, self.padding, self.padding))
        return LayerInput(padded, 1.0 if first.isfinite().all() else torch.nan)

    def convolve(self, rows: Tensor, step: float, dtype: torch.dtype) -> Tensor:
        """rows (R + 2 padding, I) -> the dilated convolution (R, 2C)."""
        n_rows = len(rows) - 2 * self.padding
        taps = [rows[i * self.dilation :][:n_rows] for i in range(self.size)]
        return F.linear(torch.cat(taps, dim=1), self.weight.to(dtype), self.bias.to(dtype))


class Int8WN(nn.Module):
    """A plain WN's layers with weights folded, merged and rounded once; `dtype` is that of x and the gates."""

    @torch.no_grad()
    def __init__(self, wn: WN, dtype: torch.dtype) -> None:
        super().__init__()
        start, layers = merge_weights(wn)
        self.start, self.n_skip = constant(start, dtype), len(layers[-1].res_skip)
        kinds = [Int8FirstLayer] + [Int8Layer] * (len(layers) - 1)
        steps = zip(kinds, layers, dilations_of(wn), strict=True)
        self.layers = [kind(layer, dilation, self.n_skip) for kind, layer, dilation in steps]

    def forward(self, x_a: Tensor, condition: Int8Condition) -> tuple[Tensor, Tensor]:
        """One half of the channels (B, C/2, G) and the condition in levels -> shift b and log s, (B, C/2, G) each.

        A layer's input is rounded by 1/254 of its largest number in the item: other items of the batch do not change it.
        """
        inputs = layer_inputs(self.start, x_a.to(self.start.dtype), condition.levels.transpose(1, 2))
        skips = self._run_layers(inputs, condition.steps)
        return split_outputs(skips, x_a.dtype)

    def _run_layers(self, inputs: GateInputs, steps: Sequence[float]) -> Tensor:
        """Inputs whose condition (B, G, N) is in levels of these steps -> the sum of all skip outputs (B, G, S), in float32."""
        x = inputs.x.clone(memory_format=torch.contiguous_format)  # channels innermost in memory too
        items = zip(inputs.first, x, map(Levels, inputs.condition, steps), strict=True)
        return torch.stack([self._run_item(*item) for item in items])

    def _run_item(self, first: Tensor, x: Tensor, condition: Levels) -> Tensor:
        """The first layer's input (G, I), x (G, C), which it overwrites, and the condition (G, N) -> the sum of skips (G, S)."""
        skips = torch.zeros(len(x), self.n_skip)
        n_blocks = math.ceil(len(x) / BLOCK)
        for layer in self.layers:
            inputs, start = layer.layer_input(first, x), 0
            if math.isnan(inputs.step + condition.step):  # the levels themselves are always finite
                return torch.full_like(skips, torch.nan)
            for levels in condition.levels.tensor_split(n_blocks):  # even: a short block would be slow
                rows = slice(start, start + len(levels))
                layer(inputs, Levels(levels, condition.step), start, x[rows], skips[rows])
                start = rows.stop
        return skips


def _half_gated(gate: Tensor) -> Levels:
    """Gates (R, 2C) before their sigmoid, those of the signal doubled -> half of the gated signal (R, C), within 0.5."""
    half = Levels(torch.empty(len(gate), gate.shape[1] // 2, dtype=torch.uint8), 0.5 / LARGEST)
    parts = even_parts(gate)
    scratch = torch.empty(parts[0].shape)
    for part, levels in zip(parts, even_parts(half.levels), strict=True):
        # Each step in bfloat16 would take longer, and so would a new scratch for each part.
        signal, opening = scratch[: len(part)].copy_(part).sigmoid_().chunk(2, dim=1)
        write_levels(signal.sub_(0.5), half.step, levels, signal, times=opening)
    return half
