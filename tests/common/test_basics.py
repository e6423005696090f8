"""Small files of common/: extras, options, and the choice among fast ways."""

import argparse
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

from common.extras import require
from common.fast import FastWay, Request, accelerate, shallow_copy
from common.options import ABOVE_ZERO, add_fields, from_options, option, problems_of
from common.parser import Parser
from tests.recipe import ROOT


def test_missing_packages_are_named_and_others_are_not_and_help_needs_none(capsys, monkeypatch) -> None:
    require("bash install.sh", "torch", "numpy", help_from="serving.config")
    with pytest.raises(SystemExit) as stop:
        require("bash install.sh", "torch", "no_such_package", "nor_this", help_from="serving.config")
    assert stop.value.code == 1
    assert capsys.readouterr().err == (
        "error: not installed: no_such_package, nor_this; `bash install.sh` installs what this command needs\n"
    )
    monkeypatch.setattr(sys, "argv", ["studio", "--help"])
    with pytest.raises(SystemExit) as stop:
        require("bash install.sh", "no_such_package", help_from="studio.arguments")
    assert stop.value.code == 0 and "usage: python -m studio " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("module", "script"), [("serving", "serve.sh"), ("studio", "studio.sh")])
def test_the_servers_say_how_to_install_their_packages(module: str, script: str) -> None:
    """uvicorn cannot be found in a process where its entry in sys.modules is None."""
    program = f"import runpy, sys; sys.modules['uvicorn'] = None; runpy.run_module('{module}', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program, "--port", "0"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"uvicorn; `bash scripts/{script} --install-only` installs" in done.stderr


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = option(0.5, "rate of learning", "-lr", check=ABOVE_ZERO)
    limit: float | None = option(None, "largest norm", check=ABOVE_ZERO)


@dataclass(frozen=True, kw_only=True)
class Outer:
    path: Path | None = option(None, "file to read")
    names: list[str] = option(["a"], "names of cleaners", nargs="+")
    on: bool = option(True, "switch that starts on")
    off: bool = option(False, "switch that starts off")
    unseen: int = 3  # no flag
    inner: Inner = field(default_factory=Inner)


def parse(*argv: str, **defaults: object) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    add_fields(parser, Outer, **defaults)
    add_fields(parser.add_argument_group("inner"), Inner)
    return vars(parser.parse_args(argv))


def test_defaults_of_the_config_or_the_command_that_no_other_parser_changes() -> None:
    assert "unseen" not in parse()
    assert from_options(Outer, parse()) == Outer()
    assert parse(path=Path("y"))["path"] == Path("y")
    parse()["names"].append("z")  # type: ignore[attr-defined]
    assert parse()["names"] == ["a"]


def test_flags_reach_the_fields_of_nested_configs_and_problems_name_the_flag() -> None:
    config = from_options(Outer, parse("-lr", "2", "--path", "x", "--names", "b", "c", "--no-on", "--off"))
    assert config == Outer(path=Path("x"), names=["b", "c"], on=False, off=True, inner=Inner(rate=2.0))
    assert isinstance(config.inner.rate, float)
    for value in (0.0, -1.0, float("nan"), float("inf")):
        assert problems_of(Inner(limit=value)) == [f"--limit: {value}, expected more than 0"]
    assert problems_of(Inner(limit=1.0)) == []


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("offset", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

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
    assert list(twin.state_dict()) == list(model.state_dict())


def test_tables_flags_and_hooks_are_the_twins_own() -> None:
    model = Net().eval()
    calls: list[str] = []
    model.register_forward_hook(lambda *_: calls.append("model"))
    twin = shallow_copy(model, Net)
    twin.register_forward_pre_hook(lambda *_: calls.append("twin"))
    twin.register_buffer("more", torch.zeros(1), persistent=False)
    twin.extra, twin.scale = nn.Linear(1, 1), nn.Parameter(torch.zeros(2))
    twin.train()
    assert model.training is False and not hasattr(model, "more") and not hasattr(model, "extra")
    assert model.scale.detach().tolist() == [1, 1]
    assert "more" not in model._non_persistent_buffers_set
    for net in (model, twin):
        net(torch.randn(1, 2))
    assert calls == ["model", "twin", "model"]


def test_the_first_row_of_the_phase_that_applies_is_taken() -> None:
    model, half, last = nn.Identity(), nn.ReLU(), nn.Tanh()
    ways = [
        FastWay(name="t", phase="training", applies=lambda m, r: True, convert=lambda m, r: nn.ELU(), tolerance=0.0),
        FastWay(name="h", phase="inference", applies=lambda m, r: r.half, convert=lambda m, r: half, tolerance=0.0),
        FastWay(name="a", phase="inference", applies=lambda m, r: True, convert=lambda m, r: last, tolerance=0.0),
    ]
    assert accelerate(model, ways, "inference", Request(half=True)).model is half
    assert accelerate(model, ways, "inference", Request()).model is last
    assert accelerate(model, ways[1:2], "inference", Request()).model is model


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--lenght", "unrecognized arguments: --lenght; did you mean --length?"),
        ("go --speeed", "unrecognized arguments: --speeed; did you mean --speed?"),
        ("--bs=4", "unrecognized arguments: --bs=4; did you mean -bs?"),
        ("need --pace=2 --txt Hello.", "arguments are required: --text; did you mean --text?"),
    ],
)
def test_a_misspelled_flag_suggests_the_one_that_was_meant(capsys, words: str, hint: str) -> None:
    parser = Parser()
    parser.add_argument("-bs", "--batch-size")
    parser.add_argument("--length")
    commands = parser.add_subparsers()
    commands.add_parser("go").add_argument("--speed")
    needy = commands.add_parser("need")
    needy.add_argument("--text", required=True)
    needy.add_argument("--pace")
    with pytest.raises(SystemExit):
        parser.parse_args(words.split())
    assert capsys.readouterr().err.endswith(f"{hint}\n")
