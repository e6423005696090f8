import builtins
import itertools
import os
import random
import re
from collections import defaultdict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from common.checkpoint import files
from common.errors import DataError
from common.training import snapshot
from models import RECIPE
from tests.recipe import fresh_state, train_tiny_model
from tests.waveglow.test_spec import fold, fuse

pytestmark = pytest.mark.slow

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])


def weights(value=1.0):
    return {"state_dict": {"w": torch.full((3, 2), value)}, "epoch": 4}


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


class Fault:
    """An object whose pickling calls `action`: saving gets halfway and no further."""

    def __init__(self, action):
        self.action = action

    def __reduce__(self):
        self.action()


class Call:
    """An object whose unpickling calls a function, as in a hostile file."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def fail():
    raise RuntimeError("cannot pickle this")


def test_save_then_load_gives_the_same(tmp_path):
    path, link = tmp_path / "out" / "checkpoint_Tacotron2_4.pt", tmp_path / "out" / "checkpoint_Tacotron2_last.pt"
    entries = {"config": {"n": 80, "WN_config": {"n_layers": 8}}, "random_rng_states_all": [torch.get_rng_state()]}
    saved = weights(0.1) | entries
    files.save_checkpoint(path, saved, link)
    loaded = files.load_checkpoint(link)
    assert loaded["epoch"] == 4 and loaded["config"] == saved["config"]
    assert torch.equal(loaded["state_dict"]["w"], saved["state_dict"]["w"])
    assert torch.equal(loaded["random_rng_states_all"][0], saved["random_rng_states_all"][0])
    assert os.readlink(link) == path.name  # relative: the folder can be moved
    assert names(path.parent) == [path.name, link.name]


def test_a_failed_save_leaves_file_and_link_alone(tmp_path):
    path, link = files.checkpoint_path(tmp_path, "M", 1), files.last_link(tmp_path, "M")
    files.save_checkpoint(path, weights(), link)
    before, listing = path.read_bytes(), names(tmp_path)
    for target in (path, files.checkpoint_path(tmp_path, "M", 2)):
        with pytest.raises(RuntimeError, match="cannot pickle this"):
            files.save_checkpoint(target, {**weights(2.0), "bad": Fault(fail)}, link)
    assert path.read_bytes() == before and names(tmp_path) == listing and os.readlink(link) == path.name


def test_find_last(tmp_path):
    assert files.find_last(tmp_path / "none", "M") is None
    for name in ["checkpoint_M_9.pt", "checkpoint_M_100.pt", "checkpoint_M_x.pt", "checkpoint_MM_500.pt", "notes.pt"]:
        (tmp_path / name).write_bytes(b"")
    assert files.find_last(tmp_path, "M") == tmp_path / "checkpoint_M_100.pt"
    link = files.last_link(tmp_path, "M")
    link.symlink_to("gone.pt")
    assert files.find_last(tmp_path, "M") == tmp_path / "checkpoint_M_100.pt"
    link.unlink()
    link.symlink_to("checkpoint_M_9.pt")
    assert files.find_last(tmp_path, "M").resolve() == (tmp_path / "checkpoint_M_9.pt").resolve()
    assert files.find_last(tmp_path, "Other") is None
    for name in ("x", "100"):
        (tmp_path / f"checkpoint_M_{name}.pt").unlink()
    files.checkpoint_path(tmp_path, "M", 5).touch()
    assert files.find_all(tmp_path, "M") == [files.last_link(tmp_path, "M"), files.checkpoint_path(tmp_path, "M", 5)]


@FORMATS
def test_old_files_with_numpy_and_python_state_load(tmp_path, zipped):
    path = tmp_path / "c.pt"
    values = {"python": random.Random(3).getstate(), "counts": defaultdict(dict, {1: {"a": 2}}), "names": {"x"}}
    values |= {"loss": np.float64(1.25), "step": np.int64(7), "rate": np.float32(0.5), "flag": np.bool_(True)}
    rng = np.random.RandomState(3).get_state()
    torch.save({**weights(), **values, "rng": rng}, path, _use_new_zipfile_serialization=zipped)
    loaded, generator = files.load_checkpoint(path), np.random.RandomState(0)
    generator.set_state(loaded["rng"])
    assert np.array_equal(generator.rand(5), np.random.RandomState(3).rand(5))
    assert {name: loaded[name] for name in values} == values


@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"])
def test_numpy_1_and_2_files_load_under_either(tmp_path, core):
    path = tmp_path / "c.pt"
    values = {"loss": np.float64(1.25), "array": np.arange(4, dtype=np.uint32)}
    torch.save({**weights(), **values}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(re.sub(rb"numpy\._?core", core, path.read_bytes()))
    assert core + b".multiarray" in path.read_bytes()
    loaded = files.load_checkpoint(path)
    assert loaded["loss"] == 1.25 and np.array_equal(loaded["array"], [0, 1, 2, 3])


@FORMATS
@pytest.mark.parametrize(
    ("function", "named"), [(os.mkdir, "posix.mkdir"), (builtins.eval, "eval"), (np.save, "numpy.save")]
)
def test_a_file_that_would_run_code_is_refused_and_does_not(tmp_path, zipped, function, named):
    trap = str(tmp_path / "sprung")
    arguments = {"posix.mkdir": (trap,), "eval": (f"open({trap!r}, 'w')",), "numpy.save": (trap, 0)}[named]
    torch.save({**weights(), "x": Call(function, *arguments)}, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match=rf"c\.pt: refused: it pickles {named}, "):
        files.load_checkpoint(tmp_path / "c.pt")
    assert names(tmp_path) == ["c.pt"]


@FORMATS
@pytest.mark.parametrize("n_bytes", [0, 20, 300, 3000])
def test_a_cut_file_says_so(tmp_path, zipped, n_bytes):
    path = tmp_path / "c.pt"
    torch.save({"state_dict": {"w": torch.zeros(1000)}}, path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(DataError, match=rf"c\.pt: no checkpoint, or one cut short \({n_bytes} bytes"):
        files.load_checkpoint(path)


@pytest.mark.parametrize("name", ["c.pt", "c.safetensors"])
@pytest.mark.parametrize("content", [b"", b"hello world", b"\x80\x02", b"PK\x03\x04", bytes(range(256))])
def test_another_kind_of_file_says_so(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{re.escape(name)}: no checkpoint, or one cut short \({len(content)} bytes"):
        files.load_checkpoint(tmp_path / name)


@pytest.mark.parametrize("size", [2000, None], ids=["cut", "no JSON"])
def test_a_damaged_safetensors_file_says_so(tmp_path, size):
    path = tmp_path / "c.safetensors"
    save_file({"w": torch.zeros(1000)}, path, metadata={"config": "{'n': 1"})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(
        DataError, match=rf"c\.safetensors: no checkpoint, or one cut short \({path.stat().st_size} bytes"
    ):
        files.load_checkpoint(path)


def test_a_missing_file_says_what_is_there(tmp_path):
    with pytest.raises(DataError, match=r"no such checkpoint; beside it: no \.pt file"):
        files.load_checkpoint(tmp_path / "c.pt")
    for epoch in range(6):
        files.checkpoint_path(tmp_path, "M", epoch).write_bytes(b"")
    with pytest.raises(DataError, match=r"beside it: checkpoint_M_0\.pt, .*checkpoint_M_3\.pt and 2 more"):
        files.load_checkpoint(tmp_path / "c.pt")
    with pytest.raises(DataError, match=r"is a folder.*checkpoint_M_0\.pt"):
        files.load_checkpoint(tmp_path)
    with pytest.raises(DataError, match="nor a folder"):
        files.load_checkpoint(tmp_path / "none" / "c.pt")
    files.last_link(tmp_path, "M").symlink_to("gone.pt")
    with pytest.raises(DataError, match=r"links to gone\.pt, which is gone"):
        files.load_checkpoint(files.last_link(tmp_path, "M"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 3, "optimizer": {}}, "wanted a state_dict among the keys, got epoch, optimizer"),
        ({}, "got none"),
        ([torch.ones(1)], "holds a list, wanted a dict with a state_dict"),
    ],
)
def test_no_state_dict(tmp_path, content, message):
    torch.save(content, tmp_path / "c.pt")
    with pytest.raises(DataError, match=message):
        files.load_checkpoint(tmp_path / "c.pt")


# Every layout that interface.md lists, made from a trained model's checkpoint, and what training has of it.

CONDITIONS = ["cond_layers", "cond_layer"]
NORMS = ["weight_g and weight_v", "folded"]
PARTS = {
    "all": ("epoch", "config", "optimizer", "scaler", "random_rng_states_all", "cuda_rng_state_all"),
    "Apex": ("epoch", "config", "optimizer", "amp", "random_rng_state", "cuda_rng_state_all"),
    "no random states": ("epoch", "config", "optimizer", "scaler"),
    "no optimizer": ("epoch", "config"),
    "bare": (),
}


def rearrange(weights, condition, norm):
    """WaveGlow's weights folded, or with the cond_layers of each WN as one."""
    weights = fold(weights) if norm == "folded" else weights
    return fuse(weights) if condition == "cond_layer" else weights


