"""Fast ways: objects that compute the same as a plain model in less time. Each model package has a fast/table.py.

A plain model never refers to them. A fast way for training shares the plain model's parameters; one for inference has rearranged
copies. The plain model stays unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from torch import nn

Phase = Literal["training", "inference"]
Module = TypeVar("Module", bound=nn.Module)


class Request(NamedTuple):
    """The flags that choose between fast ways: --fp16, --int8, --recompute, --compile and --graphs."""

    half: bool = False
    int8: bool = False
    recompute: bool = False
    compile: str = ""  # the mode; empty if not requested
    graphs: bool = False


@dataclass(frozen=True, kw_only=True)
class FastWay:
    """One row of a table: a converter from a plain model to an object with the same forward (training) or infer (inference)."""

    name: str
    phase: Phase
    applies: Callable[[Any, Request], bool]  # plain model, request -> True if this way is requested, can run and pays
    convert: Callable[[Any, Request], nn.Module]  # plain model, request -> the fast object
    tolerance: float  # largest error of the outputs, relative to the plain model's largest, for weights of usual size


def accelerate(model: nn.Module, ways: Iterable[FastWay], phase: Phase, request: Request) -> nn.Module:
    """Convert a plain model by the first way of the phase that applies; return the model itself if none does."""
    for way in ways:
        if way.phase == phase and way.applies(model, request):
            return way.convert(model, request)
    return model


def shallow_copy(model: nn.Module, as_class: type[Module], **children: nn.Module) -> Module:
    """Copy a module as its own class or a subclass, with some children replaced; the module stays unchanged.

    The copy shares the module's parameters, buffers and other children, but not its tables of them, nor its hooks. Later changes
    to the module's attributes do not affect it.
    """
    twin = copy.copy(model)
    vars(twin).update(vars(nn.Module()), training=model.training)  # a fresh module has no hooks
    for table in ("_parameters", "_buffers", "_modules"):
        vars(twin)[table] = dict(vars(model)[table])
    twin._non_persistent_buffers_set = set(model._non_persistent_buffers_set)
    twin._modules.update(children)
    twin.__class__ = as_class
    assert isinstance(twin, as_class)
    return twin
