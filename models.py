"""Registry of models: build one by name, or from a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import tacotron2.spec
import waveglow.spec
from common.checkpoint.files import current_layout, load_checkpoint, load_weights
from common.errors import DataError, UsageError
from common.spec import ModelSpec

REGISTRY: dict[str, ModelSpec] = {spec.name: spec for spec in (tacotron2.spec.SPEC, waveglow.spec.SPEC)}


# Errors that malformed values of a config lead to.
UNBUILDABLE = (ValueError, AttributeError, ArithmeticError, LookupError, RuntimeError)
CREATORS = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
TOO_LARGE = "the config describes a larger model than the weights are"
SPARE_ELEMENTS, SPARE_TENSORS = 2**20, 1000  # beside twice those of the file: layouts differ a little


class _FillFromFile(TorchFunctionMode):
    """Build a model within this context for the weights of a file: without random numbers, and no larger than they are.

    A config may describe a model that fills the memory. Raises DataError before that.

    torch.device("meta") would need no memory either, but several of its operations load PyTorch's compiler, which takes seconds.
    """

    def __init__(self, weights: Mapping[str, Any]) -> None:
        super().__init__()
        tensors = [value for value in weights.values() if isinstance(value, Tensor)]
        self.elements = 2 * sum(tensor.numel() for tensor in tensors) + SPARE_ELEMENTS
        self.tensors = 2 * len(tensors) + SPARE_TENSORS

    def check_sizes(self, config: Any) -> None:
        """Raise DataError for a number in nested settings that is larger than the count of all weights."""
        values = config.values() if isinstance(config, Mapping) else config if isinstance(config, (list, tuple)) else ()
        for value in values:
            self.check_sizes(value)
        if isinstance(config, int) and config > self.elements:
            raise DataError(TOO_LARGE)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in CREATORS:
            size = kwargs.get("size", args[0] if args and isinstance(args[0], (tuple, list)) else args)
            self.elements -= math.prod(size)
            self.tensors -= 1
            if min(self.elements, self.tensors) < 0:
                raise DataError(TOO_LARGE)
        if function in (Tensor.normal_, Tensor.uniform_) or getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def get_spec(name: str) -> ModelSpec:
    """Return the spec of a registered model. Raises UsageError, which lists the names."""
    if name not in REGISTRY:
        raise UsageError(f"--model-name: {name!r}, expected one of {', '.join(REGISTRY)}")
    return REGISTRY[name]


def get_model(name: str, config: Mapping[str, Any], uniform_initialize_bn_weight: bool = False) -> nn.Module:
    """Build a model with random weights, on the CPU, in float32; optionally with BatchNorm weights uniform in [0, 1)."""
    try:
        model = get_spec(name).build(**config)
    except TypeError as error:
        raise DataError(f"{name} config: {error}") from error
    if uniform_initialize_bn_weight:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                nn.init.uniform_(module.weight)
    return model


def restore_model(spec: ModelSpec, checkpoint: Mapping[str, Any], path: Path | str) -> nn.Module:
    """Build the model of a checkpoint from its config, with its weights, or their moving average if it has one.

    Raises DataError if config or weights are missing or do not fit.
    """
    if "config" not in checkpoint:
        raise DataError(f"{path}: no `config` in this checkpoint, so the {spec.name} it holds cannot be rebuilt")
    weights = {"state_dict": checkpoint.get("ema_state_dict") or checkpoint["state_dict"]}
    try:
        with _FillFromFile(weights["state_dict"]) as filling:
            config = checkpoint["config"]
            filling.check_sizes({key: value for key, value in config.items() if key not in spec.free_at_inference})
            model = get_model(spec.name, checkpoint["config"])
    except UNBUILDABLE as error:  # the config of a file causes it, even if the message names a flag
        raise DataError(f"{path}: {error}; is it a checkpoint of {spec.name}?") from None
    load = partial(nn.Module.load_state_dict, assign=True)
    load_weights(model, current_layout(weights, spec.upgrade_state_dict), Path(path), load)
    return model


def load_model(name: str, path: Path | str) -> nn.Module:
    """Load the model of a checkpoint file, on the CPU, in evaluation mode."""
    return restore_model(get_spec(name), load_checkpoint(Path(path)), path).eval()
