"""A training state through a checkpoint and back: every part of it, and the files that a save leaves."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import train
from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.run.distributed import Dist
from common.training import snapshot
from common.training.arguments import parse_training_arguments
from common.training.optimization import Pace
from common.training.state import Best, EpochTotals, TrainState
from models import REGISTRY
from tests.recipe import flags

CPU = Dist(0, 0, 1, torch.device("cpu"))


def make(folder: Path, *words: str) -> tuple[TrainState, argparse.Namespace]:
    args, spec = parse_training_arguments([*flags("WaveGlow", folder), "--ema-decay", "0.9", *words], REGISTRY, "")
    state, *_ = train.make_state(spec, args, CPU, Pace(2, 2, 4))
    state.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    return state, args


def take_steps(state: TrainState, count: int) -> None:
    """Optimizer steps along random gradients, as after `count` iterations."""
    assert state.average is not None
    for _ in range(count):
        for weight in state.model.parameters():
            weight.grad = torch.randn_like(weight)
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.average.update_parameters(state.model)
        state.iteration += 1
    state.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)


def parts_of(state: TrainState) -> dict[str, object]:
    """The parts of a state, as plain values."""
    assert state.average is not None
    averages = state.optimizer.state_dict()["state"]
    return {
        "weights": {name: value.tolist() for name, value in state.model.state_dict().items()},
        "average": {name: value.tolist() for name, value in state.average.module.state_dict().items()},
        "updates": int(state.average.n_averaged),
        "adam": {number: {key: value.tolist() for key, value in entry.items()} for number, entry in averages.items()},
        "scale": state.scaler.state_dict()["scale"],
        "iteration": state.iteration,
        "best": state.best,
        "saved": state.saved,
    }


@pytest.mark.parametrize("complete", [False, True])
def test_every_part_of_a_state_comes_back(tmp_path: Path, complete: bool) -> None:
    state, args = make(tmp_path)
    take_steps(state, 3)
    state.epoch, state.best, state.saved = 5, Best(0.25, 4, 1, "wer", 0.5, 0.4), [2, 4]
    state.totals = EpochTotals(1, 2, 1.5, 90.0, 2.0, 0.5, 1, 1)
    path = snapshot.save(state, args, epoch_complete=complete)
    random_numbers = torch.rand(4)
    fresh, _ = make(tmp_path)
    assert parts_of(fresh) != parts_of(state)
    torch.manual_seed(123)
    note = snapshot.restore(fresh, load_checkpoint(path), path)
    assert torch.equal(torch.rand(4), random_numbers)
    assert parts_of(fresh) == parts_of(state)
    assert state.saved == [2, 4, 5]
    if complete:
        assert note == f"{path}: resuming at epoch 6"
        assert (fresh.epoch, asdict(fresh.totals)) == (6, asdict(EpochTotals()))
    else:
        assert note == f"{path}: resuming in epoch 5 after 1 iterations"
        assert (fresh.epoch, asdict(fresh.totals)) == (5, asdict(state.totals))


def test_an_epoch_that_is_saved_twice_counts_once(tmp_path: Path) -> None:
    state, args = make(tmp_path, "--keep-checkpoints", "1")
    for epoch in (3, 3, 4, 4):
        state.epoch = epoch
        path = snapshot.save(state, args)
        assert state.saved == load_checkpoint(path)["saved"] == [epoch]
        assert [file.name for file in tmp_path.glob("checkpoint_*_?.pt")] == [path.name]


def test_older_checkpoints_stay_until_the_new_one_is_complete(tmp_path: Path) -> None:
    state, args = make(tmp_path, "--keep-checkpoints", "1")
    old = snapshot.save(state, args)
    state.epoch = 1
    (tmp_path / "checkpoint_WaveGlow_1.pt" / "in_the_way").mkdir(parents=True)
    with pytest.raises(DataError, match=r"checkpoint_WaveGlow_1\.pt: cannot write the checkpoint"):
        snapshot.save(state, args)
    assert load_checkpoint(old)["epoch"] == 0
    assert (tmp_path / "checkpoint_WaveGlow_last.pt").resolve() == old.resolve()


def test_best_and_final_weights_are_those_of_the_average(tmp_path: Path) -> None:
    state, args = make(tmp_path)
    take_steps(state, 2)
    assert state.average is not None
    snapshot.save_best(state, args)
    snapshot.save_final_weights(state, args)
    for name in ("checkpoint_WaveGlow_best.pt", "checkpoint_WaveGlow_0.safetensors"):
        stored = load_checkpoint(tmp_path / name)["state_dict"]
        assert all(torch.equal(stored[key], value) for key, value in state.average.module.state_dict().items())


def test_only_the_main_process_writes(tmp_path: Path) -> None:
    state, args = make(tmp_path)
    state.dist = CPU._replace(rank=1)
    before = sorted(tmp_path.iterdir())
    snapshot.save(state, args)
    snapshot.save_best(state, args)
    snapshot.save_final_weights(state, args)
    assert sorted(tmp_path.iterdir()) == before


def test_each_process_goes_on_with_its_own_random_numbers(tmp_path: Path) -> None:
    state, args = make(tmp_path)
    checkpoint = load_checkpoint(snapshot.save(state, args))
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(torch.get_rng_state())
    for rank in (0, 1):
        state.dist = CPU._replace(rank=rank, world_size=2)
        assert "random numbers" not in snapshot.restore(state, checkpoint | {"random_rng_states_all": states}, tmp_path)
        assert torch.equal(torch.get_rng_state(), states[rank])
    state.dist = CPU
    note = snapshot.restore(state, checkpoint | {"random_rng_states_all": states}, tmp_path)
    assert note.endswith("(random numbers start anew: the checkpoint has none for this number of processes)")


def test_files_without_counts_have_trained_whole_epochs(tmp_path: Path) -> None:
    state, args = make(tmp_path)
    state.epoch = 3
    old = load_checkpoint(snapshot.save(state, args))
    for key in ("iteration", "epoch_complete", "epoch_totals", "best", "saved"):
        del old[key]
    assert snapshot.restore(state, old, tmp_path).startswith(f"{tmp_path}: resuming at epoch 4")
    assert state.iteration == 4 * 2  # epochs 0 to 3, of 2 steps


def test_a_seed_of_zero_is_a_seed() -> None:
    assert snapshot.choose_seed(0, {"seed": 5}, CPU) == 0
    assert snapshot.choose_seed(None, {"seed": 0}, CPU) == 0
    assert snapshot.choose_seed(None, {"seed": 5}, CPU) == 5
