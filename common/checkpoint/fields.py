"""The entries of a checkpoint besides its tensors, and the values that each may have, checked once on loading.

Every entry but the weights may be missing or None: files of the published recipe and bare weights have few. Entries not listed here
may be anything. A file is judged by what is read from it: only resuming needs the entries outside DESCRIBING.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from common.errors import shorten
from common.options import TEXT, Check, is_number, is_whole

DEEPEST, MOST_SETTINGS = 20, 100_000  # levels of nested settings, and values in all of them
LONGEST_VALUE = 40  # characters of a value in a message
Test = Callable[[Any], bool]


def whole(least: int, most: float = math.inf) -> Test:
    """Return a test for whole numbers, NumPy's included, within these limits."""
    return lambda value: is_whole(value) and least <= int(value) <= most


def named(tests: Mapping[str, Test], others: Test = lambda value: False) -> Test:
    """Return a test for a dict by name: each value passes the test of its name, or else `others`."""
    return lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(name, str) and tests.get(name, others)(item) for name, item in value.items())
    )


def is_settings(value: Any) -> bool:
    """True for nested dicts and lists of plain values, with strings as keys: at most MOST_SETTINGS in all.

    A list counts each time it occurs: a small file may repeat one list so often at every level that no reader could cope.
    """
    stack, left = [(value, 0)], MOST_SETTINGS
    while stack:
        item, depth = stack.pop()
        if isinstance(item, Mapping) and all(isinstance(key, str) for key in item):
            items = list(item.values())
        elif isinstance(item, (list, tuple)) and depth:
            items = list(item)
        elif depth and (item is None or isinstance(item, (str, bool, Real))):
            continue
        else:
            return False
        left -= len(items)
        if depth > DEEPEST or left < 0:
            return False
        stack += [(inner, depth + 1) for inner in items]
    return True


def is_tensor(value: Any) -> bool:
    """True for a tensor."""
    return isinstance(value, Tensor)


def is_optimizer(value: Any) -> bool:
    """True for the state_dict of a PyTorch optimizer, or an empty dict, which counts as none."""
    if not isinstance(value, Mapping) or not value:
        return isinstance(value, Mapping)
    groups, states = value.get("param_groups"), value.get("state")
    if not isinstance(groups, list) or not isinstance(states, Mapping):
        return False
    return all(map(IS_GROUP, groups)) and all(map(IS_AVERAGES, states.values()))


def is_scale(value: Any) -> bool:
    """True for a factor on losses in float16."""
    return is_number(value) and 0 < value <= torch.finfo(torch.float32).max


def is_scaler(value: Any) -> bool:
    """True for the state_dict of a GradScaler, empty where it is off."""
    return named({"scale": is_scale}, is_number)(value) and (not value or "scale" in value)


def is_apex_state(value: Any) -> bool:
    """True for the state of NVIDIA Apex's amp: loss scalers by name, each with its scale."""
    if not isinstance(value, Mapping):
        return False
    scalers = [state for name, state in value.items() if str(name).startswith("loss_scaler")]
    return all(isinstance(state, Mapping) and is_scale(state.get("loss_scale")) for state in scalers)


