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

from common.kernels.recurrence import compute_dtype, sigmoid_backward, tanh, tanh_backward
from waveglow.convolution import Convolution, convolution

BLOCK = 4096  # groups whose gates a CPU computes while they are in its cache
# B batch, G groups, R rows (some of B x G), C channels of WN, I those that a layer hears, S of a skip, k kernel size
# N channels of the condition, P groups that a row of it is for


class Layer(NamedTuple):
    """Weights: dilated (2C, I, k), condition (P * 2C, N), the sum of both biases (2C,), res_skip (C + S or S, C), its bias."""

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
    tensors = [*(tensor.contiguous() for tensor in inputs), *weights]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return GatedLayers.apply(dilations, dtype, *tensors)
    with torch.autocast(inputs.x.device.type, enabled=False):
        return run_layers(*_arranged(dilations, dtype, tensors))


def run_layers(
    inputs: Inputs, layers: Sequence[Layer], ways: Sequence[Convolution], kept: list[Kept] | None = None
) -> Tensor:
    """The sum of all layers' skip outputs (B, G, S), at least float32; dilated weights are arranged for their way to convolve.

    Layers composed with the upsampling (waveglow/composition.py) make P groups of each window of frames, (B, G / P, N).
    """
    n_skip = len(layers[-1].res_skip)  # the last layer has no residual
    heard, x, condition = inputs
    condition = condition.flatten(0, 1)
    skips = torch.zeros(*x.shape[:2], n_skip, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    for layer, way in zip(layers, ways, strict=True):
        groups = layer.groups()
        block = max(BLOCK // groups if x.device.type == "cpu" else len(condition), 1)
        gate = way.forward(heard, layer.dilated, layer.bias)
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


def _arranged(
    dilations: Sequence[int], dtype: torch.dtype, tensors: Sequence[Tensor]
) -> tuple[Inputs, list[Layer], list[Convolution]]:
    """Inputs and the weights of all layers -> in that dtype, and how each layer convolves."""
    inputs = Inputs(*(tensor.to(dtype) for tensor in tensors[:3]))
    layers: list[Layer] = []
    ways: list[Convolution] = []
    for layer, dilation in zip(_layers(tensors[3:]), dilations, strict=True):
        way = convolution(inputs.x, layer.dilated, dilation)
        others = (tensor.to(dtype) for tensor in layer[1:])
        layers.append(Layer(way.arranged(layer.dilated, dtype), *others))
        ways.append(way)
    return inputs, layers, ways


def _open(gate: Tensor, condition: Tensor, layer: Layer) -> Tensor:
    """gate (R, 2C) in place from the convolution to tanh and sigmoid, condition (R / P, N) -> residual and skip (R, C + S or S)."""
    gate.view(len(condition), -1).addmm_(condition, layer.condition.t())
    signal, opening = gate.chunk(2, dim=1)
    return F.linear(tanh(signal, out=signal) * opening.sigmoid_(), layer.res_skip, layer.res_skip_bias)


def _gate_gradient(gate: Tensor, d_gated: Tensor) -> Tensor:
    """The gradient of the gate before tanh and sigmoid (B, G, 2C), from that of the gated signal (B, G, C)."""
    signal, opening = gate.chunk(2, dim=2)
    d_gate = torch.empty_like(gate)
    d_signal, d_opening = d_gate.chunk(2, dim=2)
    # Fused: written out, they take a CPU several times as long.
    torch.mul(d_gated, opening, out=d_signal)
    tanh_backward.grad_input(d_signal, signal, grad_input=d_signal)
    torch.mul(d_gated, signal, out=d_opening)
    sigmoid_backward.grad_input(d_opening, opening, grad_input=d_opening)
    return d_gate


class GatedLayers(torch.autograd.Function):
    """run_layers with gradients, in autocast's precision; weights are those of all layers, in Layer's order."""

    @staticmethod
    def forward(ctx: Any, dilations: Sequence[int], dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        kept: list[Kept] = []
        with torch.autocast(tensors[0].device.type, enabled=False):
            inputs, layers, ctx.ways = _arranged(dilations, dtype, tensors)
            skips = run_layers(inputs, layers, ctx.ways, kept)
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        ctx.save_for_backward(inputs.condition, *(tensor for made in (*layers, *kept) for tensor in made))
        return skips

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_skips: Tensor) -> tuple[Tensor | None, ...]:
        n = len(ctx.ways)
        condition, *rest = ctx.saved_tensors
        layers = _layers(rest[: 5 * n])
        kept = [Kept(*rest[i : i + 2]) for i in range(5 * n, 7 * n, 2)]
        d_skips = d_skips.to(condition.dtype)
        d_condition = torch.zeros_like(condition)
        d_x: Tensor | None = None
        d_layers: list[Layer] = []
        for layer, way, (heard, gate) in zip(layers[::-1], ctx.ways[::-1], kept[::-1], strict=True):
            d_out = d_skips if d_x is None else torch.cat((d_x, d_skips), dim=2)
            d_gate = _gate_gradient(gate, d_out @ layer.res_skip)
            d_condition.flatten(0, 1).addmm_(d_gate.flatten(0, 1), layer.condition)
            d_heard, d_dilated = way.backward(d_gate, heard, layer.dilated)
            d_layers.append(Layer(d_dilated, *_weight_gradients(d_out, gate, d_gate, condition)))
            if layer is not layers[0]:
                d_x = d_heard if d_x is None else d_x + d_heard
        gradients = [d_heard, d_x, d_condition, *(tensor for layer in d_layers[::-1] for tensor in layer)]
        casted = (None if g is None else g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True))
        return None, None, *casted


def _layers(weights: Sequence[Tensor]) -> list[Layer]:
    return [Layer(*weights[i : i + 5]) for i in range(0, len(weights), 5)]


def _weight_gradients(d_out: Tensor, gate: Tensor, d_gate: Tensor, condition: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a layer's other weights, one product each, and of its biases."""
    flat_gate, flat_out = d_gate.flatten(0, 1), d_out.flatten(0, 1)
    signal, opening = gate.flatten(0, 1).chunk(2, dim=1)
    return (
        flat_gate.t() @ condition.flatten(0, 1),
        flat_gate.sum(0),
        flat_out.t() @ (signal * opening),
        flat_out.sum(0),
    )
