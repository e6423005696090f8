"""A dry run's numbers against what a step then takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import train
from common.run import memory
from common.run.distributed import Dist
from common.training.arguments import parse_training_arguments
from common.training.forecast import describe_plan, longest_batch, memory_advice, size
from common.training.loop import train_step
from common.training.optimization import Pace
from data_functions import get_loaders
from models import REGISTRY
from tests.recipe import flags

CPU = Dist(0, 0, 1, torch.device("cpu"))


def build_run(model: str, folder: Path, *words: object):
    args, spec = parse_training_arguments([*flags(model, folder, 8), *map(str, words)], REGISTRY, "")
    loaders = get_loaders(spec.name, vars(args), CPU)
    return train.make_state(spec, args, CPU, train.pace_of(spec, args, loaders.training))[0], loaders.training, args


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words"),
    [("WaveGlow", ["--wn-channels", 64]), ("Tacotron2", ["--postnet-embedding-dim", 256, "--attention-rnn-dim", 128])],
)
def test_the_estimated_peak_is_near_the_one_of_a_step(tmp_path: Path, model: str, words: list[object]) -> None:
    state, loader, args = build_run(model, tmp_path, "-bs", 6, *words)
    said = "\n".join(describe_plan(state, loader, args))
    found = re.search(r"estimated peak: ([\d.]+) MB, with 6 such clips", said)
    assert found, said
    weights = memory.state_bytes(state.model).weights
    batch = longest_batch(loader, 6)
    measured = memory.measure_peak(CPU.device, lambda: train_step(state, [batch]))  # Adam's averages are made in it
    assert float(found[1]) * 1e6 == pytest.approx(measured + weights, rel=0.3)


def test_nothing_is_trained(tmp_path: Path) -> None:
    state, loader, args = build_run("Tacotron2", tmp_path)
    before = {name: value.clone() for name, value in state.model.named_parameters()}
    describe_plan(state, loader, args)
    for name, value in state.model.named_parameters():
        assert torch.equal(value, before[name]) and value.grad is None


def test_the_longest_clips_make_the_batch(tmp_path: Path) -> None:
    _, loader, _ = build_run("Tacotron2", tmp_path)
    dataset = loader.dataset
    lengths = sorted(dataset.dataset.lengths)  # type: ignore[attr-defined]
    assert longest_batch(loader, 3).text_lengths.tolist() == lengths[:-4:-1]  # type: ignore[attr-defined]


def test_what_is_sent_and_the_rates(tmp_path: Path) -> None:
    state, loader, args = build_run("WaveGlow", tmp_path, "--epochs", 5, "--lr-schedule", "cosine", "-lr", 0.5)
    state.dist = Dist(0, 0, 4, torch.device("cpu"))
    state.pace = Pace(2, 8, 4)
    said = describe_plan(state, loader, args)
    parameters = sum(weight.numel() for weight in state.model.parameters())
    assert said[1].endswith(f"each process sends {size(2 * 3 / 4 * 4 * parameters)} of float32 gradients")
    assert said[3].startswith("learning rate: 0.5 in the first step, 0.0122 in the last")  # 0.5 (1 + cos(0.9 pi)) / 2


def test_the_advice_is_at_most_half(tmp_path: Path) -> None:
    state, _, args = build_run("WaveGlow", tmp_path, "-bs", 8)
    assert memory_advice(state, args).startswith("lower --batch-size from 8 to 4 and set --grad-accumulation-steps 2")
    args.batch_size = 1
    assert memory_advice(state, args).startswith("not even --batch-size 1 fits: add --amp")