def old_file(path, model, prefix="", half=False, zipped=True, parts="all", condition="cond_layers", norm=NORMS[0]):
    """The tiny model's checkpoint as an older recipe would have written it."""
    ours = files.load_checkpoint(train_tiny_model(model))
    state = rearrange(ours["state_dict"], condition, norm)
    to_half = {name: value.half() for name, value in state.items() if half and value.is_floating_point()}
    state = {f"{prefix}{name}": value for name, value in (state | to_half).items()}
    ours |= {"amp": {"loss_scaler0": {"loss_scale": 8.0}}, "random_rng_state": ours["random_rng_states_all"][0]}
    entries = {key: ours[key] for key in PARTS[parts]}
    content = {**entries, "state_dict": state} if entries else state
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def restore(path, model, folder):
    """A state that has not train_tiny_model, after it was told to go on from a file, and what was said."""
    state = fresh_state(model, folder)
    torch.manual_seed(5)
    return state, snapshot.restore(state, files.load_checkpoint(path), path)


def assert_weights(state, model, half):
    """The model's weights are the trained ones, rounded to float16 where the file was."""
    for name, value in files.load_checkpoint(train_tiny_model(model))["state_dict"].items():
        wanted = value.half().float() if half and value.is_floating_point() else value
        found = state.model.state_dict()[name]
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("prefix", "parts"), [(prefix, "all") for prefix in ("", "module.1.")] + [("module.", parts) for parts in PARTS]
)
@pytest.mark.parametrize("model", RECIPE)
def test_every_layout_of_names_and_states_goes_on(tmp_path, model, prefix, parts):
    """float32 as new PyTorch pickles and float16 as old PyTorch did."""
    ours = files.load_checkpoint(train_tiny_model(model))
    for half in (False, True):
        path = old_file(tmp_path / f"{half}.pt", model, prefix, half, zipped=not half, parts=parts)
        state, said = restore(path, model, tmp_path / "fresh")
        assert_weights(state, model, half)
        if parts in ("no optimizer", "bare"):
            assert said == f"{path}: weights only, no optimizer: a warm start at epoch 0"
            assert (state.progress.epoch, len(state.optimizer.state)) == (0, 0)
            continue
        anew = " (random numbers start anew: the checkpoint has none for this number of processes)"
        assert said == f"{path}: resuming at epoch 2{anew if parts == 'no random states' else ''}"
        assert torch.equal(torch.get_rng_state(), ours["random_rng_states_all"][0]) == (parts != "no random states")
        assert state.progress.iteration == 2 * 2  # epochs 0 and 1, of 2 steps: these files count epochs only
        for number, averages in state.optimizer.state_dict()["state"].items():
            for average in ("exp_avg", "exp_avg_sq"):
                assert torch.equal(averages[average], ours["optimizer"]["state"][number][average])


