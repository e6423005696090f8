"""Malformed checkpoints: each entry with a value of the wrong kind is refused by its file and name, wherever it is read."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import train
from common.checkpoint import __main__ as command
from common.checkpoint.fields import DESCRIBING, KINDS
from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.run.distributed import Dist
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.optimization import Pace
from models import RECIPE, REGISTRY
from synthesizer import Synthesizer
from tests.recipe import flags, run, train_tiny_model

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
FINE = {
    ("config", "a dict"), ("data", "a dict"), ("launch", "a word"), ("epoch_complete", "True"), ("amp", "a dict"),
    ("amp", "a dict of tensors"),
}  # fmt: skip


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
        for read in (
            partial(load_checkpoint, resuming=True),
            command.inspect,
            *([load_checkpoint] * (name in DESCRIBING)),
        ):
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
    args, spec = parse_training_arguments([*flags("WaveGlow", tmp_path), "--ema-decay", "0.9"], REGISTRY, "")
    state, _ = train.make_state(spec, args, Dist(0, 0, 1, torch.device("cpu")), Pace(2, 2, 4))
    with pytest.raises(DataError, match=message) as error:
        snapshot.restore(state, load_checkpoint(path, resuming=True), path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("exp_avg", math.nan, r"the averages of \S+ are NaN"),
        ("step", torch.ones(2), r"step of \S+ has another shape"),
    ],
)
def test_averages_that_no_step_can_use_are_refused(
    tmp_path: Path, valid: dict[str, Any], key: str, value: Any, message: str
) -> None:
    first = dict(valid["optimizer"]["state"][0])
    first[key] = value if isinstance(value, torch.Tensor) else torch.full_like(first[key], value)
    states = valid["optimizer"]["state"] | {0: first}
    path = write(tmp_path, valid | {"optimizer": valid["optimizer"] | {"state": states}})
    args, spec = parse_training_arguments(flags("WaveGlow", tmp_path), REGISTRY, "")
    state, _ = train.make_state(spec, args, Dist(0, 0, 1, torch.device("cpu")), Pace(2, 2, 4))
    with pytest.raises(DataError, match=rf"c\.pt: its optimizer does not belong to this model \({message}"):
        snapshot.restore(state, load_checkpoint(path), path)


@pytest.mark.parametrize("name", ["config", "data"])
def test_a_list_that_is_inside_others_many_times_is_refused_at_once(
    tmp_path: Path, valid: dict[str, Any], name: str
) -> None:
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


def test_numbers_of_numpy_are_numbers(tmp_path: Path, valid: dict[str, Any]) -> None:
    path = write(tmp_path, valid | {"epoch": np.int64(3), "best": {"loss": np.float32(0.5), "epoch": np.int64(1)}})
    assert load_checkpoint(path)["epoch"] == 3


def test_losses_may_be_infinite(tmp_path: Path, valid: dict[str, Any]) -> None:
    """The best loss is, before the first validation; and the sum of an epoch's may be."""
    infinite = {"best": {"loss": math.inf, "epoch": -1}, "epoch_totals": {"loss": math.inf}}
    loaded = load_checkpoint(write(tmp_path, valid | infinite))
    assert loaded["best"]["loss"] == loaded["epoch_totals"]["loss"] == math.inf


@pytest.mark.parametrize("model", RECIPE)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_name_the_file_before_anything_is_spoken(
    tmp_path, model: str, value: float
) -> None:
    content = load_checkpoint(train_tiny_model(model))
    name = {"Tacotron2": "embedding.weight", "WaveGlow": "upsample.bias"}[model]
    content["state_dict"][name].view(-1)[0] = value
    path = write(tmp_path, content)
    (tmp_path / "phrases.txt").write_text("Two.\n")
    words = ["--cpu", "-i", tmp_path / "phrases.txt", "-o", tmp_path / "out"]
    for other in RECIPE:
        words += [f"--{other.lower()}", path if other == model else train_tiny_model(other)]
    result = run("inference.py", *words)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"error: {path}: NaN or infinite weights: {name}; go back to an older checkpoint\n"
    with pytest.raises(DataError, match=rf"c\.pt: NaN or infinite weights: {name}"):
        command.convert(path, tmp_path / "d.pt")
    assert not (tmp_path / "d.pt").exists()


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


def test_a_config_file_of_brackets_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("[" * 100_000)
    result = run("train.py", "-m", "WaveGlow", "--config-file", path)
    assert result.code == 2
    assert result.err == f"error: --config-file: {path}: not JSON (brackets nested too deep)\n"
