"""Fast ways: objects that compute the same as a plain model in less time. Each model package has a fast/table.py.

A plain model never refers to them. A fast way for training shares the plain model's parameters; one for inference has rearranged
copies. The plain model stays unchanged. A way whose plain code has been edited is not taken: what runs is what was edited.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from torch import nn

from common.edits import Origin, find_edits
from common.errors import listed

Phase = Literal["training", "inference"]
Module = TypeVar("Module", bound=nn.Module)


class Request(NamedTuple):
    """The flags that choose between fast ways: --fp16, --int8, --recompute and --compile."""

    half: bool = False
    int8: bool = False
    recompute: bool = False
    compile: str = ""  # the mode; empty if not requested


@dataclass(frozen=True, kw_only=True)
class FastWay:
    """One row of a table: a converter from a plain model to an object with the same forward (training) or infer (inference)."""

    name: str
    phase: Phase
    applies: Callable[[Any, Request], bool]  # plain model, request -> True if this way is requested, can run and pays
    convert: Callable[[Any, Request], nn.Module]  # plain model, request -> the fast object
    tolerance: float  # largest error of the outputs, relative to the plain model's largest, for weights of usual size
    origin: Origin | None = None  # the plain code that it has a second copy of; None: it runs the plain code itself
    cost: str = ""  # what the plain model takes in comparison, for a note where it has to run instead


class Accelerated(NamedTuple):
    """A fast way's object, or the plain model, and a note on an edit that made it so."""

    model: nn.Module
    note: str = ""


def accelerate(model: nn.Module, ways: Iterable[FastWay], phase: Phase, request: Request) -> Accelerated:
    """Convert a plain model by the first way of the phase that applies; keep the model itself if none does.

    A way is left out where the code or the layers that it has a second copy of have been edited.
    """
    note = ""
    for way in ways:
        if way.phase != phase or not way.applies(model, request):
            continue
        edits = find_edits(way.origin, model) if way.origin else []
        if not edits:
            return Accelerated(way.convert(model, request), note)
        note = note or _note(way, edits)
    return Accelerated(model, note)


def _note(way: FastWay, edits: list[str]) -> str:
    return (
        f"edited: {listed(edits)}; so the plain model runs in place of its fast way {way.name!r} and takes {way.cost}; "
        '"Change a model" in docs/architecture.md says how to make it fast again'
    )


def shallow_copy(model: nn.Module, as_class: type[Module], **children: nn.Module) -> Module:
    """Copy a module as its own class or a subclass, with some children replaced; the module stays unchanged.

    The copy shares the module's parameters, buffers, other children and hooks, but not its tables of them. Later changes to the
    module's attributes do not affect it.
    """
    twin = copy.copy(model)
    vars(twin).update({name: copy.copy(table) for name, table in vars(model).items() if isinstance(table, (dict, set))})
    twin._modules.update(children)
    twin.__class__ = as_class
    assert isinstance(twin, as_class)
    return twin
