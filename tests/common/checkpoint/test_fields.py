"""Malformed checkpoints, whose wrong entries are refused by file and name wherever they are read, and weights into models."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import train
from common.checkpoint import __main__ as command
from common.checkpoint.fields import DESCRIBING, KINDS
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
    ("version", "a word"),
    ("launch", "a word"),
    ("sharpened", "a word"),
    ("epoch_complete", "True"),
    ("amp", "a dict of tensors"),
}
FINE |= {(name, "a dict") for name in ("config", "data", "run", "amp")}


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
        ("iteration", 2**63, "iteration: 9223372036854775808, expected a whole number from 0"),
        ("ema_updates", 10**300, "ema_updates: 10*…, expected a whole number from 0"),
        ("amp", {"loss_scaler0": {"loss_scale": 10**300}}, "amp: a dict of 1, expected the state of Apex amp"),
        ("scaler", {"scale": 1e300}, "scaler: a dict of 1"),
        ("scaler", {"scale": float("inf")}, "scaler: a dict of 1"),
        ("best", {"loss": "x"}, "best: a dict of 1"),
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
    [
        ("exp_avg", math.nan, r"the averages of \S+ are NaN"),
        ("exp_avg", torch.zeros(3), r"exp_avg of \S+ has another shape"),
        ("step", torch.ones(2), r"step of \S+ has another shape"),
    ],
)
def test_averages_that_no_step_can_use_are_refused(tmp_path: Path, valid: dict, key: str, value, message: str) -> None:
    first = dict(valid["optimizer"]["state"][0])
    first[key] = value if isinstance(value, torch.Tensor) else torch.full_like(first[key], value)
    states = valid["optimizer"]["state"] | {0: first}
    path = write(tmp_path, valid | {"optimizer": valid["optimizer"] | {"state": states}})
    with pytest.raises(DataError, match=rf"c\.pt: its optimizer does not belong to this model \({message}"):
        snapshot.restore(fresh_state("WaveGlow", tmp_path), load_checkpoint(path), path)


def test_a_list_inside_others_many_times_is_refused_and_an_unfinished_epoch_without_counts(
    tmp_path: Path, valid: dict
) -> None:
    """A file of 2 kB with 10^12 numbers, which no reader of all of them would get through."""
    shared: list[Any] = [1] * 10
    for _ in range(11):
        shared = [shared] * 10
    path = write(tmp_path, valid | {"config": {"x": shared}})
    with pytest.raises(DataError, match="malformed: config: a dict of 1, expected a dict of plain settings"):
        load_checkpoint(path)
    content = {key: value for key, value in valid.items() if key not in ("iteration", "epoch_totals")}
    with pytest.raises(DataError, match=r"malformed: iteration: missing, .*; epoch_totals: missing, though the epoch"):
        load_checkpoint(write(tmp_path, content | {"epoch_complete": False}), resuming=True)


def test_empty_entries_count_as_missing_and_numbers_may_be_infinite_and_numpys(tmp_path: Path, valid: dict) -> None:
    """The best loss is infinite before the first validation; and the sum of an epoch's may be."""
    loaded = load_checkpoint(write(tmp_path, valid | dict.fromkeys(KINDS)))
    assert not {"epoch", "config", "data", "best", "saved"} & set(loaded)
    assert loaded["optimizer"] is None
    infinite = {"best": {"loss": np.float32("inf"), "epoch": np.int64(-1)}, "epoch_totals": {"loss": math.inf}}
    loaded = load_checkpoint(write(tmp_path, valid | infinite | {"epoch": np.int64(3)}))
    assert (loaded["epoch"], loaded["best"]["loss"], loaded["epoch_totals"]["loss"]) == (3, math.inf, math.inf)


