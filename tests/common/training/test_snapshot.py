"""Checkpoints of training: their content, and the state that each published layout restores."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import train
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from common.run.distributed import Dist
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.optimization import Pace
from common.training.state import TrainState
from models import REGISTRY
from tests.recipe import flags, run, train_tiny_model

pytestmark = pytest.mark.slow

CPU = Dist(0, 0, 1, torch.device("cpu"))
PUBLISHED_KEYS = {
    "epoch",
    "config",
    "state_dict",
    "optimizer",
    "scaler",
    "random_rng_states_all",
    "cuda_rng_state_all",
}
PATH = Path("old.pt")


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., TrainState]:
    """A state that has not train_tiny_model, of the tiny model that `trained` makes."""

    def make(model: str = "WaveGlow", *words: str) -> TrainState:
        args, spec = parse_training_arguments([*flags(model, tmp_path), *words], REGISTRY, "")
        return train.make_state(spec, args, CPU, Pace(2, 2, 4))[0]

    return make


@pytest.fixture
def checkpoint() -> dict:
    return load_checkpoint(train_tiny_model("WaveGlow"))


def weights_are(state: TrainState, checkpoint: dict) -> bool:
    mine = state.model.state_dict()
    assert list(mine) == list(checkpoint["state_dict"])
    return all(torch.equal(mine[name], value) for name, value in checkpoint["state_dict"].items())


@pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
def test_what_is_in_a_checkpoint(model: str) -> None:
    path = train_tiny_model(model)
    checkpoint = load_checkpoint(path)
    assert set(checkpoint) >= PUBLISHED_KEYS
    assert (checkpoint["epoch"], checkpoint["iteration"], checkpoint["seed"]) == (1, 4, 1)
    assert checkpoint["epoch_complete"] is True
    assert checkpoint["random_rng_states_all"].shape == (1, len(torch.get_rng_state()))
    assert checkpoint["cuda_rng_state_all"] is None
    assert (checkpoint["data"]["n_mel_channels"], checkpoint["data"]["sampling_rate"]) == (10, 22050)
    assert checkpoint["config"]["n_mel_channels"] == 10
    assert ("text_cleaners" in checkpoint["data"]) == (model == "Tacotron2")
    assert path.is_symlink()
    assert path.resolve().name == f"checkpoint_{model}_1.pt"


def test_a_checkpoint_goes_on_after_its_epoch(fresh, checkpoint: dict) -> None:
    state = fresh("WaveGlow", "-lr", "0.5")
    assert not weights_are(state, checkpoint)
    assert snapshot.restore(state, checkpoint, PATH) == "old.pt: resuming at epoch 2"
    assert weights_are(state, checkpoint)
    assert (state.epoch, state.iteration) == (2, 4)
    assert torch.equal(torch.get_rng_state(), checkpoint["random_rng_states_all"][0])
    averages = state.optimizer.state_dict()["state"]
    for number, saved in checkpoint["optimizer"]["state"].items():
        assert torch.equal(averages[number]["exp_avg"], saved["exp_avg"])
    assert [group["lr"] for group in state.optimizer.param_groups] == [0.5]  # the flag's, not the file's


def test_one_made_in_mid_epoch_goes_on_inside_it(fresh, checkpoint: dict) -> None:
    totals = {"iterations": 3, "clips": 6, "loss": 1.5, "items": 90.0, "seconds": 2.0}
    state = fresh()
    said = snapshot.restore(state, checkpoint | {"epoch_complete": False, "epoch_totals": totals}, PATH)
    assert said == "old.pt: resuming in epoch 1 after 3 iterations"
    assert (state.epoch, state.totals.clips, state.totals.loss) == (1, 6, 1.5)


def test_files_of_the_published_recipe(fresh, checkpoint: dict) -> None:
    old = {name: checkpoint[name] for name in ("epoch", "config", "optimizer")}
    old["state_dict"] = {f"module.{name}": value for name, value in checkpoint["state_dict"].items()}
    old["random_rng_state"] = checkpoint["random_rng_states_all"][0]
    old["amp"] = {"loss_scaler0": {"loss_scale": 2.0**15, "unskipped": 3}}
    state = fresh()
    assert snapshot.restore(state, old, PATH) == "old.pt: resuming at epoch 2"
    assert weights_are(state, checkpoint)
    assert torch.equal(torch.get_rng_state(), old["random_rng_state"])


@pytest.mark.parametrize("missing", [["optimizer"], ["optimizer", "random_rng_states_all", "epoch", "config"]])
def test_weights_alone_are_a_warm_start(fresh, checkpoint: dict, missing: list[str]) -> None:
    state = fresh()
    said = snapshot.restore(state, {key: value for key, value in checkpoint.items() if key not in missing}, PATH)
    assert said == "old.pt: weights only, no optimizer: a warm start at epoch 0"
    assert weights_are(state, checkpoint)
    assert (state.epoch, state.iteration, len(state.optimizer.state)) == (0, 0, 0)


@pytest.mark.parametrize("states", [None, torch.zeros(4, 5056, dtype=torch.uint8)], ids=["none", "of four processes"])
def test_missing_random_states_are_said(fresh, checkpoint: dict, states: torch.Tensor | None) -> None:
    before = torch.get_rng_state()
    state = fresh()
    torch.set_rng_state(before)
    said = snapshot.restore(state, checkpoint | {"random_rng_states_all": states}, PATH)
    assert said.endswith("(random numbers start anew: the checkpoint has none for this number of processes)")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_of_other_sizes_is_told_which(fresh, checkpoint: dict) -> None:
    with pytest.raises(DataError) as error:
        snapshot.restore(fresh("WaveGlow", "--flows", "5"), checkpoint, PATH)
    assert "old.pt: not this model's weights" in str(error.value)
    assert "settings that differ: n_flows: 4 in the file, 5 now" in str(error.value)


@pytest.mark.parametrize("fault", ["fewer groups", "other shapes", "a list"])
def test_an_optimizer_of_another_model(fresh, checkpoint: dict, fault: str) -> None:
    optimizer = {
        "state": dict(checkpoint["optimizer"]["state"]),
        "param_groups": checkpoint["optimizer"]["param_groups"],
    }
    if fault == "fewer groups":
        optimizer["param_groups"] = []
    elif fault == "other shapes":
        optimizer["state"][0] = optimizer["state"][0] | {"exp_avg": torch.zeros(3)}
    else:
        optimizer = [optimizer]  # type: ignore[assignment]
    with pytest.raises(DataError, match=r"old\.pt: its optimizer does not belong to this model"):
        snapshot.restore(fresh(), checkpoint | {"optimizer": optimizer}, PATH)


def ask(folder: Path, start: Path | None = None, resume: bool = True, warm: Path | None = None) -> Path | None:
    args = argparse.Namespace(output=folder, checkpoint_path=start, resume_from_last=resume, warm_start=warm)
    return snapshot.find(args, "WaveGlow", CPU).path


def test_which_checkpoint_the_flags_ask_for(tmp_path: Path, capsys) -> None:
    start = train_tiny_model("WaveGlow")
    assert ask(tmp_path, resume=False) is None
    assert ask(tmp_path, start, resume=False) == start
    assert ask(tmp_path) is None
    assert "no checkpoint of WaveGlow in" in capsys.readouterr().out
    assert ask(tmp_path, start) == start
    assert f"starting at {start}" in capsys.readouterr().out
    assert ask(tmp_path, warm=start) is None
    assert f"starting at {start}" in capsys.readouterr().out
    for epoch in (7, 10):
        shutil.copy(start, tmp_path / f"checkpoint_WaveGlow_{epoch}.pt")
    for path in (None, start):
        assert ask(tmp_path, path) == tmp_path / "checkpoint_WaveGlow_10.pt"
    assert ask(tmp_path, start, resume=False) == start


@pytest.mark.parametrize("fault", ["empty", "cut short", "overwritten", "one bit flipped"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_newest_checkpoint_that_cannot_be_read_gives_way_to_the_one_before(
    tmp_path: Path, capsys, fault: str, linked: bool
) -> None:
    content = train_tiny_model("WaveGlow").read_bytes()
    place = content.index(
        load_checkpoint(train_tiny_model("WaveGlow"))["state_dict"]["upsample.bias"].numpy().tobytes()
    )
    broken = {
        "empty": b"",
        "cut short": content[: len(content) // 2],
        "overwritten": b"x" * len(content),
        "one bit flipped": content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :],
    }[fault]
    files = [tmp_path / f"checkpoint_WaveGlow_{epoch}.pt" for epoch in (3, 4, 5)]
    for path, data in zip(files, (content, broken, broken), strict=True):
        path.write_bytes(data)
    if linked:
        (tmp_path / "checkpoint_WaveGlow_last.pt").symlink_to(files[-1].name)
    assert ask(tmp_path) == files[0]
    said = capsys.readouterr().out.splitlines()
    newest = tmp_path / "checkpoint_WaveGlow_last.pt" if linked else files[2]
    assert [line.split(": ")[1] for line in said] == [str(newest), str(files[1])]
    assert all(line.endswith(f"going on from the one before it, {files[0]}") for line in said)
    files[0].write_bytes(broken)
    with pytest.raises(DataError) as error:
        ask(tmp_path)
    reason = "damaged: Bad CRC-32" if fault == "one bit flipped" else "no checkpoint, or one cut short"
    assert str(error.value).count(reason) == 3
    assert str(error.value).endswith("choose another -o to begin anew")


def test_a_launch_that_starts_again_goes_on_from_what_it_has_saved(tmp_path: Path, monkeypatch) -> None:
    checkpoint = load_checkpoint(train_tiny_model("WaveGlow"))
    path = tmp_path / "checkpoint_WaveGlow_1.pt"
    torch.save(checkpoint | {"launch": "job 7"}, path)
    for name, wanted in (("job 7", path), ("job 8", None), ("none", None)):
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        assert ask(tmp_path, resume=False) == wanted
    torch.save(checkpoint | {"launch": None}, path)
    assert ask(tmp_path, resume=False) is None


def test_other_data_is_another_run(tmp_path: Path, checkpoint: dict) -> None:
    args, _ = parse_training_arguments(flags("WaveGlow", tmp_path), REGISTRY, "")
    snapshot.check_data_options(checkpoint, PATH, args)
    args.mel_fmax, args.sampling_rate = 7000.0, 16000
    wanted = r"old\.pt: made with other settings of sampling_rate, mel_fmax than .*--warm-start old\.pt"
    with pytest.raises(UsageError, match=wanted):
        snapshot.check_data_options(checkpoint, PATH, args)
    snapshot.check_data_options(checkpoint | {"optimizer": None}, PATH, args)  # weights alone begin anew
    snapshot.check_data_options({key: checkpoint[key] for key in PUBLISHED_KEYS}, PATH, args)


def test_the_seed_is_the_flags_then_the_files_then_any() -> None:
    assert snapshot.choose_seed(5, {"seed": 6}, CPU) == 5
    assert snapshot.choose_seed(0, {"seed": 6}, CPU) == 0
    assert snapshot.choose_seed(None, {"seed": 6}, CPU) == 6
    drawn = {snapshot.choose_seed(None, {}, CPU) for _ in range(8)}
    assert len(drawn) > 4


def test_a_published_optimizer_state_takes_this_runs_settings(fresh, checkpoint: dict) -> None:
    """Older PyTorch knew no `fused`, counted steps in plain ints, and kept the weight decay of its own run."""
    published = checkpoint["optimizer"]
    known = ("lr", "betas", "eps", "weight_decay", "amsgrad", "params")
    groups = [{name: group[name] for name in known} | {"weight_decay": 0.5} for group in published["param_groups"]]
    states = {number: state | {"step": 4} for number, state in published["state"].items()}
    state = fresh("WaveGlow", "--weight-decay", "0.25")
    snapshot.restore(state, checkpoint | {"optimizer": {"param_groups": groups, "state": states}}, PATH)
    assert [group["weight_decay"] for group in state.optimizer.param_groups] == [0.25]
    assert all(group["fused"] for group in state.optimizer.param_groups)
    for weight, averages in state.optimizer.state.items():
        assert averages["step"] == 4 and averages["step"].device == weight.device
        weight.grad = torch.ones_like(weight)
    before = [weight.detach().clone() for weight in state.model.parameters()]
    state.optimizer.step()
    assert all(not torch.equal(old, new) for old, new in zip(before, state.model.parameters()))


def test_random_states_of_another_size_are_passed_over(fresh, checkpoint: dict) -> None:
    said = snapshot.restore(
        fresh(), checkpoint | {"random_rng_states_all": torch.zeros(1, 10, dtype=torch.uint8)}, PATH
    )
    assert said.startswith("old.pt: resuming at epoch 2 (random numbers start anew: ")


def test_weights_that_broke_replace_no_checkpoint(tmp_path: Path) -> None:
    """The last step before a save may overflow though its loss and its gradient are finite."""
    words = [*flags("Tacotron2", tmp_path, 2), "--epochs", 1, "--keep-checkpoints", 1]
    assert run("train.py", *words).code == 0
    before = sorted(path.name for path in tmp_path.glob("checkpoint_*"))
    words[words.index("--epochs") + 1] = 2
    result = run("train.py", *words, "--resume-from-last", "-lr", "1e38")
    path = tmp_path / "checkpoint_Tacotron2_1.pt"
    assert result.code == 1
    assert result.err.startswith(f"error: {path}: not written, since the weights are NaN or infinite after step ")
    assert sorted(path.name for path in tmp_path.glob("checkpoint_*")) == before
    assert run("train.py", *words, "--resume-from-last").code == 0
