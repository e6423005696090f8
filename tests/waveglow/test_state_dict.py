import re

import pytest
import torch

from common.errors import DataError
from common.kernels.private_ops import weight_norm
from waveglow.state_dict import upgrade_state_dict


def fold(weights):
    """weight = g * v / |v|, by the formula."""
    result = {}
    for name, tensor in weights.items():
        if name.endswith("weight_v"):
            norm = tensor.square().sum((1, 2), keepdim=True).sqrt()
            result[name[:-2]] = weights[name[:-1] + "g"] * tensor / norm
        elif not name.endswith("weight_g"):
            result[name] = tensor
    return result


def fuse(weights):
    """The three cond_layers of each WN as one, row under row."""
    result = {name: tensor for name, tensor in weights.items() if ".cond_layers." not in name}
    for name in weights:
        if ".cond_layers.0." in name:
            rows = [weights[name.replace("layers.0", f"layers.{i}")] for i in range(3)]
            result[name.replace("cond_layers.0", "cond_layer")] = torch.cat(rows)
    return result


def parametrize_norms(weights):
    names = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
    return {re.sub("weight_[gv]$", lambda m: names[m[0]], name): tensor for name, tensor in weights.items()}


LAYOUTS = {"today's": lambda w: w, "folded": fold, "fused": fuse, "parametrized": parametrize_norms}
LAYOUTS |= {"fused and folded": lambda w: fuse(fold(w)), "fused and parametrized": lambda w: parametrize_norms(fuse(w))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_audio_and_names(small_model, layout):
    model, other = small_model(torch.float32), small_model(torch.float32, seed=3)
    upgraded = upgrade_state_dict(LAYOUTS[layout](model.state_dict()))
    assert set(upgraded) == set(model.state_dict())
    other.load_state_dict(upgraded)
    mels, z = torch.randn(1, 3, 4), torch.randn(1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(other.infer(mels, 0.8, z), model.infer(mels, 0.8, z), atol=2e-6, rtol=0)


def test_todays_layout_passes_unchanged(small_model):
    weights = small_model(torch.float32).state_dict()
    upgraded = upgrade_state_dict(weights)
    assert list(upgraded) == list(weights)
    assert all(torch.equal(upgraded[name], weights[name]) for name in weights)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_float16_becomes_float32(small_model, layout):
    weights = {name: tensor.half() for name, tensor in small_model(torch.float32).state_dict().items()}
    upgraded = upgrade_state_dict(LAYOUTS[layout](weights))
    assert {tensor.dtype for tensor in upgraded.values()} == {torch.float32}
    name = "convinv.0.conv.weight"
    assert torch.equal(upgraded[name], weights[name].float())


def test_folded_zeros_stay_zero_and_parts_of_a_fused_layer_own_their_memory(small_model):
    """A checkpoint of views would store the whole tensor once for each part."""
    model = small_model(torch.float32)
    weights = fold(model.state_dict())
    weights["WN.1.in_layers.0.weight"][2] = 0.0
    model.load_state_dict(upgrade_state_dict(weights))
    layer = model.WN[1].in_layers[0]
    assert not weight_norm(layer.weight_v, layer.weight_g)[2].any()
    assert model.infer(torch.zeros(1, 3, 2)).isfinite().all()
    upgraded = upgrade_state_dict(fuse(small_model(torch.float32).state_dict()))
    part = upgraded["WN.0.cond_layers.1.weight_v"]
    assert part.untyped_storage().nbytes() == 4 * part.numel()
    weights = fuse(small_model(torch.float32).state_dict())
    weights["WN.2.cond_layer.bias"] = torch.zeros(37)
    message = r"WN\.2.cond_layer\.bias: 37 rows, expected a multiple of the 3 WN\.2\.in_layers"
    with pytest.raises(DataError, match=message):
        upgrade_state_dict(weights)
