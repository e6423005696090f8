"""Weights into models: old names and layouts brought up to date, and a model built to the size of the weights in a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from common.audio.stft import AudioConfig
from common.errors import DataError, listed
from common.spec import ModelSpec, Options, SpeechStage

WRAPPERS = re.compile(r"^(?:module\.(?:1\.)?)+")  # DistributedDataParallel, and the old recipe's wrapper around it
UNBUILDABLE = (ValueError, AttributeError, ArithmeticError, LookupError, RuntimeError)  # raised for malformed configs
CREATORS = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
TOO_LARGE = "the config describes a larger model than the weights are"
SPARE_ELEMENTS, SPARE_TENSORS = 2**20, 1000  # on top of twice the file's own: layouts differ a little


def clean_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the model's own names (no leading `module.` or `module.1.`), in float32 whatever the float type."""
    return {
        WRAPPERS.sub("", name): value.float() if value.is_floating_point() else value
        for name, value in state_dict.items()
    }


def current_layout(
    checkpoint: Mapping[str, Any], upgrade: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Convert a checkpoint's weights of any published layout to the current names and to float32."""
    return upgrade(clean_state_dict(checkpoint["state_dict"]))


def load_weights(
    model: nn.Module, state_dict: Mapping[str, Any], path: Path, load: Callable[..., Any] = nn.Module.load_state_dict
) -> None:
    """Load `state_dict`, read from `path`, into `model` by load(model, state_dict).

    Raises one DataError that lists all missing and unknown names and all shapes and kinds of numbers that differ, or else the
    weights that are NaN or infinite.
    """
    wanted = {name: _form(value) for name, value in model.state_dict().items()}
    found = {name: _form(value) for name, value in state_dict.items()}
    missing = [name for name in wanted if name not in found]
    unexpected = [name for name in found if name not in wanted]
    differing = [
        f"{name}: {found[name]} in file, {shape} in model"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    counts = {"missing": missing, "unexpected": unexpected, "of another shape": differing}
    faults = [f"{len(names)} {kind} ({listed(names)})" for kind, names in counts.items() if names]
    if faults:
        raise DataError(f"{path}: not this model's weights: {'; '.join(faults)}; check the model's name and config")
    if broken := not_finite(state_dict):
        raise DataError(f"{path}: NaN or infinite weights: {listed(broken)}; go back to an older checkpoint")
    load(model, dict(state_dict))


def not_finite(state_dict: Mapping[str, Tensor]) -> list[str]:
    """List the names of the weights that are NaN or infinite."""
    return [name for name, value in state_dict.items() if not value.isfinite().all()]


def _form(value: Tensor) -> tuple[int | str, ...]:
    """Return the shape of a weight, with its dtype unless that is a float type."""
    shape = tuple(value.shape)
    return shape if value.is_floating_point() else (*shape, str(value.dtype).removeprefix("torch."))


def data_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint's settings of text and audio; those of audio that it lacks come from its config."""
    config = checkpoint.get("config", {})
    return {name.name: config[name.name] for name in fields(AudioConfig) if name.name in config} | checkpoint.get(
        "data", {}
    )


def data_to_store(options: Options, spec: SpeechStage) -> dict[str, Any]:
    """Return the settings of text and audio that a checkpoint stores, since inference has to share them with training."""
    return {name: options[name] for name in (*(field.name for field in fields(AudioConfig)), *spec.stored_options)}


class FillFromFile(TorchFunctionMode):
    """Context for building the model that a file's weights will fill: draws no random weights, and guards the memory.

    A hostile or damaged config may describe a model that fills the memory; this raises DataError before it does. Without `guard`,
    for sizes that are not the file's, it does not. torch.device("meta") would need no memory either, but several of its operations
    load PyTorch's compiler, which takes seconds.
    """

    def __init__(self, weights: Mapping[str, Tensor], guard: bool = True) -> None:
        super().__init__()
        self.elements = 2 * sum(tensor.numel() for tensor in weights.values()) + SPARE_ELEMENTS if guard else math.inf
        self.tensors = 2 * len(weights) + SPARE_TENSORS if guard else math.inf

    def check_sizes(self, config: Any) -> None:
        """Raise DataError if the nested settings hold a number larger than the number of all weights."""
        if isinstance(config, Mapping):
            config = list(config.values())
        if isinstance(config, (list, tuple)):
            for value in config:
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


def build_model(spec: ModelSpec, config: Mapping[str, Any]) -> nn.Module:
    """Build a model with random weights. Raises DataError for unknown keys in the config."""
    try:
        return spec.build(**config)
    except TypeError as error:
        raise DataError(f"{spec.name} config: {error}") from error


def restore_model(
    spec: ModelSpec, checkpoint: Mapping[str, Any], path: Path | str, settings: Mapping[str, Any] | None = None
) -> nn.Module:
    """Build the model of a checkpoint from its config and load its weights, or their moving average if it has one.

    Args:
        spec: the model.
        checkpoint: its content.
        path: its file, for messages.
        settings: config keys of the user, which replace the file's, or all of those that a file without a config lacks.

    Raises:
        DataError: a config or weights that do not fit.
    """
    weights = {"state_dict": checkpoint.get("ema_state_dict") or checkpoint["state_dict"]}
    config = {**checkpoint.get("config", {}), **(settings or {})}
    try:
        with FillFromFile(weights["state_dict"], guard="config" in checkpoint) as filling:
            filling.check_sizes({key: value for key, value in config.items() if key not in spec.free_at_inference})
            model = build_model(spec, config)
    except UNBUILDABLE as error:  # the file's config is at fault, even if the message names a flag
        raise DataError(f"{path}: {error}; is it a checkpoint of {spec.name}?") from None
    load = partial(nn.Module.load_state_dict, assign=True)
    try:
        load_weights(model, current_layout(weights, spec.upgrade_state_dict), Path(path), load)
    except DataError as error:
        if "config" in checkpoint:
            raise
        raise DataError(f"{error}; the file has no config, so the flags of the model have to name its sizes") from None
    return model
