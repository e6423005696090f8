"""The weights of a plain WN as gated_layers needs them: weight norm folded, `start` and `end` merged into the layers.

There is no activation between `start` and the first layer, nor between a skip and `end`. Merging saves products, as `start` has far
fewer inputs than a layer, and `end` far fewer outputs than a skip.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from common.kernels.private_ops import weight_norm
from waveglow.fast.gated_layers import Inputs, Layer
from waveglow.model import WN, WeightNormConv1d

# B batch, G groups, C channels of a flow, H channels of WN, N channels of the condition, k kernel size


class Weights(NamedTuple):
    """`start` with its bias as the last column (H, C/2 + 1), and the layers'; gradients flow back to the plain parameters."""

    start: Tensor
    layers: list[Layer]


def merge(wn: WN) -> Weights:
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
    return Weights(start, [*layers[:-1], layers[-1]._replace(res_skip_bias=total)])


def layer_inputs(start: Tensor, x_a: Tensor, condition: Tensor) -> Inputs:
    """The layers' inputs from one half of the channels (B, C/2, G) and the condition (B, N, G)."""
    one = torch.ones_like(x_a[:, :1])  # times the bias of `start`
    first = torch.cat([x_a, one], dim=1).transpose(1, 2)
    x = (first.flatten(0, 1) @ start.t()).unflatten(0, first.shape[:2])
    return Inputs(first, x, condition.transpose(1, 2))


def split_outputs(skips: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The layers' output (B, G, C) -> b and log s (B, C/2, G)."""
    b, log_s = skips.transpose(1, 2).to(dtype).chunk(2, dim=1)
    return b, log_s


def dilations(wn: WN) -> list[int]:
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
    """Multiply the first dilated weight (2H, H, k) by `start`: (2H, C/2 + 1, k)."""
    with torch.autocast(dilated.device.type, enabled=False):
        # Flat, since matmul with more dimensions sums in another order when gradients are needed.
        taps = dilated.transpose(1, 2)
        return (taps.flatten(0, 1) @ start).unflatten(0, taps.shape[:2]).transpose(1, 2)


def _with_end(res_skip: Tensor, bias: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply `end` by the skip of a weight (2H or H, H) and bias: (H + C or C, H), the residual first, if there is one."""
    sizes = len(res_skip) - end.shape[1], end.shape[1]
    # Split, since each gradient of a slice would be as large as the whole.
    (residual, skip), (residual_bias, skip_bias) = res_skip.split(sizes), bias.split(sizes)
    with torch.autocast(res_skip.device.type, enabled=False):
        return torch.cat([residual, end @ skip]), torch.cat([residual_bias, end @ skip_bias])