def is_random_state(value: Any) -> bool:
    """True for the bytes of a generator's state."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1 and value.numel() > 0


def is_random_states(value: Any) -> bool:
    """True for the states of several processes: the rows of a tensor, or a list."""
    if isinstance(value, Tensor):
        return value.dtype == torch.uint8 and value.dim() in (1, 2)
    return isinstance(value, (list, tuple)) and all(map(is_random_state, value))


IS_COUNT = whole(0, 2**62)  # that a tensor can hold
IS_EPOCH = whole(-1, 2**62)  # -1 stands for none
IS_GROUP = named({"lr": is_number}, lambda value: True)  # of an optimizer's weights
IS_AVERAGES = named({}, lambda value: value is None or is_tensor(value) or is_number(value))
# Of EpochTotals and TimePlan; the others of their numbers need not be whole.
COUNTS = ("iterations", "clips", "skipped", "dropped", "epochs", "timed")
IS_TOTALS = named(dict.fromkeys(COUNTS, IS_COUNT), is_number)
IS_LOSS = dict.fromkeys(("loss", "tie", "lowest_loss"), is_number)
IS_BEST = named({**IS_LOSS, "epoch": IS_EPOCH, "since": IS_COUNT, "by": TEXT.holds})
SHARPENED = "sharpened"  # the entry that says what a later training lost, so that train.py refuses to continue it
COUNT = Check(IS_COUNT, "a whole number from 0 to 2**62")
SETTINGS = Check(is_settings, "a dict of plain settings by name")
STATES = Check(is_random_states, "bytes (torch.uint8) of random generators")
KINDS = {
    "version": TEXT._replace(expected="a version of the recipe"),
    "epoch": Check(IS_EPOCH, "the number of an epoch"),
    "iteration": COUNT,
    "seed": Check(whole(0), "a whole number of at least 0"),
    "config": SETTINGS,
    "data": SETTINGS,
    "epoch_complete": Check(lambda value: isinstance(value, bool), "True or False"),
    "run": Check(is_settings, "settings by name"),
    "epoch_totals": Check(IS_TOTALS, "numbers by name"),
    "time_plan": Check(IS_TOTALS, "numbers by name"),
    "best": Check(IS_BEST, "a loss, its epoch, the validations since then and its measure"),
    "saved": Check(lambda value: isinstance(value, list) and all(map(IS_EPOCH, value)), "a list of epochs"),
    "launch": TEXT._replace(expected="a name"),
    SHARPENED: TEXT._replace(expected="a sentence"),
    "ema_state_dict": Check(named({}, is_tensor), "tensors by name"),
    "ema_updates": COUNT,
    "optimizer": Check(is_optimizer, "the state of an optimizer: state and param_groups"),
    "scaler": Check(is_scaler, "the state of a GradScaler, with a scale above 0"),
    "amp": Check(is_apex_state, "the state of Apex amp"),
    "random_rng_states_all": STATES,
    "random_rng_state": Check(is_random_state, "bytes (torch.uint8) of a random generator"),
    "cuda_rng_state_all": STATES,
}
DESCRIBING = ("config", "data", "ema_state_dict")  # the entries that a model is built and loaded from
MAY_BE_NONE = {"launch", "optimizer", "scaler", "amp", *(name for name, kind in KINDS.items() if kind is STATES)}


def without_empty(checkpoint: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a checkpoint without entries of KINDS that are None, which some readers would take for values."""
    absent = {name for name in KINDS if checkpoint.get(name) is None} - MAY_BE_NONE
    kept = {key: value for key, value in checkpoint.items() if key not in absent}
    stripped = isinstance(kept.get("optimizer"), Mapping) and not kept["optimizer"]
    return kept | ({"optimizer": None} if stripped else {})


def without_training(checkpoint: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a checkpoint without the malformed entries that only resuming needs."""
    wrong = {name for name in KINDS if name not in DESCRIBING and _problems_of(name, checkpoint)}
    return {key: value for key, value in checkpoint.items() if key not in wrong}


def _problems_of(name: str, checkpoint: Mapping[Any, Any]) -> list[str]:
    value = checkpoint.get(name)
    return [] if value is None else KINDS[name].problems(name, value, describe)


def problems(checkpoint: Mapping[Any, Any], resuming: bool = True) -> Iterator[str]:
    """Yield a sentence for each entry of a checkpoint that fails its check in KINDS, of DESCRIBING alone unless `resuming`."""
    for name in KINDS if resuming else DESCRIBING:
        yield from _problems_of(name, checkpoint)
    if odd := [key for key in checkpoint["state_dict"] if not isinstance(key, str)]:
        yield f"state_dict: the name {describe(odd[0])}, expected strings"
    if odd := [item for item in checkpoint["state_dict"].items() if not isinstance(item[1], Tensor)]:
        yield f"state_dict: {describe(odd[0][0])}: {describe(odd[0][1])}, expected a tensor"
    if resuming and checkpoint.get("epoch_complete") is False:
        missing = [name for name in ("epoch", "iteration") if checkpoint.get(name) is None]
        missing += ["epoch_totals"] if "iterations" not in (checkpoint.get("epoch_totals") or ()) else []
        yield from (f"{name}: missing, though the epoch is not complete" for name in missing)


def describe(value: Any) -> str:
    """Describe a value in a few words, however large it is."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (str, bytes, bool, Real)):
        return shorten(repr(value), LONGEST_VALUE)
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (Mapping, list, tuple)) else "")
