"""Fast ways in general: the row of a table that is taken, and shallow copies with other children."""

import torch
from torch import nn

from common.fast import FastWay, Request, accelerate, shallow_copy


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.sizes = [2, 3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * self.scale + self.offset


class FastNet(Net):
    pass


def test_a_twin_has_other_children_and_shares_the_rest() -> None:
    model, other = Net().eval(), nn.Linear(2, 3)
    twin = shallow_copy(model, FastNet, first=other)
    assert type(twin) is FastNet and type(model) is Net
    assert twin.first is other and model.first is not other
    assert twin.second is model.second and twin.scale is model.scale and twin.offset is model.offset
    assert twin.sizes is model.sizes and list(twin.state_dict()) == list(model.state_dict())
    x = torch.randn(4, 2)
    torch.testing.assert_close(twin(x), model.second(other(x)) * model.scale + model.offset)


def test_tables_flags_and_hooks_are_the_twins_own() -> None:
    model = Net().eval()
    calls: list[str] = []
    model.register_forward_hook(lambda *_: calls.append("model"))
    twin = shallow_copy(model, Net)
    assert twin.training is False
    twin.register_forward_pre_hook(lambda *_: calls.append("twin"))
    twin.register_buffer("more", torch.zeros(1), persistent=False)
    twin.extra, twin.scale = nn.Linear(1, 1), nn.Parameter(torch.zeros(2))
    twin.train()
    assert model.training is False and not hasattr(model, "more") and not hasattr(model, "extra")
    assert model.scale.detach().tolist() == [1, 1]
    assert "more" not in model._non_persistent_buffers_set
    model(torch.randn(1, 2))
    assert calls == ["model"]
    twin(torch.randn(1, 2))
    assert calls == ["model", "twin"]


def test_the_first_row_of_the_phase_that_applies_is_taken() -> None:
    model, half, last = nn.Identity(), nn.ReLU(), nn.Tanh()
    ways = [
        FastWay(name="t", phase="training", applies=lambda m, r: True, convert=lambda m, r: nn.ELU(), tolerance=0.0),
        FastWay(name="h", phase="inference", applies=lambda m, r: r.half, convert=lambda m, r: half, tolerance=0.0),
        FastWay(name="a", phase="inference", applies=lambda m, r: True, convert=lambda m, r: last, tolerance=0.0),
    ]
    assert accelerate(model, ways, "inference", Request(half=True)) is half
    assert accelerate(model, ways, "inference", Request()) is last
    assert accelerate(model, ways[1:2], "inference", Request()) is model
    assert not any(getattr(Request(), name) for name in ("half", "int8", "recompute", "graphs"))
