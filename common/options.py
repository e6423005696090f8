"""Options typed once: a dataclass field carries its flag, its help and its check, and add_fields makes the flags of a group."""

from __future__ import annotations

import argparse
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

Config = TypeVar("Config")


class Check(NamedTuple):
    """A condition on a value, and the words for it in an error message."""

    holds: Callable[[Any], bool]
    expected: str


ABOVE_ZERO = Check(lambda x: 0 < x < math.inf, "more than 0")
NOT_NEGATIVE = Check(lambda x: 0 <= x < math.inf, "0 or more")
AT_LEAST_ONE = Check(lambda x: x >= 1, "at least 1")


def option(default: Any, help: str, *aliases: str, check: Check | None = None, **settings: Any) -> Any:
    """A dataclass field that is also a flag: `prenet_dim: int = option(256, "units of each prenet layer")`.

    `aliases` are further names of the flag, such as "-bs"; `settings` go to argparse's add_argument and override the type that the
    annotation implies; `flag="--fp16"` among them replaces the flag's name. A list becomes the default by a copy.
    """
    metadata = {"help": help, "aliases": aliases, "check": check, "settings": settings}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def add_fields(group: argparse._ActionsContainer, config: type, *names: str, **defaults: Any) -> None:
    """Add the flags of a config's options: of all, or of those with the given names. `defaults` replace the fields' own."""
    for option_field in fields(config):
        if "help" in option_field.metadata and (not names or option_field.name in names):
            _add_field(group, config, option_field, defaults.get(option_field.name, default_of(option_field)))


def _add_field(group: argparse._ActionsContainer, config: type, option_field: Field, default: Any) -> None:
    metadata, kind = option_field.metadata, _hints(config)[option_field.name]
    settings = dict(metadata["settings"])
    flag = settings.pop("flag", flag_of(option_field.name))
    if kind is bool:
        settings.setdefault("action", argparse.BooleanOptionalAction if default else "store_true")
    elif "action" not in settings:
        settings.setdefault("type", _plain_type(kind))
    group.add_argument(
        *metadata["aliases"],
        flag,
        dest=option_field.name,
        default=default,
        help=metadata["help"],
        **settings,
    )


def flag_of(name: str) -> str:
    """Return the flag of an option: learning_rate -> --learning-rate."""
    return "--" + name.replace("_", "-")


def default_of(option_field: Field) -> Any:
    """Return a field's default, None where it has none."""
    if option_field.default_factory is not MISSING:
        return option_field.default_factory()
    return None if option_field.default is MISSING else option_field.default


def problems_of(config: Any) -> list[str]:
    """List the options of a config whose values fail their check, each by its flag; None passes."""
    values = [(f.name, getattr(config, f.name), f.metadata.get("check")) for f in fields(config)]
    return [
        f"{flag_of(name)}: {value}, expected {check.expected}"
        for name, value, check in values
        if check and value is not None and not check.holds(value)
    ]


def from_options(config: type[Config], options: Mapping[str, Any]) -> Config:
    """Build a dataclass from the options that are among its fields; the others keep their defaults.

    A field whose type is itself a dataclass is built from the same options.
    """
    hints, values = _hints(cast(Any, config)), {}
    for option_field in fields(config):  # type: ignore[arg-type]
        if option_field.name in options:
            values[option_field.name] = options[option_field.name]
        elif is_dataclass(hints[option_field.name]):
            values[option_field.name] = from_options(hints[option_field.name], options)
    return config(**values)


@cache
def _hints(config: Any) -> dict[str, Any]:
    return get_type_hints(config)


def _plain_type(kind: Any) -> Any:
    """Return the type of one value on the command line: int for `int | None`, str for `tuple[str, ...]`."""
    origin, inner = get_origin(kind), [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if origin in (Union, types.UnionType) or (origin is not None and inner):
        return _plain_type(inner[0])
    return kind
