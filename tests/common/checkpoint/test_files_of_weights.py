"""Weights in files: pruned by the order of saving, refused with one number that is not finite, copied from views."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from common.checkpoint.files import plain, prune
from common.checkpoint.weights import load_weights
from common.errors import DataError


def test_pruning_keeps_the_checkpoints_that_were_saved_last(tmp_path: Path) -> None:
    """A run that resumes from an older epoch saves lower epochs after higher ones."""
    for epoch in (1, 3, 7, 9):
        for suffix in (".pt", ".safetensors"):
            (tmp_path / f"checkpoint_X_{epoch}{suffix}").touch()
    assert prune(tmp_path, "X", [7, 3, 9, 1], 2) == [9, 1]
    expected = [f"checkpoint_X_{epoch}{suffix}" for epoch in (1, 9) for suffix in (".pt", ".safetensors")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(expected)
    assert prune(tmp_path, "X", [9, 1], 5) == [9, 1]
    assert len(list(tmp_path.iterdir())) == 4


def test_numbers_and_arrays_of_a_checkpoint_are_described_as_numbers_and_lists() -> None:
    values = {"number": np.float32(0.5), "array": np.arange(2), "tensor": torch.tensor([[1.5]]), "path": Path("a")}
    found = json.loads(json.dumps(values, default=plain))
    assert found == {"number": 0.5, "array": [0, 1], "tensor": [[1.5]], "path": "a"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_weight_that_is_not_finite_is_enough(value: float) -> None:
    model = nn.Linear(2, 3)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights["weight"][2, 1] = value
    with pytest.raises(DataError, match=r"x\.pt: NaN or infinite weights: weight; go back"):
        load_weights(model, weights, Path("x.pt"))