@pytest.mark.parametrize(
    "change",
    [
        {"sampling_rate": 0}, {"sampling_rate": 10**15}, {"filter_length": 10**12}, {"n_mel_channels": 10**12},
        {"hop_length": "x"}, {"mel_fmax": None}, {"text_cleaners": 3}, {"text_cleaners": ["none"]}, {"symbols": 5},
        {"symbols": "ab"}, {"symbols": []}, {"sampling_rate": 10**600}, {"sampling_rate": 22050.5}, {"hop_length": True},
    ],
)  # fmt: skip
def test_impossible_data_options_are_the_files_fault(tmp_path: Path, change: dict[str, Any]) -> None:
    content = load_checkpoint(train_tiny_model("Tacotron2"))
    path = write(tmp_path, content | {"data": content["data"] | change})
    with pytest.raises(DataError) as error:
        Synthesizer.from_checkpoints(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("prefix", ["", "module.", "module.1.", "module.1.module."])
def test_wrappers_names_and_half_precision_go(prefix):
    tenth, names = torch.tensor([0.1]), ("encoder.module.w", "bn.1.n", "count")
    values = (tenth.half(), tenth.bfloat16(), torch.tensor(5))
    clean = clean_state_dict({f"{prefix}{name}": value for name, value in zip(names, values, strict=True)})
    assert tuple(clean) == names and [str(value.dtype)[6:] for value in clean.values()] == [
        "float32",
        "float32",
        "int64",
    ]
    assert clean["encoder.module.w"].item() == float(np.float16(0.1))
    assert clean["bn.1.n"].item() == 0.10009765625  # 0.1 to the 8 bits of bfloat16


def test_load_weights_tells_all_that_is_wrong_at_once(tmp_path):
    model = nn.Linear(2, 3)
    before = model.weight.clone()
    extra = {f"extra.{i}": torch.ones(1) for i in range(6)}
    with pytest.raises(DataError) as error:
        load_weights(model, {"weight": torch.ones(4, 2), **extra}, tmp_path / "c.pt")
    said = "not this model's weights: 1 missing (bias); 6 unexpected (extra.0, extra.1, extra.2, extra.3 and 2 more); "
    said += "1 of another shape (weight: (4, 2) in file, (3, 2) in model); "
    assert str(error.value).startswith(f"{tmp_path / 'c.pt'}: {said}")
    assert torch.equal(model.weight, before)
    with pytest.raises(DataError, match=r"1 of another shape \(weight: \(3, 2, 'int64'\) in file"):
        load_weights(model, {"weight": torch.ones(3, 2, dtype=torch.int64), "bias": torch.ones(3)}, tmp_path)
    for value in (math.nan, math.inf):
        one = torch.ones(3, 2).index_put((torch.tensor(2), torch.tensor(1)), torch.tensor(value))
        with pytest.raises(DataError, match=r"c\.pt: NaN or infinite weights: weight; go back"):
            load_weights(model, {"weight": one, "bias": torch.ones(3)}, tmp_path / "c.pt")


CONFIGS = {
    "Tacotron2": [
        *({name: 10**12} for name in ("encoder_embedding_dim", "n_symbols", "n_frames_per_step")),
        *({name: 10**9} for name in ("encoder_n_convolutions", "postnet_n_convolutions")),
        *({"prenet_dim": value} for value in ("x", 2.5, None, [3], True, 10**30)),
        {"gate_threshold": "x"},
        {"mask_padding": {"x": 1}},
        *({"max_decoder_steps": value} for value in (math.nan, math.inf, 10**300, 2**31, 2.5, True)),
        *({"decoder_no_early_stopping": value} for value in (math.nan, 2.5)),
    ],
    "WaveGlow": [
        *({name: value} for name in ("n_flows", "n_group", "hop_length") for value in (10**9 * 2, "x", None, [2])),
        *({"WN_config": value} for value in (3, None, {"n_layers": 10**9}, {"n_channels": 10**9}, {"n_layers": "x"})),
    ],
}


@pytest.mark.parametrize("model", CONFIGS)
def test_a_config_that_is_no_such_model_is_refused_at_once(tmp_path: Path, model: str) -> None:
    whole = load_checkpoint(train_tiny_model(model))
    for change in CONFIGS[model]:
        path = write(tmp_path, {"state_dict": whole["state_dict"], "config": whole["config"] | change})
        with pytest.raises(DataError) as error:
            load_model(model, path)
        assert str(error.value).startswith(f"{path}: "), change


@pytest.mark.parametrize(
    ("change", "resumed"),
    [
        ({"optimizer": {}}, "weights only, no optimizer"),
        ({"optimizer": None, "scaler": None, "random_rng_states_all": None}, "weights only, no optimizer"),
        ({"optimizer": "gone", "epoch": "last"}, "malformed: epoch: 'last', .*; optimizer: 'gone'"),
        ({"optimizer": {"state": {}, "param_groups": []}}, "its optimizer does not belong to this model"),
    ],
)
def test_a_file_is_judged_by_what_is_read_from_it(tmp_path: Path, valid: dict, change: dict, resumed: str) -> None:
    path = write(tmp_path, valid | change)
    state = fresh_state("WaveGlow", tmp_path, "--warm-start", path)
    for model in (load_model("WaveGlow", path), state.model):
        assert all(torch.equal(weight, valid["state_dict"][name]) for name, weight in model.state_dict().items())
    try:
        said = snapshot.restore(state, load_checkpoint(path, resuming=True), path)
    except DataError as error:
        said = str(error)
    assert re.search(resumed, said)


@pytest.mark.parametrize("model", RECIPE)
def test_a_layout_without_data_takes_its_mels_from_the_config_or_the_flags(tmp_path: Path, model: str) -> None:
    whole, checkpoint = load_checkpoint(train_tiny_model(model)), Checkpoint(REGISTRY[model], tmp_path / "c.pt")
    write(tmp_path, {key: whole[key] for key in ("epoch", "config", "state_dict")})
    loaded = load(checkpoint, SynthesisConfig(), torch.device("cpu"))
    assert loaded.options["n_mel_channels"] == 10
    words = ["-m", model, "--warm-start", str(checkpoint.path)]
    assert parse_training_arguments(words, REGISTRY, "")[0].model["n_mel_channels"] == 10
    write(tmp_path, whole["state_dict"])
    options = parse_training_arguments(flags(model, tmp_path), REGISTRY, "")[0].model
    sizes = {name: options[name] for name in default_options() if name in options}
    loaded = load(checkpoint, SynthesisConfig(options=sizes), torch.device("cpu"))
    assert loaded.model.config.n_mel_channels == 10
    message = r"of another shape .* the file has no config, so the flags of the model have to name its"
    with pytest.raises(DataError, match=message):
        load(checkpoint, SynthesisConfig(), torch.device("cpu"))


def test_more_symbols_than_an_alphabet_are_a_note(tmp_path: Path) -> None:
    whole, path = load_checkpoint(train_tiny_model("Tacotron2")), tmp_path / "c.pt"
    rows = torch.cat([whole["state_dict"]["embedding.weight"], torch.ones(12, 16)])
    weights = whole["state_dict"] | {"embedding.weight": rows}
    write(tmp_path, {"config": whole["config"] | {"n_symbols": 160}, "state_dict": weights})
    note = "160 symbols without an alphabet in the file: the first 148 are taken for the built-in ones"
    assert note in Synthesizer.from_checkpoints(path).description
    (tmp_path / "symbols.txt").write_text("_\n \na\nb\nä\n")
    words = ["-m", "Tacotron2", "--warm-start", str(path), "--symbols-file", str(tmp_path / "symbols.txt")]
    options, spec = parse_training_arguments(words, REGISTRY, "")
    state, said = train.make_state(spec, options, Dist(0, 0, 1, torch.device("cpu")), Pace(2, 2, 4))
    assert note in said and state.model.embedding.weight.shape == (5, 16)
    assert torch.equal(state.model.embedding.weight[2], rows[BUILT_IN.symbols.index("a")])
