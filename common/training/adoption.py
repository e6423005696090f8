"""The settings of a --warm-start checkpoint: a run that names no sizes takes the checkpoint's."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from common.audio.stft import AudioConfig
from common.checkpoint.files import find_last, load_checkpoint
from common.errors import UsageError
from common.spec import ModelSpec, Options

ABSENT = object()


def adopt_settings(
    args: argparse.Namespace, given: Options, spec: ModelSpec, actions: Mapping[str, argparse.Action]
) -> None:
    """Set the options that no flag names to those of the --warm-start checkpoint: audio, text, and the model's config.

    `given` has the options that the user names. A named size that differs from the file's is a UsageError that names both, unless
    --ignore-layers leaves weights out. Named settings that are no size, dropout for example, replace the file's.
    """
    source = _source(args, spec)
    if not source.is_file():
        return  # the warm start itself names the file that is missing
    checkpoint = load_checkpoint(source)
    stored, config = checkpoint.get("data", {}), checkpoint.get("config", {})
    text_and_audio = {*spec.stored_options, *(field.name for field in fields(AudioConfig))}
    for name in text_and_audio & set(stored) & set(vars(args)) - set(given):
        setattr(args, name, stored[name])
    text = {name: getattr(args, name) for name in spec.stored_options if hasattr(args, name)}
    derived = set(spec.config_from_options(text))  # the size of an alphabet follows from its symbols
    problems = []
    for name, action in actions.items():
        if name in spec.stored_options:  # the model's transfer fits the weights to another text
            continue
        value = _stored_value(name, config, spec)
        if value is ABSENT or name in derived or name in text_and_audio - set(given):
            continue
        if name not in given:
            setattr(args, name, value)
        elif given[name] != value and _is_size(name, value, spec) and not args.ignore_layers:
            problems.append(_conflict(action, given[name], value, args.warm_start))
    if problems:
        raise UsageError("\n".join(problems))


def _source(args: argparse.Namespace, spec: ModelSpec) -> Path:
    """Return the file with the settings; where a resumed run's --warm-start is gone, its own newest checkpoint."""
    start: Path = args.warm_start
    own = find_last(args.output, spec.name) if args.resume_from_last and not start.is_file() else None
    return own or start


def _stored_value(name: str, config: Mapping[str, Any], spec: ModelSpec) -> Any:
    """Return the config's value of an option, or ABSENT."""
    marker = object()
    path = next(_paths(spec.config_from_options({name: marker}), marker), None)
    value: Any = ABSENT if path is None else config
    for key in path or ():
        value = value.get(key, ABSENT) if isinstance(value, Mapping) else ABSENT
    return value


def _paths(config: Mapping[str, Any], marker: object) -> Iterator[tuple[str, ...]]:
    """Yield the keys that lead to a value in nested settings."""
    for key, value in config.items():
        if value is marker:
            yield (key,)
        elif isinstance(value, Mapping):
            yield from ((key, *rest) for rest in _paths(value, marker))


def _is_size(name: str, value: Any, spec: ModelSpec) -> bool:
    """Return True if the shapes of weights depend on a setting: an integer, or None for one that is off."""
    return name not in spec.free_at_inference and not isinstance(value, (bool, float, str))


def _conflict(action: argparse.Action, named: Any, value: Any, path: Path) -> str:
    flag = max(action.option_strings, key=len)
    return (
        f"{flag}: {named}, and {path} has {value}: leave {flag} out to take the file's settings, or leave what differs out "
        "with --ignore-layers REGEX"
    )
