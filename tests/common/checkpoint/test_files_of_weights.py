"""Weights in files: pruned by the order of saving, refused with one number that is not finite, copied from views."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from common.checkpoint.files import load_checkpoint, plain, prune, save_copy
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


def test_safetensors_of_views_and_of_tensors_that_share_memory(tmp_path: Path) -> None:
    matrix = torch.arange(6.0).view(2, 3)
    weights = {"matrix": matrix, "transposed": matrix.t(), "same": matrix, "row": matrix[1]}
    save_copy(tmp_path / "x.safetensors", {"state_dict": weights})
    stored = load_file(tmp_path / "x.safetensors")
    assert {name: tensor.tolist() for name, tensor in stored.items()} == {
        "matrix": [[0, 1, 2], [3, 4, 5]],
        "transposed": [[0, 3], [1, 4], [2, 5]],
        "same": [[0, 1, 2], [3, 4, 5]],
        "row": [3, 4, 5],
    }


def test_safetensors_come_back_with_their_descriptions(tmp_path: Path) -> None:
    checkpoint = {"epoch": 3, "iteration": 12, "seed": 7, "config": {"a": {"b": [1, 2.5]}}, "data": {"rate": 22050}}
    weights = {"w": torch.randn(2, 3), "count": torch.tensor(5)}
    save_copy(tmp_path / "x.safetensors", {**checkpoint, "state_dict": weights, "optimizer": {"state": {}}})
    loaded = load_checkpoint(tmp_path / "x.safetensors")
    stored = loaded.pop("state_dict")
    assert loaded == checkpoint
    assert list(stored) == ["count", "w"] or list(stored) == ["w", "count"]
    assert all(torch.equal(stored[name], value) for name, value in weights.items())
