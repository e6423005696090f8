"""A linear model on points, whose every number has a closed form, with its criterion, its data and a log in memory."""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from common.options import from_options
from common.run.distributed import Dist
from common.run.nvlog import Log
from common.spec import Key
from common.training.optimization import Pace
from common.training.options import TrainOptions
from common.training.sampler import EpochBatches
from common.training.state import TrainState, build_state
from models import REGISTRY

CPU, PACE = Dist(0, 0, 1, torch.device("cpu")), Pace(4, 2, 2)


class Points(NamedTuple):
    """x (B, 2) and y (B, 1)."""

    x: Tensor
    y: Tensor
    names: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.x,)

    @property
    def targets(self) -> Tensor:
        return self.y

    @property
    def num_items(self) -> Tensor:
        return torch.tensor(10 * len(self.x))


class Errors(nn.Module):
    """Mean square and mean absolute error."""

    def terms(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> dict[str, Tensor]:
        error = outputs - targets
        return {"square": error.square().mean(), "absolute": error.abs().mean()}

    def forward(self, outputs: Tensor, targets: Tensor, iteration: int = 0) -> Tensor:
        return sum(self.terms(outputs, targets).values())  # type: ignore[return-value]


class PointsDataset:
    """Item i is the point (i, 1) with y = 2 i."""

    def __init__(self, size: int) -> None:
        self.lengths = list(range(size))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, key: Key) -> int:
        return key.item

    def collate(self, items: list[int]) -> Points:
        x = torch.tensor([[float(item), 1.0] for item in items])
        return Points(x, 2 * x[:, :1], tuple(f"clip {item}" for item in items))


class Notes(Log):
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.records: list[tuple[tuple[int, ...], dict]] = []
        self.shown: dict[str, list[float]] = {}
        self.places: dict[str, int] = {}  # of the newest values
        self.said: list[str] = []

    def log(self, step, data) -> None:
        self.records.append((step, dict(data)))

    def scalars(self, tag_prefix, values, step) -> None:
        self.places[tag_prefix] = step
        for name, value in values.items():
            self.shown.setdefault(f"{tag_prefix}/{name}", []).append(value)

    def say(self, sentence) -> None:
        self.said.append(sentence)


def make_state(model=None, criterion=None, dist: Dist = CPU, pace: Pace = PACE, **options: object) -> TrainState:
    """The state of a linear model, or of another one, with options by their names."""
    if model is None:
        model = nn.Linear(2, 1)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[0.5, -0.25]]))
            model.bias.fill_(0.125)
    spec = dataclasses.replace(REGISTRY["WaveGlow"], fast_ways=())
    parsed = from_options(TrainOptions, {"learning_rate": 0.1, **options})
    return build_state(spec, model, criterion or Errors(), parsed, dist, pace)


def change(state: TrainState, **parts: object) -> None:
    own = {name: parts.pop(name) for name in list(parts) if name in state.setup.__dict__}
    before = state.setup.options
    options = dataclasses.replace(from_options(TrainOptions, before.flat | parts), model=before.model)
    state.setup = dataclasses.replace(state.setup, **{"options": options, **own})


def loader(size: int, batch_size: int, training: bool = True) -> DataLoader:
    dataset = PointsDataset(size)
    sampler = EpochBatches(dataset.lengths, batch_size, seed=1, training=training)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=dataset.collate)  # type: ignore[arg-type]
