"""Options written once: a dataclass field carries its flag, help and check; add_fields makes the flags of a group from it."""

from __future__ import annotations

import argparse
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from common.errors import UsageError
from common.parser import Parser

Config = TypeVar("Config")


class Check(NamedTuple):
    """A condition on a value, and how an error message describes it."""

    holds: Callable[[Any], bool]
    expected: str

    def problems(self, name: str, value: Any, show: Callable[[Any], str] = repr) -> list[str]:
        """The sentence about a value for which the condition does not hold; empty if it holds."""
        return [] if self.holds(value) else [f"{name}: {show(value)}, expected {self.expected}"]


def is_number(value: Any) -> bool:
    """True for a number, NumPy's included, that is not NaN."""
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def is_whole(value: Any) -> bool:
    """True for an integer, NumPy's included."""
    return isinstance(value, Integral) and not isinstance(value, bool)


TEXT = Check(lambda value: isinstance(value, str), "text")
NUMBER = Check(lambda value: is_number(value) and abs(value) < math.inf, "a number")
WHOLE_NUMBER = Check(is_whole, "a whole number")
ABOVE_ZERO = Check(lambda x: 0 < x < math.inf, "more than 0")
POSITIVE = Check(lambda x: x > 0, "more than 0")  # infinity too, which switches a limit off
NOT_NEGATIVE = Check(lambda x: 0 <= x < math.inf, "0 or more")
AT_LEAST_ONE = Check(lambda x: x >= 1, "at least 1")
COUNT = Check(lambda x: is_whole(x) and x >= 1, "a whole number of at least 1")
TRUTH = Check(lambda x: isinstance(x, bool), "True or False")


