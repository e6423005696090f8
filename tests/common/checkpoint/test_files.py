import builtins
import itertools
import os
import random
import re
import resource
import signal
from collections import defaultdict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import train
from common.checkpoint.files import (
    checkpoint_path,
    find_all,
    find_last,
    last_link,
    load_checkpoint,
    save_checkpoint,
    save_copy,
)
from common.errors import DataError
from common.run.distributed import Dist
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.optimization import Pace
from models import RECIPE, REGISTRY
from tests.recipe import flags, train_tiny_model

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
    saved = {
        **weights(0.1),
        "config": {"n": 80, "WN_config": {"n_layers": 8}},
        "random_rng_states_all": [torch.get_rng_state()],
    }
    save_checkpoint(path, saved, link)
    loaded = load_checkpoint(link)
    assert loaded["epoch"] == 4 and loaded["config"] == saved["config"]
    assert torch.equal(loaded["state_dict"]["w"], saved["state_dict"]["w"])
    assert torch.equal(loaded["random_rng_states_all"][0], saved["random_rng_states_all"][0])
    assert os.readlink(link) == path.name  # relative: the folder can be moved
    assert names(path.parent) == [path.name, link.name]


def test_a_failed_save_leaves_file_and_link_alone(tmp_path):
    path, link = checkpoint_path(tmp_path, "M", 1), last_link(tmp_path, "M")
    save_checkpoint(path, weights(), link)
    before, listing = path.read_bytes(), names(tmp_path)
    for target in (path, checkpoint_path(tmp_path, "M", 2)):
        with pytest.raises(RuntimeError, match="cannot pickle this"):
            save_checkpoint(target, {**weights(2.0), "bad": Fault(fail)}, link)
    assert path.read_bytes() == before and names(tmp_path) == listing and os.readlink(link) == path.name


def test_a_save_killed_halfway_leaves_the_old_checkpoint(tmp_path):
    path, link = checkpoint_path(tmp_path, "M", 1), last_link(tmp_path, "M")
    save_checkpoint(path, weights(), link)
    child = os.fork()
    if child == 0:
        save_checkpoint(path, {**weights(2.0), "x": Fault(lambda: os.kill(os.getpid(), signal.SIGKILL))}, link)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert load_checkpoint(link)["state_dict"]["w"][0, 0] == 1.0
    save_checkpoint(path, weights(3.0), link)
    assert load_checkpoint(link)["state_dict"]["w"][0, 0] == 3.0
    assert names(tmp_path) == [path.name, link.name]


