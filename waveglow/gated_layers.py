"""WN's dilated gated layers with channels innermost and a backward written by hand: what autograd would do, with less traffic.

Channels innermost make every 1x1 convolution a plain matrix product, and let the condition's product be added to the dilated
convolution's output as it is made. Backward keeps of each layer its input and its gate. A weight's gradient is one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from common.sound.recurrence import compute_dtype, tanh_

BLOCK = 4096  # groups whose gates a CPU computes while they are in its cache
# B batch, G groups, R rows (some of B x G), C channels of WN, I those that a layer hears, S of a skip, k kernel size
# N channels of the condition, P groups that a row of it is for


class Layer(NamedTuple):
    """Weights: dilated (2C, k, I), condition (P * 2C, N), the sum of both biases (2C,), res_skip (C + S or S, C), its bias."""

    dilated: Tensor
    condition: Tensor
    bias: Tensor
    res_skip: Tensor
    res_skip_bias: Tensor

    def groups(self) -> int:
        """P, for how many groups each row of the condition is: 1, or with the upsampling in it as many as a frame has."""
        return len(self.condition) // len(self.bias)


class Kept(NamedTuple):
    """What backward needs of a layer: its input (B, G, I), and tanh and sigmoid of its gate, (B, G, 2C) side by side."""

    heard: Tensor
    gate: Tensor


class Inputs(NamedTuple):
    """What the first layer hears (B, G, I), what it adds its residual to (B, G, C), and the condition of all (B, G, N)."""

    heard: Tensor
    x: Tensor
    condition: Tensor


def gated_layers(inputs: Inputs, dilations: Sequence[int], weights: Sequence[Tensor]) -> Tensor:
    """The layers' weights in Layer's order -> the sum of their skip outputs (B, G, S).

    Computes in autocast's precision, with gradients where they are wanted.
    """
    dtype = compute_dtype(inputs.x)
    tensors = (*(tensor.contiguous() for tensor in inputs), *weights)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return GatedLayers.apply(dilations, dtype, *tensors)
    heard, x, condition, *weights = (tensor.to(dtype) for tensor in tensors)
    with torch.autocast(x.device.type, enabled=False):
        return run_layers(Inputs(heard, x, condition), _layers(weights), dilations)


def run_layers(
    inputs: Inputs, layers: Sequence[Layer], dilations: Sequence[int], kept: list[Kept] | None = None
) -> Tensor:
    """The sum of all layers' skip outputs (B, G, S), at least float32.

    Layers composed with the upsampling (waveglow/composition.py) make P groups of each window of frames, (B, G / P, N).
    """
    n_skip = len(layers[-1].res_skip)  # the last layer has no residual
    heard, x, condition = inputs
    condition = condition.flatten(0, 1)
    skips = torch.zeros(*x.shape[:2], n_skip, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    for layer, dilation in zip(layers, dilations, strict=True):
        groups = layer.groups()
        block = max(BLOCK // groups if x.device.type == "cpu" else len(condition), 1)
        gate = convolve(heard, layer.dilated, layer.bias, dilation)
        deeper = None if layer is layers[-1] else torch.empty_like(x)
        for start in range(0, len(condition), block):
            rows = slice(start * groups, (start + block) * groups)
            res_skip = _open(gate.flatten(0, 1)[rows], condition[start : start + block], layer)
            skips.flatten(0, 1)[rows] += res_skip[:, -n_skip:]
            if deeper is not None:
                torch.add(x.flatten(0, 1)[rows], res_skip[:, :-n_skip], out=deeper.flatten(0, 1)[rows])
        if kept is not None:
            kept.append(Kept(heard, gate))
        if deeper is not None:
            heard = x = deeper
    return skips


def _open(gate: Tensor, condition: Tensor, layer: Layer) -> Tensor:
    """gate (R, 2C) in place from the convolution to tanh and sigmoid, condition (R / P, N) -> residual and skip (R, C + S or S)."""
    gate.view(len(condition), -1).addmm_(condition, layer.condition.t())
    signal, opening = gate.chunk(2, dim=1)
    return F.linear(tanh_(signal) * opening.sigmoid_(), layer.res_skip, layer.res_skip_bias)


def convolve(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """x (B, G, I), weight (O, k, I) -> a same-length convolution (B, G, O), contiguous. PyTorch keeps this layout in 2-d only."""
    image, kernel = (
        x.transpose(1, 2)[:, :, None],
        weight.transpose(1, 2)[:, :, None],
    )  # views in memory format channels_last
    made = F.conv2d(image, kernel, bias, padding=(0, _padding(weight, dilation)), dilation=(1, dilation))
    return made[:, :, 0].transpose(1, 2).contiguous()  # a view as well, unless a backend chose another layout


def _padding(weight: Tensor, dilation: int) -> int:
    return dilation * (weight.shape[1] - 1) // 2


class GatedLayers(torch.autograd.Function):
    """run_layers with gradients, in autocast's precision; weights are those of all layers, in Layer's order."""

    @staticmethod
    def forward(ctx: Any, dilations: Sequence[int], dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        kept: list[Kept] = []
        heard, x, condition, *weights = (tensor.to(dtype) for tensor in tensors)
        with torch.autocast(x.device.type, enabled=False):
            skips = run_layers(Inputs(heard, x, condition), _layers(weights), dilations, kept)
        ctx.dilations, ctx.dtypes = dilations, [tensor.dtype for tensor in tensors]
        ctx.save_for_backward(condition, *weights, *(tensor for layer in kept for tensor in layer))
        return skips

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_skips: Tensor) -> tuple[Tensor | None, ...]:
        n = len(ctx.dilations)
        condition, *rest = ctx.saved_tensors
        layers = _layers(rest[: 5 * n])
        kept = [Kept(*rest[i : i + 2]) for i in range(5 * n, 7 * n, 2)]
        d_skips = d_skips.to(condition.dtype)
        d_condition = torch.zeros_like(condition)
        d_x: Tensor | None = None
        d_layers: list[Layer] = []
        for layer, dilation, (heard, gate) in zip(layers[::-1], ctx.dilations[::-1], kept[::-1], strict=True):
            d_out = d_skips if d_x is None else torch.cat((d_x, d_skips), dim=2)
            signal, opening = gate.chunk(2, dim=2)
            d_gated, gated = d_out @ layer.res_skip, signal * opening
            d_gate = torch.empty_like(gate)
            d_signal, d_opening = d_gate.chunk(2, dim=2)
            torch.mul(d_gated, opening * (1 - signal.square()), out=d_signal)
            torch.mul(d_gated, gated * (1 - opening), out=d_opening)
            d_condition.flatten(0, 1).addmm_(d_gate.flatten(0, 1), layer.condition)
            d_layers.append(_weight_gradients(layer, d_out, gated, d_gate, condition, heard, dilation))
            if layer is not layers[0]:
                d_x = _convolve_back(d_gate, layer.dilated, dilation, d_x)
        d_heard = _convolve_back(d_gate, layer.dilated, dilation, None)
        gradients = [d_heard, d_x, d_condition, *(tensor for layer in d_layers[::-1] for tensor in layer)]
        casted = (None if g is None else g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True))
        return None, None, *casted


def _layers(weights: Sequence[Tensor]) -> list[Layer]:
    return [Layer(*weights[i : i + 5]) for i in range(0, len(weights), 5)]


def _convolve_back(d_made: Tensor, weight: Tensor, dilation: int, d_x: Tensor | None) -> Tensor:
    """The gradient (B, G, I) of convolve's x from that of its result (B, G, O), added to d_x where there is one."""
    spread = (d_made @ weight.flatten(1)).unflatten(2, weight.shape[1:])  # (B, G, k, I): of what each group saw
    size, groups = weight.shape[1], d_made.shape[1]
    d_x = spread[:, :, size // 2] + d_x if d_x is not None else spread[:, :, size // 2].clone()
    for i in range(size):
        shift = (i - size // 2) * dilation
        if 0 < abs(shift) < groups:
            seen, seeing = slice(max(shift, 0), groups + min(shift, 0)), slice(max(-shift, 0), groups - max(shift, 0))
            d_x[:, seen] += spread[:, seeing, i]
    return d_x


def _weight_gradients(
    layer: Layer, d_out: Tensor, gated: Tensor, d_gate: Tensor, condition: Tensor, heard: Tensor, dilation: int
) -> Layer:
    """Gradients of a layer's weights, one product each, and of its biases."""
    size, padding = layer.dilated.shape[1], _padding(layer.dilated, dilation)
    padded = F.pad(heard, (0, 0, padding, padding))
    seen = torch.cat([padded[:, i * dilation : i * dilation + heard.shape[1]] for i in range(size)], dim=2)
    flat_gate, flat_out = d_gate.flatten(0, 1).t(), d_out.flatten(0, 1)
    return Layer(
        (flat_gate @ seen.flatten(0, 1)).view_as(layer.dilated),
        flat_gate @ condition.flatten(0, 1),
        d_gate.sum((0, 1)),
        flat_out.t() @ gated.flatten(0, 1),
        d_out.sum((0, 1)),
    )
