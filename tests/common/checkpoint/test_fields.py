"""Malformed checkpoints: each entry with a value of the wrong kind is refused by its file and name, wherever it is read."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from common.checkpoint import __main__ as command
from common.checkpoint.fields import DESCRIBING, KINDS
from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.training import snapshot
from synthesizer import Synthesizer
from tests.recipe import fresh_state, train_tiny_model

pytestmark = pytest.mark.slow

DEEP: list[Any] = []
for _ in range(100):
    DEEP = [DEEP]
WRONG = {
    "a word": "x",
    "a negative number": -7,
    "NaN": float("nan"),
    "a list": [1, "x"],
    "a dict": {"x": [None]},
    "a dict of tensors": {3: torch.ones(2)},
    "a tensor": torch.ones(2, 2),
    "True": True,
    "nested lists": DEEP,
}
# Values of WRONG that an entry may have all the same.
FINE = {("launch", "a word"), ("epoch_complete", "True"), ("amp", "a dict of tensors")}
FINE |= {(name, "a dict") for name in ("config", "data", "amp")}


@pytest.fixture(scope="module")
def valid() -> dict[str, Any]:
    return load_checkpoint(train_tiny_model("WaveGlow"))


def write(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "c.pt")
    return folder / "c.pt"


@pytest.mark.parametrize("name", KINDS)
def test_a_wrong_entry_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    for kind, value in WRONG.items():
        path = write(tmp_path, {"state_dict": {"w": torch.ones(2)}, name: value})
        if (name, kind) in FINE:
            load_checkpoint(path)
            continue
        if name not in DESCRIBING:  # of no importance to those who speak or begin anew
            assert set(load_checkpoint(path)) == {"state_dict"}
        readers = [partial(load_checkpoint, resuming=True), command.inspect]
        for read in readers + [load_checkpoint] * (name in DESCRIBING):
            with pytest.raises(DataError) as error:
                read(path)
            assert str(error.value).startswith(f"{path}: malformed: {name}: ")
            assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epoch_totals", {"steps": 3}, "epoch_totals: .*unexpected keyword argument 'steps'"),
        ("scaler", {"scale": 0.0}, "scaler: a dict of 1, expected the state of a GradScaler, with a scale above 0"),
        ("epoch_totals", {"iterations": 1.5}, "epoch_totals: a dict of 1, expected numbers by name"),
        ("epoch_totals", {"iterations": math.inf}, "epoch_totals: a dict of 1"),
        ("iteration", 2**63, "iteration: 9223372036854775808, expected a whole number from 0"),
        ("ema_updates", 10**300, "ema_updates: 10*…, expected a whole number from 0"),
        ("amp", {"loss_scaler0": {"loss_scale": 10**300}}, "amp: a dict of 1, expected the state of Apex amp"),
        ("scaler", {"scale": 1e300}, "scaler: a dict of 1"),
        ("scaler", {"scale": "x"}, "scaler: a dict of 1"),
        ("scaler", {"scale": float("inf")}, "scaler: a dict of 1"),
        ("best", {"loss": "x"}, "best: a dict of 1"),
        ("saved", ["x"], "saved: a list of 1, expected a list of epochs"),
        ("optimizer", {"state": {0: {"exp_avg": "x"}}, "param_groups": []}, "optimizer: a dict of 2"),
        ("optimizer", {"state": {}, "param_groups": [{"params": "x"}]}, "its optimizer does not belong to this model"),
        ("state_dict", {3: torch.ones(1)}, "state_dict: the name 3, expected strings"),
        ("random_rng_states_all", [torch.zeros(3)], "random_rng_states_all: a list of 1, expected bytes"),
        ("ema_state_dict", {"w": 3}, "ema_state_dict: a dict of 1, expected tensors by name"),
        ("ema_state_dict", {"w": torch.ones(1).expand(10**12)}, "ema_state_dict.w: claims 1,000,000,000,000 elements"),
    ],
)
def test_wrong_values_inside_an_entry(tmp_path: Path, valid: dict, name: str, value: Any, message: str) -> None:
    path = write(tmp_path, valid | {name: value})
    state = fresh_state("WaveGlow", tmp_path, "--ema-decay", 0.9)
    with pytest.raises(DataError, match=message) as error:
        snapshot.restore(state, load_checkpoint(path, resuming=True), path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("exp_avg", math.nan, r"the averages of \S+ are NaN"), ("step", torch.ones(2), r"step of \S+ has another shape")],
)
def test_averages_that_no_step_can_use_are_refused(tmp_path: Path, valid: dict, key: str, value, message: str) -> None:
    first = dict(valid["optimizer"]["state"][0])
    first[key] = value if isinstance(value, torch.Tensor) else torch.full_like(first[key], value)
    states = valid["optimizer"]["state"] | {0: first}
    path = write(tmp_path, valid | {"optimizer": valid["optimizer"] | {"state": states}})
    with pytest.raises(DataError, match=rf"c\.pt: its optimizer does not belong to this model \({message}"):
        snapshot.restore(fresh_state("WaveGlow", tmp_path), load_checkpoint(path), path)


@pytest.mark.parametrize("name", ["config", "data"])
def test_a_list_inside_others_many_times_is_refused_at_once(tmp_path: Path, valid: dict, name: str) -> None:
    """A file of 2 kB with 10^12 numbers, which no reader of all of them would get through."""
    shared: list[Any] = [1] * 10
    for _ in range(11):
        shared = [shared] * 10
    path = write(tmp_path, valid | {name: {"x": shared}})
    with pytest.raises(DataError, match=rf"malformed: {name}: a dict of 1, expected a dict of plain settings"):
        load_checkpoint(path)


def test_an_unfinished_epoch_needs_its_counts(tmp_path: Path, valid: dict[str, Any]) -> None:
    content = {key: value for key, value in valid.items() if key not in ("iteration", "epoch_totals")}
    with pytest.raises(DataError, match=r"malformed: iteration: missing, .*; epoch_totals: missing, though the epoch"):
        load_checkpoint(write(tmp_path, content | {"epoch_complete": False}), resuming=True)


def test_empty_entries_count_as_missing(tmp_path: Path, valid: dict[str, Any]) -> None:
    loaded = load_checkpoint(write(tmp_path, valid | dict.fromkeys(KINDS)))
    assert not {"epoch", "config", "data", "best", "saved"} & set(loaded)
    assert loaded["optimizer"] is None


def test_losses_may_be_infinite_and_numbers_numpys(tmp_path: Path, valid: dict[str, Any]) -> None:
    """The best loss is, before the first validation; and the sum of an epoch's may be."""
    infinite = {"best": {"loss": np.float32("inf"), "epoch": np.int64(-1)}, "epoch_totals": {"loss": math.inf}}
    loaded = load_checkpoint(write(tmp_path, valid | infinite | {"epoch": np.int64(3)}))
    assert loaded["epoch"] == 3
    assert loaded["best"]["loss"] == loaded["epoch_totals"]["loss"] == math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_rate": 0}, {"sampling_rate": 10**15}, {"filter_length": 10**12}, {"n_mel_channels": 10**12},
        {"hop_length": "x"}, {"mel_fmax": None}, {"text_cleaners": 3}, {"text_cleaners": ["none"]}, {"symbols": 5},
        {"symbols": "ab"}, {"symbols": []}, {"sampling_rate": 10**600}, {"sampling_rate": 22050.5}, {"hop_length": 1.5},
        {"hop_length": True}, {"win_length": 800.5},
    ],
)  # fmt: skip
def test_impossible_data_options_are_the_files_fault(tmp_path: Path, change: dict[str, Any]) -> None:
    content = load_checkpoint(train_tiny_model("Tacotron2"))
    path = write(tmp_path, content | {"data": content["data"] | change})
    with pytest.raises(DataError) as error:
        Synthesizer.from_checkpoints(path)
    assert str(error.value).startswith(f"{path}: ")