@pytest.mark.parametrize(
    ("save", "name"), [(save_checkpoint, "c.pt"), (save_copy, "c.pt"), (save_copy, "c.safetensors")]
)
def test_a_full_disk_is_a_data_error(tmp_path, save, name):
    path = tmp_path / name
    save(path, weights())
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(
            DataError, match=rf"{path}: cannot write the checkpoint \(File too large\); .*free the disk"
        ):
            save(path, {"state_dict": {"w": torch.ones(500_000)}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and names(tmp_path) == [path.name]


def test_find_last(tmp_path):
    assert find_last(tmp_path / "none", "M") is None
    for name in ["checkpoint_M_9.pt", "checkpoint_M_100.pt", "checkpoint_M_x.pt", "checkpoint_MM_500.pt", "notes.pt"]:
        (tmp_path / name).write_bytes(b"")
    assert find_last(tmp_path, "M") == tmp_path / "checkpoint_M_100.pt"
    link = last_link(tmp_path, "M")
    link.symlink_to("gone.pt")
    assert find_last(tmp_path, "M") == tmp_path / "checkpoint_M_100.pt"
    link.unlink()
    link.symlink_to("checkpoint_M_9.pt")
    assert find_last(tmp_path, "M").resolve() == (tmp_path / "checkpoint_M_9.pt").resolve()
    assert find_last(tmp_path, "Other") is None


def test_a_dangling_link_hides_no_file(tmp_path):
    for epoch in (5, 100):
        checkpoint_path(tmp_path, "M", epoch).write_bytes(b"")
    last_link(tmp_path, "M").symlink_to("checkpoint_M_9.pt")  # gone
    assert find_all(tmp_path, "M") == [checkpoint_path(tmp_path, "M", epoch) for epoch in (100, 5)]
    checkpoint_path(tmp_path, "M", 9).write_bytes(b"")
    assert find_all(tmp_path, "M") == [last_link(tmp_path, "M"), checkpoint_path(tmp_path, "M", 5)]


@FORMATS
def test_old_files_with_numpy_and_python_state_load(tmp_path, zipped):
    path = tmp_path / "c.pt"
    values = {
        "rng": np.random.RandomState(3).get_state(),
        "python": random.Random(3).getstate(),
        "loss": np.float64(1.25),
        "step": np.int64(7),
        "rate": np.float32(0.5),
        "flag": np.bool_(True),
        "counts": defaultdict(dict, {1: {"a": 2}}),
        "names": {"x"},
    }
    torch.save({**weights(), **values}, path, _use_new_zipfile_serialization=zipped)
    loaded = load_checkpoint(path)
    generator = np.random.RandomState(0)
    generator.set_state(loaded["rng"])
    assert np.array_equal(generator.rand(5), np.random.RandomState(3).rand(5))
    for name in ("python", "loss", "step", "rate", "flag", "counts", "names"):
        assert loaded[name] == values[name]


@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"])
def test_numpy_1_and_2_files_load_under_either(tmp_path, core):
    path = tmp_path / "c.pt"
    values = {"loss": np.float64(1.25), "array": np.arange(4, dtype=np.uint32)}
    torch.save({**weights(), **values}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(re.sub(rb"numpy\._?core", core, path.read_bytes()))
    assert core + b".multiarray" in path.read_bytes()
    loaded = load_checkpoint(path)
    assert loaded["loss"] == 1.25 and np.array_equal(loaded["array"], [0, 1, 2, 3])


@FORMATS
@pytest.mark.parametrize(
    ("function", "named"),
    [(os.mkdir, "posix.mkdir"), (builtins.eval, "eval"), (np.save, "numpy.save")],
)
def test_a_file_that_would_run_code_is_refused_and_does_not(tmp_path, zipped, function, named):
    trap = str(tmp_path / "sprung")
    arguments = {"posix.mkdir": (trap,), "eval": (f"open({trap!r}, 'w')",), "numpy.save": (trap, 0)}[named]
    torch.save({**weights(), "x": Call(function, *arguments)}, tmp_path / "c.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(DataError, match=rf"c\.pt: refused: it pickles {named}, "):
        load_checkpoint(tmp_path / "c.pt")
    assert names(tmp_path) == ["c.pt"]


@FORMATS
@pytest.mark.parametrize("n_bytes", [0, 20, 300, 3000])
def test_a_cut_file_says_so(tmp_path, zipped, n_bytes):
    path = tmp_path / "c.pt"
    torch.save({"state_dict": {"w": torch.zeros(1000)}}, path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(DataError, match=rf"c\.pt: no checkpoint, or one cut short \({n_bytes} bytes"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content", [b"hello world", b"RIFF....WAVEfmt ", b"\x80\x02", b"PK\x03\x04", bytes(range(256))]
)
def test_another_kind_of_file_says_so(tmp_path, content):
    (tmp_path / "c.pt").write_bytes(content)
    with pytest.raises(DataError, match=r"c\.pt: no checkpoint"):
        load_checkpoint(tmp_path / "c.pt")


@pytest.mark.parametrize("fault", ["cut", "empty", "a pickle", "no JSON"])
def test_a_damaged_safetensors_file_says_so(tmp_path, fault):
    path = tmp_path / "c.safetensors"
    save_file({"w": torch.zeros(1000)}, path, metadata={"config": "{'n': 1"})
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:2000])
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "a pickle":
        torch.save(weights(), path)
    with pytest.raises(
        DataError, match=rf"c\.safetensors: no checkpoint, or one cut short \({path.stat().st_size} bytes"
    ):
        load_checkpoint(path)


def test_a_missing_file_says_what_is_there(tmp_path):
    with pytest.raises(DataError, match=r"no such checkpoint; beside it: no \.pt file"):
        load_checkpoint(tmp_path / "c.pt")
    for epoch in range(6):
        checkpoint_path(tmp_path, "M", epoch).write_bytes(b"")
    with pytest.raises(DataError, match=r"beside it: checkpoint_M_0\.pt, .*checkpoint_M_3\.pt and 2 more"):
        load_checkpoint(tmp_path / "c.pt")
    with pytest.raises(DataError, match=r"is a folder.*checkpoint_M_0\.pt"):
        load_checkpoint(tmp_path)
    with pytest.raises(DataError, match="nor a folder"):
        load_checkpoint(tmp_path / "none" / "c.pt")
    last_link(tmp_path, "M").symlink_to("gone.pt")
    with pytest.raises(DataError, match=r"links to gone\.pt, which is gone"):
        load_checkpoint(last_link(tmp_path, "M"))


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
        load_checkpoint(tmp_path / "c.pt")


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


def rearrange(state_dict, condition, norm):
    """WaveGlow's weights folded (weight = g v / |v|), or with the cond_layers of each WN as one, row under row."""
    weights = dict(state_dict)
    if norm == "folded":
        for name in [name for name in weights if name.endswith("weight_v")]:
            v, g = weights.pop(name), weights.pop(f"{name[:-1]}g")
            weights[name.removesuffix("_v")] = g * v / (v.double() ** 2).sum((1, 2), keepdim=True).sqrt().float()
    if condition == "cond_layer":
        groups = {}
        for name in [name for name in weights if ".cond_layers." in name]:
            groups.setdefault(re.sub(r"cond_layers\.\d+", "cond_layer", name), []).append(weights.pop(name))
        weights |= {name: torch.cat(rows) for name, rows in groups.items()}
    return weights


def old_file(path, model, prefix="", half=False, zipped=True, parts="all", condition="cond_layers", norm=NORMS[0]):
    """The tiny model's checkpoint as an older recipe would have written it."""
    ours = load_checkpoint(train_tiny_model(model))
    state = rearrange(ours["state_dict"], condition, norm)
    state = {
        f"{prefix}{name}": value.half() if half and value.is_floating_point() else value
        for name, value in state.items()
    }
    ours |= {"amp": {"loss_scaler0": {"loss_scale": 8.0}}, "random_rng_state": ours["random_rng_states_all"][0]}
    entries = {key: ours[key] for key in PARTS[parts]}
    content = {**entries, "state_dict": state} if entries else state
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


def restore(path, model, folder):
    """A state that has not train_tiny_model, after it was told to go on from a file, and what was said."""
    args, spec = parse_training_arguments(flags(model, folder), REGISTRY, "")
    state = train.make_state(spec, args, Dist(0, 0, 1, torch.device("cpu")), Pace(2, 2, 4))[0]
    torch.manual_seed(5)
    return state, snapshot.restore(state, load_checkpoint(path), path)


def assert_weights(state, model, half):
    """The model's weights are the trained ones, rounded to float16 where the file was."""
    for name, value in load_checkpoint(train_tiny_model(model))["state_dict"].items():
        wanted = value.half().float() if half and value.is_floating_point() else value
        found = state.model.state_dict()[name]
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("prefix", "parts"), [(prefix, "all") for prefix in ("", "module.1.")] + [("module.", parts) for parts in PARTS]
)
@pytest.mark.parametrize("model", RECIPE)
def test_every_layout_of_names_and_states_goes_on(tmp_path, model, prefix, parts):
    """float32 as new PyTorch pickles and float16 as old PyTorch did."""
    ours = load_checkpoint(train_tiny_model(model))
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
        for number, averages in state.optimizer.state_dict()["state"].items():
            for average in ("exp_avg", "exp_avg_sq"):
                assert torch.equal(averages[average], ours["optimizer"]["state"][number][average])


@pytest.mark.parametrize(("condition", "norm"), list(itertools.product(CONDITIONS, NORMS))[1:])
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_folded_and_fused_layouts_are_a_warm_start_from_the_same_weights(tmp_path, condition, norm, half):
    path = old_file(tmp_path / "old.pt", "WaveGlow", "module.", half, True, "no optimizer", condition, norm)
    state, said = restore(path, "WaveGlow", tmp_path / "fresh")
    assert said == f"{path}: weights only, no optimizer: a warm start at epoch 0"
    ours = load_checkpoint(train_tiny_model("WaveGlow"))["state_dict"]
    # g and v are not unique, their product is; float16 keeps 11 bits of each
    wanted, found = (rearrange(weights, "cond_layers", "folded") for weights in (ours, state.model.state_dict()))
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=4 * 2**-11 if half else 1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [("cond_layer", NORMS[0]), ("cond_layers", "folded")], ids=" ".join)
def test_an_optimizer_of_fewer_weights_is_refused(tmp_path, kind):
    """Training on fused or folded weights has one average for what are several weights here."""
    path = old_file(tmp_path / "old.pt", "WaveGlow", condition=kind[0], norm=kind[1])
    checkpoint = load_checkpoint(path)
    optimizer = torch.optim.Adam([value.clone().requires_grad_() for value in checkpoint["state_dict"].values()])
    torch.save(checkpoint | {"optimizer": optimizer.state_dict()}, path)
    wanted = r"its optimizer does not belong to this model .*: --warm-start .*old\.pt"
    with pytest.raises(DataError, match=wanted):
        restore(path, "WaveGlow", tmp_path / "fresh")
