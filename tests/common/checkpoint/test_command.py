"""python -m common.checkpoint: its report on every layout, and copies that keep the content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import models
from common.checkpoint import __main__ as command
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from common.training import snapshot
from models import RECIPE
from tests.recipe import fresh_state, train_tiny_model
from tests.test_train import differences

# The arguments of the published models' constructors, by the model's name.
WAVEGLOW_CONFIG = {"n_mel_channels", "n_flows", "n_group", "n_early_every", "n_early_size", "WN_config"}
TACOTRON2_CONFIG = (
    "mask_padding n_mel_channels n_symbols symbols_embedding_dim encoder_kernel_size encoder_n_convolutions"
    " encoder_embedding_dim attention_rnn_dim attention_dim attention_location_n_filters attention_location_kernel_size"
    " n_frames_per_step decoder_rnn_dim prenet_dim max_decoder_steps gate_threshold p_attention_dropout"
    " p_decoder_dropout postnet_embedding_dim postnet_kernel_size postnet_n_convolutions decoder_no_early_stopping"
)
PUBLISHED_CONFIG = {"Tacotron2": set(TACOTRON2_CONFIG.split()), "WaveGlow": WAVEGLOW_CONFIG}
PUBLISHED = {"epoch", "config", "state_dict", "optimizer", "scaler", "random_rng_states_all", "cuda_rng_state_all"}
OURS = {"version", "data", "iteration", "seed"}
MODELS = pytest.mark.parametrize("model", RECIPE)


def small(**changes: Any) -> dict[str, Any]:
    """A checkpoint of one layer, with all that the published recipe keeps."""
    state = {"layer.weight": torch.ones(2, 3), "layer.bias": torch.zeros(2)}
    return {"epoch": 7, "config": {"n": 1}, "state_dict": state, **changes}


def write_pt(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def inspect_text(path: Path, capsys, *words: str) -> str:
    command.main(["inspect", str(path), *words])
    return capsys.readouterr().out


def inspect_json(path: Path, capsys) -> dict[str, Any]:
    return json.loads(inspect_text(path, capsys, "--json"))


@MODELS
def test_inspect_tells_what_training_left(model: str, capsys) -> None:
    found = inspect_json(train_tiny_model(model), capsys)
    checkpoint, built = load_checkpoint(train_tiny_model(model)), models.load_model(model, train_tiny_model(model))
    assert (found["model"], found["layout"]) == (model, "this recipe's")
    assert (found["epoch"], found["iteration"], found["seed"]) == (1, 4, 1)
    assert (found["config"], found["data"]) == (checkpoint["config"], checkpoint["data"])
    assert found["parameters"] == sum(parameter.numel() for parameter in built.parameters())
    entries = found["entries"]
    assert (entries["epoch_complete"], entries["best"]) == (True, checkpoint["best"])
    assert entries["optimizer"] == "a dict of 2" and entries["random_rng_states_all"].startswith("a tensor (1, ")
    assert entries.keys() == checkpoint.keys() - found.keys() - {"state_dict"}
    shapes = {name: (list(value.shape), str(value.dtype)[6:]) for name, value in built.state_dict().items()}
    assert {each["name"]: (each["shape"], each["dtype"]) for each in found["tensors"]} == shapes


PARTLY = "weights, with epoch, config"
ADAM, APEX = {"optimizer": {"param_groups": [], "state": {}}}, {"amp": {"loss_scaler0": {"loss_scale": 512.0}}}
LAYOUTS = [
    ("module.a.weight", ADAM, "the published recipe's", "names begin with module. (DistributedDataParallel)"),
    ("module.1.a.weight", {}, PARTLY, "names begin with module.1. (DistributedDataParallel)"),
    ("a.weight", ADAM | APEX, "the published recipe's", "state of Apex amp"),
    ("WN.0.in_layers.0.weight", {}, PARTLY, "weight normalisation folded into weight"),
    ("WN.0.cond_layer.bias", {}, PARTLY, "one fused cond_layer where others have cond_layers"),
    ("WN.0.end.weight_v", {}, PARTLY, "weight normalisation as weight_g and weight_v"),
    ("a.parametrizations.weight.original1", {}, PARTLY, "weight normalisation as PyTorch's parametrizations"),
]


@pytest.mark.parametrize(("name", "entries", "layout", "remarks"), LAYOUTS)
def test_inspect_tells_layouts_apart(tmp_path: Path, capsys, name: str, entries: dict, layout: str, remarks: str):
    path = write_pt(tmp_path / "c.pt", small(state_dict={name: torch.ones(2)}, **entries))
    found = inspect_json(path, capsys)
    assert (found["layout"], found["remarks"]) == (layout, [remarks])


def test_inspect_of_a_file_from_several_gpus(tmp_path: Path, capsys) -> None:
    states = torch.zeros(8, 16, dtype=torch.uint8)
    entries = {"random_rng_state": states[0], "cuda_rng_state_all": list(states), "scaler": {"scale": 65536.0}}
    checkpoint = small(**entries, learning_rate=0.1)
    checkpoint["state_dict"]["norm.running_mean"] = torch.zeros(5, dtype=torch.float16)
    found = inspect_json(write_pt(tmp_path / "checkpoint_Some_Model_12.pt", checkpoint), capsys)
    assert (found["model"], found["parameters"], found["dtypes"]) == ("Some_Model", 8, {"float32": 8, "float16": 5})
    state = "a tensor (16,) of uint8"
    assert found["entries"] == {
        "random_rng_state": state, "cuda_rng_state_all": "a list of 8", "scaler": {"scale": 65536.0}, "learning_rate": 0.1
    }  # fmt: skip


def test_what_is_not_there_is_none_and_unknown_entries_are_listed_in_short(tmp_path: Path, capsys) -> None:
    found = inspect_json(write_pt(tmp_path / "c.pt", {"w": torch.ones(1)}), capsys)
    assert (found["layout"], found["remarks"], found["entries"]) == ("bare state_dict", [], {})
    absent = "model version epoch iteration seed config data"
    assert {label: found[label] for label in absent.split()} == dict.fromkeys(absent.split())
    unknown = {f"key {number} {'x' * 500}": number for number in range(1000)}
    shown = inspect_text(write_pt(tmp_path / "a.pt", small(**unknown)), capsys, "--tensors")
    assert "\n  layer.weight  2x3 " in shown and "\nepoch              7\n" in shown
    assert "\n… and 900 more lines\n" in shown and max(map(len, shown.splitlines())) < 800


def test_weights_that_are_not_finite_fail(tmp_path: Path, capsys) -> None:
    state = {"a": torch.tensor([1.0, torch.nan, torch.inf]), "b": torch.ones(2), "c": torch.tensor([-torch.inf])}
    bad, good = write_pt(tmp_path / "bad.pt", state), write_pt(tmp_path / "good.pt", small())
    absent = tmp_path / "none.pt"
    with pytest.raises(DataError) as error:
        command.main(["inspect", "--json", str(bad), str(absent), str(good)])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())  # told all the same
    assert [(each["nan"], each["infinite"]) for each in first["tensors"]] == [(1, 1), (0, 0), (0, 1)]
    assert second["file"] == str(good)
    said = f"{bad}: 2 of 3 tensors hold NaN or infinite weights: a (1 NaN, 1 infinite), c (0 NaN, 1 infinite); "
    assert str(error.value).startswith(said) and f"\n{absent}: no such checkpoint" in str(error.value)


def convert(source: Path, out: Path, *words: str) -> dict[str, Any]:
    command.main(["convert", str(source), str(out), *words])
    return load_checkpoint(out)


@MODELS
def test_the_published_layout_resumes_where_ours_does(model: str, tmp_path: Path, capsys) -> None:
    ours, out = load_checkpoint(train_tiny_model(model)), tmp_path / "new" / "p.pt"
    converted = convert(train_tiny_model(model), out)
    assert "cuda_rng_state_all is empty, as no GPU was used" in capsys.readouterr().out
    assert set(converted) == PUBLISHED | OURS
    assert set(converted["config"]) == PUBLISHED_CONFIG[model]
    assert all(differences(converted[key], ours[key]) == [] for key in (PUBLISHED | OURS) - {"config"})
    assert converted["config"].items() <= ours["config"].items()
    states = [fresh_state(model, tmp_path), fresh_state(model, tmp_path)]
    said = [snapshot.restore(state, content, out) for state, content in zip(states, (ours, converted), strict=True)]
    assert said[0] == said[1] == f"{out}: resuming at epoch 2"
    first, second = (state.model.state_dict() | state.optimizer.state_dict() for state in states)
    assert differences(first, second) == []
    assert inspect_json(out, capsys)["layout"] == "the published recipe's"


def test_old_states_half_an_epoch_and_weights_alone_are_resumed_from(tmp_path: Path) -> None:
    ours = load_checkpoint(train_tiny_model("WaveGlow"))
    old = {key: ours[key] for key in ("epoch", "config", "optimizer")}
    old["state_dict"] = {f"module.{name}": value for name, value in ours["state_dict"].items()}
    old["random_rng_state"] = ours["random_rng_states_all"][0]
    old["amp"] = {"loss_scaler0": {"loss_scale": 2.0**15, "unskipped": 3}}
    out = tmp_path / "new.pt"
    converted = convert(write_pt(tmp_path / "old.pt", old), out)
    assert set(converted) == PUBLISHED - {"cuda_rng_state_all"}
    assert differences(converted["state_dict"], dict(ours["state_dict"])) == []
    assert differences(converted["random_rng_states_all"], ours["random_rng_states_all"]) == []
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(converted["scaler"])
    assert scaler.get_scale() == 2.0**15
    state = fresh_state("WaveGlow", tmp_path)
    assert snapshot.restore(state, converted, out) == f"{out}: resuming at epoch 2"
    # The published recipe goes on with the epoch after the file's, whatever its other entries are.
    half_way = ours | {"epoch_complete": False, "epoch_totals": {"iterations": 3}}
    converted = convert(write_pt(tmp_path / "old.pt", half_way), out, "--force")
    assert (converted["epoch"], converted["iteration"]) == (0, 1)
    assert snapshot.restore(state, converted, out) == f"{out}: resuming at epoch 1"
    converted = convert(train_tiny_model("WaveGlow"), out, "--force", "--weights-only")
    assert set(converted) == {"epoch", "config", "state_dict", *OURS}
    assert snapshot.restore(state, converted, out) == f"{out}: weights only, no optimizer: a warm start at epoch 0"


def test_settings_the_published_models_do_not_have_stay_and_are_said(tmp_path: Path, capsys) -> None:
    state = {"WN.0.in_layers.0.weight": torch.ones(2), "WN.0.cond_layer.bias": torch.ones(2)}
    config = {"n_flows": 4, "hop_length": 300, "upsample_kernel_size": 1024}
    path = write_pt(tmp_path / "in.pt", small(state_dict=state, config=config))
    assert convert(path, tmp_path / "o.pt")["config"] == {"n_flows": 4, "hop_length": 300}
    note = "one fused cond_layer where others have cond_layers; hop_length=300 in its config: read here, not by the published"
    assert note in capsys.readouterr().out


@pytest.mark.parametrize(("model", "suffix"), [("WaveGlow", ".pt"), ("Tacotron2", ".safetensors")])
def test_half_stores_what_numpy_rounds_to(model: str, suffix: str, tmp_path: Path) -> None:
    out, ours = tmp_path / f"half{suffix}", load_checkpoint(train_tiny_model(model))["state_dict"]
    converted = convert(train_tiny_model(model), out, "--half")["state_dict"]
    assert set(converted) == set(ours)
    for name, value in ours.items():
        wanted = value.numpy().astype(np.float16) if value.is_floating_point() else value.numpy()
        assert differences(converted[name], torch.from_numpy(wanted)) == [], name
    built = models.load_model(model, out)
    assert {value.dtype for value in built.parameters()} == {torch.float32}


def test_there_and_back(tmp_path: Path) -> None:
    shared = torch.arange(6.0).view(2, 3)
    state = {"a": shared, "b": shared, "c": shared.t(), "n": torch.tensor(3)}
    config = {"rate": np.int64(22050), "size": (1, 2), "nested": {"x": None}, "name": "é"}
    described = {"epoch": 7, "iteration": 9, "seed": 2**70, "data": {"n": 1}}
    path = write_pt(tmp_path / "a.pt", small(state_dict=state, config=config, optimizer={}, **described))
    convert(path, tmp_path / "b.safetensors")
    assert differences(dict(sorted(load_file(tmp_path / "b.safetensors").items())), state) == []
    back = convert(tmp_path / "b.safetensors", tmp_path / "c.pt")
    assert differences(dict(back.pop("state_dict")), state) == []
    assert back == described | {"config": {"rate": 22050, "size": [1, 2], "nested": {"x": None}, "name": "é"}}


def test_an_existing_file_stays_unless_forced(tmp_path: Path) -> None:
    source, out = write_pt(tmp_path / "in.pt", small()), tmp_path / "out.pt"
    out.write_bytes(b"precious")
    with pytest.raises(UsageError, match=r"out\.pt is there already; .*--force"):
        command.main(["convert", str(source), str(out)])
    assert out.read_bytes() == b"precious"
    assert convert(source, out, "--force")["epoch"] == 7
    assert convert(out, out, "--force", "--half")["state_dict"]["layer.weight"].dtype == torch.float16  # onto itself


LARGE = {"fine": torch.tensor([65504.0]), "norm.running_var": torch.tensor([1e6, 1.0]), "b": torch.tensor([-7e4])}


@pytest.mark.parametrize(
    ("state", "words", "message"),
    [
        (None, [], r"in\.pt: no such checkpoint"),
        ({"a": torch.ones(1), "steps": 3}, [], "malformed: state_dict: 'steps': 3, expected a tensor"),
        ({"a": torch.tensor([torch.nan])}, [], r"in\.pt: NaN or infinite weights: a"),
        (LARGE, ["--half"], r"--half: float16 ends at 65504, .* norm\.running_var \(up to 1e\+06\), b \(up"),
    ],
)
def test_a_bad_source_leaves_no_file(tmp_path: Path, state: dict | None, words: list[str], message: str) -> None:
    if state:
        write_pt(tmp_path / "in.pt", small(state_dict=state))
    for out in ("out.safetensors", "out.pt"):
        with pytest.raises(DataError, match=message):
            convert(tmp_path / "in.pt", tmp_path / out, *words)
        assert not (tmp_path / out).exists()


def test_other_peoples_safetensors(tmp_path: Path, capsys) -> None:
    layer = nn.Linear(2, 3)
    expected = dict(sorted(layer.state_dict().items()))
    save_file(layer.state_dict(), tmp_path / "a.safetensors", metadata={"format": "pt", "author": "someone"})
    save_file(layer.state_dict(), tmp_path / "b.safetensors")
    for name in "ab":
        read = load_checkpoint(tmp_path / f"{name}.safetensors")
        assert list(read) == ["state_dict"] and differences(dict(sorted(read["state_dict"].items())), expected) == []
        assert inspect_json(tmp_path / f"{name}.safetensors", capsys)["layout"] == "safetensors"