def option(
    default: Any, help: str, *aliases: str, flag: str = "", group: str = "", check: Check | None = None, **settings: Any
) -> Any:
    """A dataclass field that is also a flag: `prenet_dim: int = option(256, "units of each prenet layer")`.

    `aliases` are further names of the flag, such as "-bs"; `flag` replaces the name that the field implies, and with it the name
    of the parsed option unless `dest` is given too. `group` is its heading in the help. `settings` go to argparse's add_argument
    and override the type that the annotation implies. Each config and each parser gets its own copy of a default that is a list
    or a dictionary.
    """
    metadata = {"help": help, "aliases": aliases, "flag": flag, "group": group, "check": check, "settings": settings}
    if isinstance(default, (list, dict)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def argument(help: str, default: Any = MISSING, **settings: Any) -> Any:
    """A dataclass field that is a positional argument of the command line."""
    return option(default, help, positional=True, **settings)


def section(config: type, group: str = "") -> Any:
    """A dataclass field that holds a config, whose flags have this heading in the help unless they name another."""
    return field(default_factory=config, metadata={"section": group})


def add_fields(
    container: argparse._ActionsContainer, config: type, *names: str, group: str = "", **defaults: Any
) -> None:
    """Add the flags of a config's options and of the configs in it: of all, or of those with the given names.

    `defaults` replace the fields' own. Where the container is a parser, flags with a group come under its heading; `group` is
    that of flags that name none.
    """
    for option_field in fields(config):
        if names and option_field.name not in names:
            continue
        if "section" in option_field.metadata:
            inner = _hints(config)[option_field.name]
            add_fields(container, inner, group=option_field.metadata["section"] or group, **defaults)
        elif "help" in option_field.metadata:
            default = defaults.get(option_field.name, default_of(option_field))
            _add_field(_headed(container, option_field.metadata["group"] or group), config, option_field, default)


def _headed(container: argparse._ActionsContainer, group: str) -> argparse._ActionsContainer:
    """Return a parser's group of flags with this heading, made on its first use; the container itself if it is a group."""
    if not group or not isinstance(container, argparse.ArgumentParser):
        return container
    known = (one for one in container._action_groups if one.title == group)
    return next(known, None) or container.add_argument_group(group)


def _add_field(group: argparse._ActionsContainer, config: type, option_field: Field, default: Any) -> None:
    metadata, kind = option_field.metadata, _hints(config)[option_field.name]
    settings = {**metadata["settings"]}
    if kind is bool:
        settings.setdefault("action", argparse.BooleanOptionalAction if default else "store_true")
    elif "action" not in settings:
        settings.setdefault("type", _plain_type(kind))
    if settings.pop("positional", False):
        group.add_argument(option_field.name, default=default, help=metadata["help"], **settings)
        return
    settings.setdefault("dest", option_name(option_field))
    names = (*metadata["aliases"], flag_of_field(option_field))
    group.add_argument(*names, default=default, help=metadata["help"], **settings)


def parse_options(
    config: type[Config], prog: str, description: str | None, argv: Sequence[str] | None = None
) -> Config:
    """Parse a command whose flags and arguments are all fields of a config, and build the config."""
    parser = Parser(prog=prog, description=description)
    add_fields(parser, cast(type, config))
    return from_options(config, vars(parser.parse_args(argv)))


def flag_of(name: str) -> str:
    """Return the flag of an option: learning_rate -> --learning-rate."""
    return "--" + name.replace("_", "-")


def flag_of_field(option_field: Field) -> str:
    """Return the flag of a config's field."""
    return option_field.metadata.get("flag") or flag_of(option_field.name)


def option_name(option_field: Field) -> str:
    """Return the name of a field's value among parsed options: the field's own, unless its flag has another."""
    settings = option_field.metadata.get("settings", {})
    return settings.get("dest") or flag_of_field(option_field).removeprefix("--").replace("-", "_")


def default_of(option_field: Field) -> Any:
    """Return a field's default, None where it has none."""
    if option_field.default_factory is not MISSING:
        return option_field.default_factory()
    return None if option_field.default is MISSING else option_field.default


def problems_of(config: Any) -> list[str]:
    """List the options of a config, and of those in it, that fail their check, each by its flag; None passes if the type has it."""
    problems = []
    for option_field in fields(config):
        value, check = getattr(config, option_field.name), option_field.metadata.get("check")
        if is_dataclass(value):
            problems += problems_of(value)
        elif check and (
            value is not None or type(None) not in get_args(_hints(cast(Any, type(config)))[option_field.name])
        ):
            problems += check.problems(flag_of_field(option_field), value, str)
    return problems


def check_fields(config: Any) -> None:
    """Raise one UsageError for all options of a config that fail their check."""
    if problems := problems_of(config):
        raise UsageError("; ".join(problems))


def by_flag(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options by their flags."""
    return {flag_of(name): value for name, value in options.items()}


def values_of(config: Any) -> dict[str, Any]:
    """Return the options of a config and of the configs in it, by name."""
    values: dict[str, Any] = {}
    for option_field in fields(config):
        value = getattr(config, option_field.name)
        values |= values_of(value) if is_dataclass(value) else {option_name(option_field): value}
    return values


def from_options(config: type[Config], options: Mapping[str, Any]) -> Config:
    """Build a dataclass from the options that are among its fields; the others keep their defaults.

    A field whose type is itself a dataclass is built from the same options.
    """
    hints, values = _hints(cast(Any, config)), {}
    for option_field in fields(config):  # type: ignore[arg-type]
        if (name := option_name(option_field)) in options:
            values[option_field.name] = options[name]
        elif is_dataclass(hints[option_field.name]):
            values[option_field.name] = from_options(hints[option_field.name], options)
    return config(**values)


def given_fields(config: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of those fields of a config that are among the options."""
    names = {option_field.name: option_name(option_field) for option_field in fields(config)}
    return {field_name: options[name] for field_name, name in names.items() if name in options}


@cache
def _hints(config: Any) -> dict[str, Any]:
    return get_type_hints(config)


def _plain_type(kind: Any) -> Any:
    """Return the type of one value on the command line: int for `int | None`, str for `tuple[str, ...]`."""
    origin, inner = get_origin(kind), [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if origin in (Union, types.UnionType) or (origin is not None and inner):
        return _plain_type(inner[0])
    return kind
