"""Options typed once: the flags that fields make, and the configs that parsed flags make."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common.options import ABOVE_ZERO, add_fields, from_options, option, problems_of


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


def test_flags_reach_the_fields_of_nested_configs() -> None:
    config = from_options(Outer, parse("-lr", "2", "--path", "x", "--names", "b", "c", "--no-on", "--off"))
    assert config == Outer(path=Path("x"), names=["b", "c"], on=False, off=True, inner=Inner(rate=2.0))
    assert isinstance(config.inner.rate, float)


@pytest.mark.parametrize(("value", "wanted"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)])
def test_problems_name_the_flag(value: float, wanted: int) -> None:
    problems = problems_of(Inner(limit=value))
    assert problems == [f"--limit: {value}, expected more than 0"] * wanted
