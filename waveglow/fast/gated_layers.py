"""WN's dilated gated layers with channels innermost and a hand-written backward: autograd's results with less memory traffic.

Channels innermost turn every 1x1 convolution into a plain matrix product and let the condition's product be added in place to the
output of the dilated convolution. The backward needs only the input and the gate of each layer. A weight's gradient is one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from common.kernels.private_ops import weight_norm
from common.kernels.recurrence import compute_dtype, sigmoid_backward, tanh, tanh_backward
from waveglow.fast.convolution import Convolution, convolution
from waveglow.model import WN, WeightNormConv1d

# B batch, G groups, R rows (some of B x G), C channels of WN, I input channels of a layer, S channels of a skip, k kernel size
# N channels of the condition, A channels of a flow

BLOCK = 4096  # groups whose gates are computed while they are in the CPU's cache


class Layer(NamedTuple):
    """Weights: dilated (2C, I, k), condition (2C, N), the sum of both biases (2C,), res_skip (C + S or S, C), its bias."""

    dilated: Tensor
    condition: Tensor
    bias: Tensor
    res_skip: Tensor
    res_skip_bias: Tensor


class SavedTensors(NamedTuple):
    """A layer's tensors for backward: its input (B, G, I), and tanh and sigmoid of its gate, (B, G, 2C) side by side."""

    inputs: Tensor
    gate: Tensor


class GateInputs(NamedTuple):
    """The first layer's input (B, G, I), the x that it adds its residual to (B, G, C), and the condition of all (B, G, N)."""

    first: Tensor
    x: Tensor
    condition: Tensor