@pytest.mark.parametrize(("condition", "norm"), list(itertools.product(CONDITIONS, NORMS))[1:])
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_folded_and_fused_layouts_are_a_warm_start_from_the_same_weights(tmp_path, condition, norm, half):
    path = old_file(tmp_path / "old.pt", "WaveGlow", "module.", half, True, "no optimizer", condition, norm)
    state, said = restore(path, "WaveGlow", tmp_path / "fresh")
    assert said == f"{path}: weights only, no optimizer: a warm start at epoch 0"
    ours = files.load_checkpoint(train_tiny_model("WaveGlow"))["state_dict"]
    # g and v are not unique, their product is; float16 keeps 11 bits of each
    wanted, found = (rearrange(weights, "cond_layers", "folded") for weights in (ours, state.model.state_dict()))
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=4 * 2**-11 if half else 1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [("cond_layer", NORMS[0]), ("cond_layers", "folded")], ids=" ".join)
def test_an_optimizer_of_fewer_weights_is_refused(tmp_path, kind):
    """Training on fused or folded weights has one average for what are several weights here."""
    path = old_file(tmp_path / "old.pt", "WaveGlow", condition=kind[0], norm=kind[1])
    checkpoint = files.load_checkpoint(path)
    optimizer = torch.optim.Adam([value.clone().requires_grad_() for value in checkpoint["state_dict"].values()])
    torch.save(checkpoint | {"optimizer": optimizer.state_dict()}, path)
    wanted = r"its optimizer does not belong to this model .*: --warm-start .*old\.pt"
    with pytest.raises(DataError, match=wanted):
        restore(path, "WaveGlow", tmp_path / "fresh")
