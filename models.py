"""Registry of models: build one by its name, or load it from a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

import pulse_noise.spec
import tacotron2.spec
import waveglow.spec
from common import precision
from common.arguments import add_audio_arguments, model_options
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import build_model, restore_model
from common.errors import UsageError
from common.parser import Parser
from common.spec import ModelSpec, Published

# The published recipe, and beside it a vocoder that trains in minutes.
RECIPE: dict[str, ModelSpec] = {spec.name: spec for spec in (tacotron2.spec.SPEC, waveglow.spec.SPEC)}
REGISTRY: dict[str, ModelSpec] = RECIPE | {pulse_noise.spec.SPEC.name: pulse_noise.spec.SPEC}


def get_spec(name: str) -> ModelSpec:
    """Return the spec of a registered model. Raises UsageError, which lists the names."""
    if name not in REGISTRY:
        raise UsageError(f"--model-name: {name!r}, expected one of {', '.join(REGISTRY)}")
    return REGISTRY[name]


def acoustic_spec() -> ModelSpec:
    """Return the spec of the model that reads texts."""
    return next(spec for spec in REGISTRY.values() if spec.role == "acoustic")


def get_model(
    name: str,
    config: Mapping[str, Any],
    cpu_run: bool | None = None,
    uniform_initialize_bn_weight: bool = False,
    forward_is_infer: bool = False,
    jittable: bool = False,
) -> nn.Module:
    """Build a model with random weights in float32, optionally with BatchNorm weights drawn uniformly from [0, 1).

    It is on the CPU. For scripts written for the published recipe `cpu_run`, if given, makes it as_published. `jittable` has no
    effect, since every plain model is.
    """
    model = build_model(get_spec(name), config)
    if uniform_initialize_bn_weight:
        init_bn(model)
    return model if cpu_run is None else as_published(name, model, cpu_run, forward_is_infer)


def init_bn(module: nn.Module) -> None:
    """Draw all BatchNorm weights uniformly from [0, 1)."""
    for inner in module.modules():
        if isinstance(inner, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(inner.weight)


def as_published(name: str, model: nn.Module, cpu_run: bool, forward_is_infer: bool = False) -> nn.Module:
    """Have a model take its arguments in one tuple, too, as batch_to_gpu gives them, or `infer` when it is called.

    Unless `cpu_run`, it is moved to the GPU if there is one.
    """
    if forward_is_infer:
        model.forward = model.infer  # type: ignore[assignment]
    elif published := get_spec(name).published:
        model.register_forward_pre_hook(partial(_unpack, published))
    return model.to(precision.pick_device(cpu=cpu_run))


def _unpack(published: Published, model: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return published.arguments_of(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else args


def published_of(name: str) -> Published:
    """Return what the published recipe's scripts call of a model. Raises UsageError for one that it does not have."""
    if found := get_spec(name).published:
        return found
    raise UsageError(
        f"{name}: no model of the published recipe, whose data loaders it lacks; data_functions.get_loaders has it"
    )


def model_parser(name: str, parser: argparse.ArgumentParser, add_help: bool = False) -> argparse.ArgumentParser:
    """Build a parser with the flags of another one, of audio, and of a model."""
    wider = Parser(parents=[parser], add_help=add_help, conflict_handler="resolve")
    add_audio_arguments(wider)
    get_spec(name).add_arguments(wider)
    return wider


def get_model_config(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return a model's config from parsed flags, with the defaults of those that are not there."""
    return get_spec(name).config_from_options(default_options() | vars(args))


def load_model(name: str, path: Path | str) -> nn.Module:
    """Load the model of a checkpoint file, on the CPU, in evaluation mode."""
    return restore_model(get_spec(name), load_checkpoint(Path(path)), path).eval()


def default_options() -> dict[str, Any]:
    """Return the defaults of all flags of audio and of the models by name."""
    return model_options(REGISTRY.values())


def recognise(checkpoint: Mapping[str, Any], specs: Iterable[ModelSpec]) -> ModelSpec:
    """Return the model of a checkpoint among several: the one with most of its config's keys, the first if it has none."""
    stored = checkpoint.get("config", {})
    return max(specs, key=lambda spec: len(stored.keys() & spec.config_from_options(default_options()).keys()))
