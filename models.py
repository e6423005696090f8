"""Registry of models: build one by its name, or load it from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

import pulse_noise.spec
import tacotron2.spec
import waveglow.spec
from common.arguments import model_options
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import build_model, restore_model
from common.errors import UsageError
from common.spec import ModelSpec

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


def get_model(name: str, config: Mapping[str, Any], uniform_initialize_bn_weight: bool = False) -> nn.Module:
    """Build a model with random weights on the CPU in float32, optionally with BatchNorm weights drawn uniformly from [0, 1)."""
    model = build_model(get_spec(name), config)
    if uniform_initialize_bn_weight:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                nn.init.uniform_(module.weight)
    return model


def load_model(name: str, path: Path | str) -> nn.Module:
    """Load the model of a checkpoint file, on the CPU, in evaluation mode."""
    return restore_model(get_spec(name), load_checkpoint(Path(path)), path).eval()


def default_options() -> dict[str, Any]:
    """Return the defaults of all flags of audio and of the models by name."""
    return model_options(REGISTRY.values())


def recognise(path: Path, specs: Sequence[ModelSpec]) -> ModelSpec:
    """Return the model of a checkpoint among several: the one with most of its config's keys, the first if it has none.

    Raises DataError for a file that cannot be read.
    """
    stored = load_checkpoint(path).get("config", {}) if specs[1:] else {}
    return max(specs, key=lambda spec: len(stored.keys() & spec.config_from_options(default_options()).keys()))
