"""Conversion of older layouts of WaveGlow's weights to today's: separate cond_layers, weight_g and weight_v, float32."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from common.errors import DataError

_FUSED_CONDITION = re.compile(r"(WN\.\d+)\.cond_layer\.(.+)")
_FOLDED_WEIGHT = re.compile(r"(WN\.\d+\.(?:start|(?:in|res_skip|cond)_layers\.\d+))\.weight")
_PARAMETRIZED = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}


def upgrade_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert WaveGlow's state dict to today's layout and float32, from any mixture of these layouts:

    - one cond_layer for each WN, with the rows of all cond_layers one after the other;
    - weight normalisation folded into `weight`;
    - weight normalisation under the names of torch.nn.utils.parametrizations.

    Raises:
        DataError: a fused cond_layer whose rows do not divide by the number of layers.
    """
    upgraded: dict[str, Tensor] = {}
    for name, tensor in state_dict.items():
        for old, new in _PARAMETRIZED.items():
            name = name.replace(old, new)
        upgraded.update(_split_condition(name, tensor.float(), state_dict))
    return {name: tensor for old, value in upgraded.items() for name, tensor in _unfold(old, value).items()}


def _split_condition(name: str, tensor: Tensor, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """WN.k.cond_layer.* as WN.k.cond_layers.i.*, any other tensor as it is."""
    match = _FUSED_CONDITION.fullmatch(name)
    if not match:
        return {name: tensor}
    flow, parameter = match.groups()
    n_layers = len({key.split(".")[3] for key in state_dict if key.startswith(f"{flow}.in_layers.")})
    if n_layers == 0 or len(tensor) % n_layers:
        raise DataError(f"{name}: {len(tensor)} rows, expected a multiple of the {n_layers} {flow}.in_layers")
    parts = tensor.chunk(n_layers)
    return {f"{flow}.cond_layers.{i}.{parameter}": part.clone() for i, part in enumerate(parts)}


def _unfold(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """A folded `weight` as weight_g and weight_v, any other tensor as it is."""
    match = _FOLDED_WEIGHT.fullmatch(name)
    if not match:
        return {name: tensor}
    norm = tensor.norm(dim=(1, 2), keepdim=True)
    direction = tensor.masked_fill(norm == 0, 1.0)  # zeros have no direction, and with g = 0 any will do
    return {f"{match[1]}.weight_g": norm, f"{match[1]}.weight_v": direction}
