"""Weights into models: names and types of old files, weights that do not fit, and configs that describe other models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import clean_state_dict, load_weights
from common.errors import DataError
from models import load_model
from tests.recipe import train_tiny_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("prefix", ["", "module.", "module.1.", "module.module.", "module.1.module."])
def test_wrappers_names_and_half_precision_go(prefix):
    half = {f"{prefix}encoder.module.w": torch.tensor([0.1], dtype=torch.float16)}
    bfloat = {f"{prefix}bn.1.n": torch.tensor([0.1], dtype=torch.bfloat16), f"{prefix}count": torch.tensor(5)}
    clean = clean_state_dict({**half, **bfloat})
    assert list(clean) == ["encoder.module.w", "bn.1.n", "count"]
    assert clean["encoder.module.w"].dtype == clean["bn.1.n"].dtype == torch.float32
    assert clean["encoder.module.w"].item() == float(np.float16(0.1))
    assert clean["bn.1.n"].item() == 0.10009765625  # 0.1 to the 8 bits of bfloat16
    assert clean["count"].dtype == torch.int64


def test_load_weights_tells_all_that_is_wrong_at_once(tmp_path):
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    extra = {f"extra.{i}": torch.ones(1) for i in range(6)}
    with pytest.raises(DataError) as error:
        load_weights(model, {"weight": torch.ones(4, 2), **extra}, tmp_path / "c.pt")
    assert str(error.value) == (
        f"{tmp_path / 'c.pt'}: not this model's weights: 1 missing (bias); "
        "6 unexpected (extra.0, extra.1, extra.2, extra.3 and 2 more); "
        "1 of another shape (weight: (4, 2) in file, (3, 2) in model); check the model's name and config"
    )
    assert torch.equal(model.weight, before)


CONFIGS = {
    "Tacotron2": [
        *({name: 10**12} for name in ("encoder_embedding_dim", "prenet_dim", "n_symbols", "n_frames_per_step")),
        *({name: 10**9} for name in ("encoder_n_convolutions", "postnet_n_convolutions")),
        *({"prenet_dim": value} for value in ("x", 2.5, None, [3], True, 10**30)),
        {"gate_threshold": "x"},
        {"mask_padding": {"x": 1}},
        *({"max_decoder_steps": value} for value in (float("nan"), float("inf"), 10**300, 2**31, 2.5, True)),
        *({"decoder_no_early_stopping": value} for value in (float("nan"), 2.5)),
    ],
    "WaveGlow": [
        *({name: value} for name in ("n_flows", "n_group", "hop_length") for value in (10**9 * 2, "x", None, [2])),
        *(
            {"WN_config": value}
            for value in (3, "x", None, {"n_layers": 10**9}, {"n_channels": 10**9}, {"n_layers": "x"})
        ),
    ],
}


@pytest.mark.parametrize(("model", "change"), [(model, change) for model in CONFIGS for change in CONFIGS[model]])
def test_a_config_that_is_no_such_model_is_refused_at_once(tmp_path: Path, model: str, change: dict[str, Any]) -> None:
    content = load_checkpoint(train_tiny_model(model))
    path = tmp_path / "c.pt"
    torch.save(content | {"config": content["config"] | change}, path)
    with pytest.raises(DataError) as error:
        load_model(model, path)
    assert str(error.value).startswith(f"{path}: ")


def test_weights_of_other_numbers_are_named(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    with pytest.raises(DataError, match=r"2 of another shape \(weight: \(3, 2, 'int64'\) in file, .*bias: int in file"):
        load_weights(model, {"weight": torch.ones(3, 2, dtype=torch.int64), "bias": 3}, tmp_path)
