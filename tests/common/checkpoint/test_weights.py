"""Weights into models: names and types of old files, weights that do not fit, and configs that describe other models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import train
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import clean_state_dict, load_weights
from common.errors import DataError
from common.run.distributed import Dist
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.optimization import Pace
from models import RECIPE, REGISTRY, default_options, load_model
from synthesizer import Checkpoint, SynthesisConfig, Synthesizer, load
from tacotron2.text import BUILT_IN
from tests.recipe import flags, fresh_state, train_tiny_model

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
    with pytest.raises(DataError, match=r"1 of another shape \(weight: \(3, 2, 'int64'\) in file"):
        load_weights(model, {"weight": torch.ones(3, 2, dtype=torch.int64), "bias": torch.ones(3)}, tmp_path)


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
        *({"WN_config": value} for value in (3, None, {"n_layers": 10**9}, {"n_channels": 10**9}, {"n_layers": "x"})),
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


@pytest.mark.parametrize(
    ("change", "resumed"),
    [
        ({"optimizer": {}}, "weights only, no optimizer"),
        ({"optimizer": None, "scaler": None, "random_rng_states_all": None}, "weights only, no optimizer"),
        ({"optimizer": "gone", "epoch": "last"}, "malformed: epoch: 'last', .*; optimizer: 'gone'"),
        ({"optimizer": {"state": {}, "param_groups": []}}, "its optimizer does not belong to this model"),
    ],
)
def test_a_file_is_judged_by_what_is_read_from_it(tmp_path: Path, change: dict[str, Any], resumed: str) -> None:
    """People strip what only resuming needs."""
    path, whole = tmp_path / "c.pt", load_checkpoint(train_tiny_model("WaveGlow"))
    torch.save(whole | change, path)
    state = fresh_state("WaveGlow", tmp_path, "--warm-start", path)
    for model in (load_model("WaveGlow", path), state.model):
        assert all(torch.equal(weight, whole["state_dict"][name]) for name, weight in model.state_dict().items())
    try:
        said = snapshot.restore(state, load_checkpoint(path, resuming=True), path)
    except DataError as error:
        said = str(error)
    assert re.search(resumed, said)


@pytest.mark.parametrize("model", RECIPE)
def test_a_layout_without_data_takes_its_mels_from_the_config(tmp_path: Path, model: str) -> None:
    whole = load_checkpoint(train_tiny_model(model))
    torch.save({key: whole[key] for key in ("epoch", "config", "state_dict")}, tmp_path / "c.pt")
    loaded = load(Checkpoint(REGISTRY[model], tmp_path / "c.pt"), SynthesisConfig(), torch.device("cpu"))
    assert loaded.options["n_mel_channels"] == 10
    words = ["-m", model, "--warm-start", str(tmp_path / "c.pt")]
    assert parse_training_arguments(words, REGISTRY, "")[0].model["n_mel_channels"] == 10


def test_more_symbols_than_an_alphabet_are_a_note(tmp_path: Path) -> None:
    whole, path = load_checkpoint(train_tiny_model("Tacotron2")), tmp_path / "c.pt"
    rows = torch.cat([whole["state_dict"]["embedding.weight"], torch.ones(12, 16)])
    weights = whole["state_dict"] | {"embedding.weight": rows}
    torch.save({"config": whole["config"] | {"n_symbols": 160}, "state_dict": weights}, path)
    note = "160 symbols without an alphabet in the file: the first 148 are taken for the built-in ones"
    assert note in Synthesizer.from_checkpoints(path).description
    (tmp_path / "symbols.txt").write_text("_\n \na\nb\nä\n")
    options, spec = parse_training_arguments(
        ["-m", "Tacotron2", "--warm-start", str(path), "--symbols-file", str(tmp_path / "symbols.txt")], REGISTRY, ""
    )
    state, said = train.make_state(spec, options, Dist(0, 0, 1, torch.device("cpu")), Pace(2, 2, 4))
    assert note in said and state.model.embedding.weight.shape == (5, 16)
    assert torch.equal(state.model.embedding.weight[2], rows[BUILT_IN.symbols.index("a")])


@pytest.mark.parametrize("model", RECIPE)
def test_a_file_without_a_config_has_the_sizes_of_the_flags(tmp_path: Path, model: str) -> None:
    torch.save(load_checkpoint(train_tiny_model(model))["state_dict"], tmp_path / "c.pt")
    checkpoint = Checkpoint(REGISTRY[model], tmp_path / "c.pt")
    options = parse_training_arguments(flags(model, tmp_path), REGISTRY, "")[0].model
    sizes = {name: options[name] for name in default_options() if name in options}
    loaded = load(checkpoint, SynthesisConfig(options=sizes), torch.device("cpu"))
    assert loaded.model.config.n_mel_channels == 10
    message = r"of another shape .* the file has no config, so the flags of the model have to name its"
    with pytest.raises(DataError, match=message):
        load(checkpoint, SynthesisConfig(), torch.device("cpu"))
