"""Fine-tuning: initial weights from another run's checkpoint, and its settings where no flag names them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from common.audio.stft import AudioConfig
from common.checkpoint.files import find_last, load_checkpoint
from common.checkpoint.weights import current_layout, data_of, load_weights
from common.errors import DataError, UsageError, changes
from common.options import by_flag
from common.spec import ModelSpec, Options, WarmStart
from common.training.optimization import select_names
from common.training.options import TrainOptions
from common.training.snapshot import config_difference

ABSENT = object()
AUDIO = [field.name for field in fields(AudioConfig)]


def warm_start(model: nn.Module, spec: ModelSpec, path: Path, options: Options, ignored: Sequence[str]) -> str:
    """Load a checkpoint's weights into a fresh model, except those whose names match `ignored`. Returns a sentence on the result.

    Raises DataError if the other weights do not fit, UsageError for an expression without a match.
    """
    checkpoint = load_checkpoint(path)
    stored = data_of(checkpoint)
    averaged = checkpoint.get("ema_state_dict") or checkpoint["state_dict"]
    weights = current_layout({"state_dict": averaged}, spec.upgrade_state_dict)
    left_out = select_names([*model.state_dict(), *weights], ignored, "--ignore-layers") if ignored else set()
    weights = {name: value for name, value in weights.items() if name not in left_out}
    start = WarmStart(weights, stored, options, model)
    fresh = {name: value for name, value in model.state_dict().items() if name in left_out}
    try:
        weights, phrase = spec.transfer(start)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    try:
        load_weights(model, {**weights, **fresh}, path)
    except DataError as error:
        hint = "; leave what differs out with --ignore-layers REGEX, or take the file's settings"
        if "config" not in checkpoint:
            hint = (
                "; leave what differs out with --ignore-layers REGEX, or name its sizes by flags, as it has no config"
            )
        raise DataError(f"{error}{config_difference(checkpoint.get('config'), model)}{hint}") from None
    count = sum(value.numel() for value in weights.values())
    sentence = f"{path}: {count:,} weights as a warm start at epoch 0"
    anew = f"{len(fresh)} tensors start anew" if fresh else ""
    shared = {name: options[name] for name in AUDIO if name in stored and name in options}
    other = changes(by_flag(stored), by_flag(shared))
    mels = f"its mels have other settings: {', '.join(other)}" if other else ""
    return "; ".join(filter(None, (sentence, mels, anew, phrase, spec.assumed(stored, checkpoint.get("config", {})))))


def adopt_settings(
    options: TrainOptions, given: Options, spec: ModelSpec, actions: Mapping[str, argparse.Action]
) -> Options:
    """Return the settings of audio, text and the model, with the --warm-start checkpoint's own where no flag names them.

    `given` has the options that the user names. A named size that differs from the file's is a UsageError that names both, unless
    --ignore-layers leaves weights out. Named settings that are not sizes, such as dropout, replace the file's.
    """
    source, settings = _source(options, spec), dict(options.model)
    if not source.is_file():
        return settings  # the warm start itself names the file that is missing
    checkpoint = load_checkpoint(source)
    stored, config = data_of(checkpoint), checkpoint.get("config", {})
    text_and_audio = {*spec.stored_options, *AUDIO}
    for name in text_and_audio & set(stored) & set(settings) - set(given):
        settings[name] = stored[name]
    text = {name: settings[name] for name in spec.stored_options if name in settings}
    derived = set(spec.config_from_options(text))  # the size of an alphabet follows from its symbols
    problems = []
    for name, action in actions.items():
        if name in spec.stored_options:  # the model's transfer fits the weights to another text
            continue
        value = _stored_value(name, config, spec, action.default)
        if value is ABSENT or name in derived or name in text_and_audio - set(given):
            continue
        if name not in given:
            settings[name] = value
        elif given[name] != value and _is_size(name, value, spec) and not options.start.ignore_layers:
            flag = max(action.option_strings, key=len)
            problems.append(
                f"{flag}: {given[name]}, and {source} has {value}: leave {flag} out to take the file's settings, or leave what "
                "differs out with --ignore-layers REGEX"
            )
    if problems:
        raise UsageError("\n".join(problems))
    return settings


def _source(options: TrainOptions, spec: ModelSpec) -> Path:
    """Return the file with the settings: where a resumed run's --warm-start is gone, its own newest checkpoint."""
    start, resumes = options.start.warm_start, options.checkpoints.resume_from_last
    assert start is not None
    own = find_last(options.run.output, spec.name) if resumes and not start.is_file() else None
    return own or start


def _stored_value(name: str, config: Mapping[str, Any], spec: ModelSpec, default: Any) -> Any:
    """Return the config's value of an option, by default that of its flag, or ABSENT without a config or for another option."""
    marker = object()
    path = next(_paths(spec.config_from_options({name: marker}), marker), None)
    if path is None or not config:
        return ABSENT
    value: Any = config
    for key in path:
        value = value.get(key, default) if isinstance(value, Mapping) else default
    return value


def _paths(config: Mapping[str, Any], marker: object) -> Iterator[tuple[str, ...]]:
    """Yield the keys that lead to a value in nested settings."""
    for key, value in config.items():
        if value is marker:
            yield (key,)
        elif isinstance(value, Mapping):
            yield from ((key, *rest) for rest in _paths(value, marker))


def _is_size(name: str, value: Any, spec: ModelSpec) -> bool:
    """Return True if the shapes of weights depend on a setting: on an integer, or None for a size that is off."""
    return name not in spec.free_at_inference and not isinstance(value, (bool, float, str))
