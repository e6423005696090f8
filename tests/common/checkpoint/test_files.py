import builtins
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
from tests.recipe import fresh_state, train_tiny_model
from tests.test_train import differences
from tests.waveglow.test_spec import fold, fuse

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])


def weights(value=1.0):
    return {"state_dict": {"w": torch.full((3, 2), value)}, "epoch": 4}


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def saved(path, content, zipped):
    """Write a file as PyTorch does since 1.6, or as it did before; return its bytes."""
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path.read_bytes()


class Fault:
    """An object with which saving gets halfway and no further."""

    def __reduce__(self):
        raise RuntimeError("cannot pickle this")


class Call:
    """An object whose unpickling calls a function, as in a hostile file."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def test_save_then_load_gives_the_same_and_a_failed_save_leaves_file_and_link_alone(tmp_path):
    path, link = tmp_path / "out" / "checkpoint_Tacotron2_4.pt", tmp_path / "out" / "checkpoint_Tacotron2_last.pt"
    entries = {"config": {"n": 80, "WN_config": {"n_layers": 8}}, "random_rng_states_all": [torch.get_rng_state()]}
    content = weights(0.1) | entries
    files.save_checkpoint(path, content, link)
    assert differences(files.load_checkpoint(link), content) == []
    before = path.read_bytes()
    for target in (path, path.with_name("checkpoint_Tacotron2_5.pt")):
        with pytest.raises(RuntimeError, match="cannot pickle this"):
            files.save_checkpoint(target, {**weights(2.0), "bad": Fault()}, link)
    assert os.readlink(link) == path.name  # relative: the folder can be moved
    assert path.read_bytes() == before and names(path.parent) == [path.name, link.name]


def test_find_last(tmp_path):
    assert files.find_last(tmp_path / "none", "M") is None
    for name in ["checkpoint_M_9.pt", "checkpoint_M_100.pt", "checkpoint_M_x.pt", "checkpoint_MM_500.pt", "notes.pt"]:
        (tmp_path / name).write_bytes(b"")
    assert files.find_last(tmp_path, "M") == tmp_path / "checkpoint_M_100.pt"
    link = files.last_link(tmp_path, "M")
    for target, found in (("gone.pt", "checkpoint_M_100.pt"), ("checkpoint_M_9.pt", link.name)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert files.find_last(tmp_path, "M") == tmp_path / found
    assert files.find_last(tmp_path, "Other") is None
    (tmp_path / "checkpoint_M_100.pt").unlink()
    files.checkpoint_path(tmp_path, "M", 5).touch()
    assert files.find_all(tmp_path, "M") == [link, files.checkpoint_path(tmp_path, "M", 5)]


@FORMATS
def test_old_files_with_numpy_and_python_state_load(tmp_path, zipped):
    path = tmp_path / "c.pt"
    values = {"python": random.Random(3).getstate(), "counts": defaultdict(dict, {1: {"a": 2}}), "names": {"x"}}
    values |= {"loss": np.float64(1.25), "step": np.int64(7), "rate": np.float32(0.5), "flag": np.bool_(True)}
    saved(path, {**weights(), **values, "rng": np.random.RandomState(3).get_state()}, zipped)
    loaded, generator = files.load_checkpoint(path), np.random.RandomState(0)
    generator.set_state(loaded["rng"])
    assert np.array_equal(generator.rand(5), np.random.RandomState(3).rand(5))
    assert {name: loaded[name] for name in values} == values
    content = saved(path, {**weights(), "loss": np.float64(1.25), "array": np.arange(4, dtype=np.uint32)}, False)
    for core in (b"numpy.core", b"numpy._core"):  # of NumPy 1 and of 2
        path.write_bytes(re.sub(rb"numpy\._?core", core, content))
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


def refusal(path, content=None):
    if content is not None:
        torch.save(content, path)
    with pytest.raises(DataError) as error:
        files.load_checkpoint(path)
    return str(error.value).removeprefix(f"{path}: ")


def test_a_cut_file_and_another_kind_of_file_say_so(tmp_path):
    tensors, path = {"w": torch.zeros(1000)}, tmp_path / "whole"
    whole = [saved(path, {"state_dict": tensors}, zipped) for zipped in (True, False)]
    others = [b"", b"hello world", b"\x80\x02", b"PK\x03\x04", bytes(range(256))]
    contents = {"c.pt": others + [content[:size] for content in whole for size in (20, 300, 3000)]}
    save_file(tensors, path, metadata={"config": "{'n': 1"})  # no JSON
    contents["c.safetensors"] = [*others, path.read_bytes(), path.read_bytes()[:2000]]
    for name, content in ((key, content) for key, listed in contents.items() for content in listed):
        (tmp_path / name).write_bytes(content)
        said = f"no checkpoint, or one cut short ({len(content)} bytes; "
        assert refusal(tmp_path / name).startswith(said), content[:20]


def test_a_missing_file_says_what_is_there_and_one_without_weights_what_is_in_it(tmp_path):
    for epoch in range(6):
        files.checkpoint_path(tmp_path, "M", epoch).write_bytes(b"")
    listed = "checkpoint_M_0.pt, checkpoint_M_1.pt, checkpoint_M_2.pt, checkpoint_M_3.pt and 2 more"
    assert refusal(tmp_path / "c.pt") == f"no such checkpoint; beside it: {listed}"
    assert refusal(tmp_path).startswith("is a folder, wanted a checkpoint file")
    assert "nor a folder" in refusal(tmp_path / "none" / "c.pt")
    link = files.last_link(tmp_path, "M")
    link.symlink_to("gone.pt")
    assert refusal(link) == f"links to gone.pt, which is gone; beside it: {listed}"
    wanted = "wanted a state_dict among the keys, got epoch, optimizer;"
    assert refusal(tmp_path / "c.pt", {"epoch": 3, "optimizer": {}}).startswith(wanted)
    assert refusal(tmp_path / "c.pt", [torch.ones(1)]) == "holds a list, wanted a dict with a state_dict"


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
    ("model", "prefix", "parts"),
    [
        *(("WaveGlow", "module.", parts) for parts in PARTS),
        *(("WaveGlow", "", "all"), ("Tacotron2", "module.1.", "all"), ("Tacotron2", "module.", "bare")),
    ],
)
def test_every_layout_of_names_and_states_goes_on(tmp_path, model, prefix, parts):
    ours = files.load_checkpoint(train_tiny_model(model))
    for half in (False, True) if parts == "all" else (parts == "bare",):
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