def gated_layers(inputs: GateInputs, dilations: Sequence[int], layers: Sequence[Layer]) -> Tensor:
    """Run all layers and return the sum of their skip outputs (B, G, S), in autocast's precision, with gradients."""
    dtype = compute_dtype(inputs.x)
    tensors = [*(tensor.contiguous() for tensor in inputs), *(weight for layer in layers for weight in layer)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return GatedLayers.apply(dilations, dtype, *tensors)
    with torch.autocast(inputs.x.device.type, enabled=False):
        return run_layers(*_arrange(dilations, dtype, tensors, forward_alone=True))


def run_layers(
    inputs: GateInputs, layers: Sequence[Layer], ways: Sequence[Convolution], saved: list[SavedTensors] | None = None
) -> Tensor:
    """Sum all layers' skip outputs (B, G, S), at least in float32; dilated weights are arranged for their convolution."""
    n_skip = len(layers[-1].res_skip)  # the last layer has no residual
    layer_input, x, condition = inputs
    condition = condition.flatten(0, 1)
    block = BLOCK if x.device.type == "cpu" else max(len(condition), 1)
    skips = torch.zeros(*x.shape[:2], n_skip, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    for layer, way in zip(layers, ways, strict=True):
        gate = way.forward(layer_input, layer.dilated, layer.bias)
        next_x = None if layer is layers[-1] else torch.empty_like(x)
        for start in range(0, len(condition), block):
            rows = slice(start, start + block)
            res_skip = _res_skip(gate.flatten(0, 1)[rows], condition[rows], layer)
            skips.flatten(0, 1)[rows] += res_skip[:, -n_skip:]
            if next_x is not None:
                torch.add(x.flatten(0, 1)[rows], res_skip[:, :-n_skip], out=next_x.flatten(0, 1)[rows])
        if saved is not None:
            saved.append(SavedTensors(layer_input, gate))
        if next_x is not None:
            layer_input = x = next_x
    return skips


def _arrange(
    dilations: Sequence[int], dtype: torch.dtype, tensors: Sequence[Tensor], forward_alone: bool = False
) -> tuple[GateInputs, list[Layer], list[Convolution]]:
    """Cast inputs and the weights of all layers to that dtype, and choose how each layer convolves."""
    inputs = GateInputs(*(tensor.to(dtype) for tensor in tensors[:3]))
    layers: list[Layer] = []
    ways: list[Convolution] = []
    for layer, dilation in zip(group(tensors[3:]), dilations, strict=True):
        way = convolution(inputs.x, layer.dilated, dilation, forward_alone)
        others = (tensor.to(dtype) for tensor in layer[1:])
        layers.append(Layer(way.arrange(layer.dilated, dtype), *others))
        ways.append(way)
    return inputs, layers, ways


def _res_skip(gate: Tensor, condition: Tensor, layer: Layer) -> Tensor:
    """gate (R, 2C), in place from the convolution to tanh and sigmoid, condition (R, N) -> residual and skip (R, C + S or S)."""
    gate.addmm_(condition, layer.condition.t())
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
    """run_layers with gradients; the tensors are Inputs and the weights of all layers, in Layer's order."""

    @staticmethod
    def forward(ctx: Any, dilations: Sequence[int], dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        saved: list[SavedTensors] = []
        with torch.autocast(tensors[0].device.type, enabled=False):
            inputs, layers, ctx.ways = _arrange(dilations, dtype, tensors)
            skips = run_layers(inputs, layers, ctx.ways, saved)
        ctx.dtypes = [tensor.dtype for tensor in tensors]
        ctx.save_for_backward(inputs.condition, *(tensor for group in (*layers, *saved) for tensor in group))
        return skips

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_skips: Tensor) -> tuple[Tensor | None, ...]:
        n = len(ctx.ways)
        condition, *rest = ctx.saved_tensors
        layers = group(rest[: 5 * n])
        saved = [SavedTensors(*rest[i : i + 2]) for i in range(5 * n, 7 * n, 2)]
        d_skips = d_skips.to(condition.dtype)
        d_condition = torch.zeros_like(condition)
        d_x: Tensor | None = None
        d_layers: list[Layer] = []
        for layer, way, (inputs, gate) in zip(layers[::-1], ctx.ways[::-1], saved[::-1], strict=True):
            d_res_skip = d_skips if d_x is None else torch.cat((d_x, d_skips), dim=2)
            d_gate = _gate_gradient(gate, d_res_skip @ layer.res_skip)
            d_condition.flatten(0, 1).addmm_(d_gate.flatten(0, 1), layer.condition)
            d_inputs, d_dilated = way.backward(d_gate, inputs, layer.dilated)
            d_layers.append(Layer(d_dilated, *_weight_gradients(d_res_skip, gate, d_gate, condition)))
            if layer is not layers[0]:
                d_x = d_inputs if d_x is None else d_x + d_inputs
        gradients = [d_inputs, d_x, d_condition, *(tensor for layer in d_layers[::-1] for tensor in layer)]
        casted = (None if g is None else g.to(dtype) for g, dtype in zip(gradients, ctx.dtypes, strict=True))
        return None, None, *casted


def group(weights: Sequence[Tensor]) -> list[Layer]:
    return [Layer(*weights[i : i + 5]) for i in range(0, len(weights), 5)]


def _weight_gradients(d_res_skip: Tensor, gate: Tensor, d_gate: Tensor, condition: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a layer's other weights, one product each, and of its biases."""
    flat_gate, flat_res_skip = d_gate.flatten(0, 1), d_res_skip.flatten(0, 1)
    signal, opening = gate.flatten(0, 1).chunk(2, dim=1)
    return (
        flat_gate.t() @ condition.flatten(0, 1),
        flat_gate.sum(0),
        flat_res_skip.t() @ (signal * opening),
        flat_res_skip.sum(0),
    )


# --- the weights of a plain WN: weight norm folded, `start` and `end` merged into the layers ---

# There is no activation between `start` and the first layer, nor between a skip and `end`. Merging saves products, as `start` has
# far fewer inputs than a layer, and `end` far fewer outputs than a skip.


class GateWeights(NamedTuple):
    """`start` with its bias as the last column (C, A/2 + 1), and the layers'; gradients flow back to the plain parameters."""

    start: Tensor
    layers: list[Layer]


def merge_weights(wn: WN) -> GateWeights:
    """Fold and merge the weights of a plain WN."""
    start = torch.cat(_fold(wn.start, as_matrix=True), dim=1)
    end, end_bias = _fold(wn.end, as_matrix=True)
    layers: list[Layer] = []
    for in_layer, cond_layer, res_skip_layer in zip(wn.in_layers, wn.cond_layers, wn.res_skip_layers, strict=True):
        (dilated, bias), (condition, condition_bias) = _fold(in_layer), _fold(cond_layer, as_matrix=True)
        if not layers:
            dilated = _with_start(dilated, start)
        res_skip, res_skip_bias = _with_end(*_fold(res_skip_layer, as_matrix=True), end)
        layers.append(Layer(dilated, condition, bias + condition_bias[:, 0], res_skip, res_skip_bias[:, 0]))
    total = layers[-1].res_skip_bias + end_bias[:, 0]  # once, in the last skip
    return GateWeights(start, [*layers[:-1], layers[-1]._replace(res_skip_bias=total)])


def layer_inputs(start: Tensor, x_a: Tensor, condition: Tensor) -> GateInputs:
    """The layers' inputs from one half of the channels (B, A/2, G) and the condition (B, N, G)."""
    one = torch.ones_like(x_a[:, :1])  # times the bias of `start`
    first = torch.cat([x_a, one], dim=1).transpose(1, 2)
    x = (first.flatten(0, 1) @ start.t()).unflatten(0, first.shape[:2])
    return GateInputs(first, x, condition.transpose(1, 2))


def split_outputs(skips: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The layers' output (B, G, A) -> b and log s (B, A/2, G)."""
    b, log_s = skips.transpose(1, 2).to(dtype).chunk(2, dim=1)
    return b, log_s


def dilations_of(wn: WN) -> list[int]:
    """The dilation of each layer."""
    return [2**i for i in range(len(wn.in_layers))]


def _fold(conv: nn.Module, as_matrix: bool = False) -> tuple[Tensor, Tensor]:
    """The weight (out, in, kernel) and bias (out,) of a convolution; as matrices, of kernel 1, (out, in) and (out, 1)."""
    if isinstance(conv, WeightNormConv1d):
        weight = weight_norm(conv.weight_v, conv.weight_g)
    else:
        assert isinstance(conv, nn.Conv1d)
        weight = conv.weight
    assert conv.bias is not None
    return (weight.squeeze(2), conv.bias[:, None]) if as_matrix else (weight, conv.bias)


def _with_start(dilated: Tensor, start: Tensor) -> Tensor:
    """Multiply the first dilated weight (2C, C, k) by `start`: (2C, A/2 + 1, k)."""
    with torch.autocast(dilated.device.type, enabled=False):
        # Flat, since matmul with more dimensions sums in another order when gradients are needed.
        taps = dilated.transpose(1, 2)
        return (taps.flatten(0, 1) @ start).unflatten(0, taps.shape[:2]).transpose(1, 2)


def _with_end(res_skip: Tensor, bias: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply `end` by the skip of a weight (2C or C, C) and bias: (C + A or A, C), the residual first, if there is one."""
    sizes = len(res_skip) - end.shape[1], end.shape[1]
    # Split, since each gradient of a slice would be as large as the whole.
    (residual, skip), (residual_bias, skip_bias) = res_skip.split(sizes), bias.split(sizes)
    with torch.autocast(res_skip.device.type, enabled=False):
        return torch.cat([residual, end @ skip]), torch.cat([residual_bias, end @ skip_bias])
