"""Optimizer, learning rates, the weights that flags select by name, and the average of the weights over time."""

from __future__ import annotations

import argparse
import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from common.errors import UsageError
from common.kernels.private_ops import move_towards
from common.layers import flatten_lstms
from common.options import ABOVE_ZERO, NOT_NEGATIVE, Check, option
from common.training.sharding import gather_full, shard_like

OPTIMIZERS = ("fused-adam", "adam", "apex-fused-adam")
SCHEDULES = ("step", "cosine", "constant")
RATE = "learning rate"  # heading of its flags in the help
NORMS = nn.modules.batchnorm._BatchNorm
LR_SCALINGS = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}  # exponent: the rate grows by this power of the batch's growth


class RateFactor(NamedTuple):
    """A factor on the learning rate of the weights whose names match."""

    pattern: str
    factor: float


def pattern(text: str) -> str:
    """An argparse type: a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def rate_factor(text: str) -> RateFactor:
    """An argparse type: REGEX=FACTOR."""
    expression, found, factor = text.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        value = -1.0
    if not found or not expression or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected REGEX=FACTOR with a factor above 0, such as ^encoder=0.1")
    return RateFactor(pattern(expression), value)


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """The optimizer, its learning rate, and the average of the weights."""

    optimizer: str = option(OPTIMIZERS[0], "Adam: fused into one kernel, plain, or NVIDIA Apex's", choices=OPTIMIZERS)
    weight_decay: float = option(0.0, "L2 penalty of Adam", check=NOT_NEGATIVE)
    grad_clip_thresh: float | None = option(
        None,
        "largest norm of the gradient, above which it is scaled down",
        check=Check(lambda norm: norm > 0, "more than 0; leave it out for no clipping"),
    )
    ema_decay: float | None = option(
        None,
        "decay of a moving average of the weights, such as 0.999, which validation and inference then use",
        metavar="DECAY",
        check=Check(lambda decay: 0 < decay < 1, "a number in (0, 1), such as 0.999"),
    )
    learning_rate: float = option(1e-3, "learning rate of Adam", "-lr", group=RATE, check=ABOVE_ZERO)
    lr_scaling: str = option(
        "none",
        "scale the learning rate with the ratio of clips per step to the default --batch-size: by its square root, or linearly",
        choices=list(LR_SCALINGS),
        group=RATE,
    )
    lr_schedule: str = option(
        SCHEDULES[0], "fall of the rate: at --anneal-steps, along a cosine to 0, or none", choices=SCHEDULES, group=RATE
    )
    anneal_steps: list[int] = option([], "epochs at which the rate falls", nargs="*", metavar="EPOCH", group=RATE)
    anneal_factor: float = option(
        0.1,
        "factor on the learning rate at each of --anneal-steps; as published, 0.3 gives 1, 0.3, 0.1, 0.03 … of the rate "
        "(default: 0.3 with --amp, else 0.1)",
        group=RATE,
        check=Check(lambda factor: 0 < factor <= 1, "a factor in (0, 1]"),
    )
    warmup_steps: int = option(0, "steps over which the learning rate ramps up", group=RATE, check=NOT_NEGATIVE)
    lr_scale: list[RateFactor] = option(
        [],
        "factor on the learning rate of weights whose names match; the first match counts",
        type=rate_factor,
        nargs="+",
        metavar="REGEX=FACTOR",
        group="fine-tuning",
    )
    epochs: int = 1  # of --epochs, which the cosine spans


class Pace(NamedTuple):
    """Steps of an epoch, and the size of a step."""

    steps_per_epoch: int
    global_batch: int  # clips of all processes that one step of the optimizer takes
    usual_batch: int  # clips that the learning rate's default was chosen for


def rate_at(config: OptimizationConfig, pace: Pace, progress: float, iteration: int) -> float:
    """Return the learning rate of step `iteration` (from 0), with `progress` epochs done.

    --lr-scaling adapts --learning-rate to the batch, --warmup-steps raise it from 0, and --lr-schedule lowers it. The schedule
    counts epochs, since the number of steps depends on the number of processes.
    """
    rate = config.learning_rate * batch_factor(config, pace)
    if iteration < config.warmup_steps:
        rate *= (iteration + 1) / config.warmup_steps
    if config.lr_schedule == "step":
        return annealed_rate(rate, progress, config.anneal_steps, config.anneal_factor)
    if config.lr_schedule == "constant":
        return rate
    done = min(1.0, progress / config.epochs)
    return rate * 0.5 * (1 + math.cos(math.pi * done))  # Loshchilov and Hutter 2017, arXiv:1608.03983


def last_rate(config: OptimizationConfig, pace: Pace) -> float:
    """Return the learning rate of the last step."""
    steps = pace.steps_per_epoch
    return rate_at(config, pace, config.epochs - 1 / steps, steps * config.epochs - 1)


def batch_factor(config: OptimizationConfig, pace: Pace) -> float:
    """Return --lr-scaling's factor on the learning rate: the batch over the usual batch, to a power."""
    return (pace.global_batch / pace.usual_batch) ** LR_SCALINGS[config.lr_scaling]


def annealed_rate(rate: float, epoch: float, milestones: Sequence[int], factor: float) -> float:
    """Return rate x factor^n after n milestones; a factor of 0.3 means 1, 0.3, 0.1, 0.03, 0.01 …"""
    passed = sum(epoch >= milestone for milestone in milestones)
    if factor == 0.3:
        return rate * 0.1 ** (passed // 2) * (0.3 if passed % 2 else 1.0)
    return rate * factor**passed


def clip_gradients(model: nn.Module, threshold: float | None) -> Tensor:
    """Scale the gradients down to a norm of at most `threshold`. Returns their norm before."""
    weights = list(model.parameters())
    norm = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    total: Tensor = gather_full(norm)
    # On a CPU the comparison is free, and it saves a pass over all gradients that scales by 1.
    if threshold is not None and (total.device.type != "cpu" or total + 1e-6 > threshold):
        nn.utils.clip_grads_with_norm_(weights, threshold, norm)
    return total


def make_optimizer(model: nn.Module, config: OptimizationConfig) -> torch.optim.Optimizer:
    """Build Adam for the weights that are not frozen, with a group for each factor of --lr-scale.

    Groups contain the names of their weights, by which restore_averages matches them. Raises UsageError if Apex is requested but
    not installed.
    """
    names = [name for name, _ in model.named_parameters()]
    select_names(names, [item.pattern for item in config.lr_scale], "--lr-scale")  # an error for one without a match
    named: dict[float, list[tuple[str, nn.Parameter]]] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            named.setdefault(factor_of(name, config.lr_scale), []).append((name, weight))
    groups = [{"params": weights, "lr_scale": factor} for factor, weights in named.items()]
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "apex-fused-adam":
        return _apex_adam()(groups, lr=rate, weight_decay=decay, adam_w_mode=False)
    return torch.optim.Adam(groups, lr=rate, weight_decay=decay, fused=config.optimizer == "fused-adam" or None)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set each group's learning rate to `rate` times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]


def _apex_adam() -> Any:
    try:
        return importlib.import_module("apex.optimizers").FusedAdam
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"--optimizer apex-fused-adam: NVIDIA Apex is not here ({error}); NGC's PyTorch images carry it, "
            "and PyTorch's own is --optimizer fused-adam"
        ) from None


def restore_averages(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], names: Sequence[str]) -> int:
    """Load Adam's averages from a saved optimizer by the names of the weights. Returns the number of weights without averages.

    Older files have no names in their groups; `names`, in the model's order, replace them. Raises ValueError, KeyError or TypeError
    where `saved` is no optimizer's state, or the state of another model, or has averages that belong to no weight.
    """
    by_name = _states_by_name(saved, names)
    current = optimizer.state_dict()
    state, missing = {}, 0
    for group, ours in zip(current["param_groups"], optimizer.param_groups, strict=True):
        for number, name, weight in zip(group["params"], group["param_names"], ours["params"], strict=True):
            if name not in by_name:
                missing += 1
                continue
            if strays := [key for key, value in by_name[name].items() if _has_other_shape(key, value, weight)]:
                raise ValueError(f"{', '.join(strays)} of {name} has another shape than the weight")
            if any(isinstance(value, torch.Tensor) and value.isnan().any() for value in by_name[name].values()):
                raise ValueError(f"the averages of {name} are NaN")
            state[number] = {key: shard_like(value, weight) for key, value in by_name[name].items()}
    optimizer.load_state_dict({**current, "state": state})
    if state and not isinstance(optimizer, torch.optim.Adam):  # Apex counts steps by group, not by weight
        for group in optimizer.param_groups:
            group["step"] = int(max(float(entry.get("step", 0)) for entry in state.values()))
    return missing


def _states_by_name(saved: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    stored = [name for group in saved["param_groups"] for name in group.get("param_names", ())]
    if not stored and len(numbers) != len(names):
        raise ValueError(f"it has {len(numbers)} weights, the model {len(names)}")
    if unknown := sorted(set(stored) - set(names)):
        raise ValueError(f"param_names: {len(unknown)} of them name no weight of the model, {unknown[0]!r} for one")
    if strays := set(saved["state"]) - set(numbers):
        raise ValueError(f"state: averages of {len(strays)} weights, whose numbers are not in params of param_groups")
    found = {}
    steps = {number: group["step"] for group in saved["param_groups"] if "step" in group for number in group["params"]}
    for number, name in zip(numbers, stored or names, strict=True):
        if number in saved["state"]:
            state = dict(saved["state"][number])
            if "step" not in state and number in steps:
                state["step"] = steps[number]  # Apex stores it in the group
            found[name] = state
    return found


def _has_other_shape(key: str, value: Any, weight: torch.Tensor) -> bool:
    if key == "step":
        return isinstance(value, torch.Tensor) and value.numel() != 1
    return key.startswith("exp_avg") and value.shape != weight.shape


def moving_average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    """Build an exponential moving average of a model's weights (Polyak and Juditsky 1992); None without a decay.

    After n updates the decay is min(decay, (1 + n) / (10 + n)), as in TensorFlow. With a constant decay the random
    initial weights would have an effect for thousands of steps.
    """
    if decay is None:
        return None

    def move(averages: Any, weights: Any, count: Any) -> None:
        step = 1 - torch.clamp((1 + count) / (10 + count), max=decay)  # stays on the device
        move_towards(averages, weights, step)

    average = AveragedModel(model, multi_avg_fn=move)
    flatten_lstms(average)
    return average


def factor_of(name: str, factors: Sequence[RateFactor]) -> float:
    """Return the factor of the first expression that matches a weight's name, else 1."""
    return next((item.factor for item in factors if re.search(item.pattern, name)), 1.0)


def select_names(names: Iterable[str], patterns: Sequence[str], flag: str) -> set[str]:
    """Return the names that match any pattern. Raises UsageError that lists the patterns without a match."""
    names = list(names)
    by_pattern = {expression: {name for name in names if re.search(expression, name)} for expression in patterns}
    if idle := [expression for expression, found in by_pattern.items() if not found]:
        parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
        raise UsageError(
            f"{flag}: no weight's name matches {', '.join(map(repr, idle))}; names start with {parts}; "
            "`python -m common.checkpoint inspect --tensors CHECKPOINT` lists all"
        )
    return {name for found in by_pattern.values() for name in found}


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude the weights whose names match from training. Raises UsageError if no weight is left to train."""
    if not patterns:
        return
    names = select_names((name for name, _ in model.named_parameters()), patterns, "--freeze")
    for name, weight in model.named_parameters():
        weight.requires_grad_(name not in names)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise UsageError(f"--freeze: {', '.join(map(repr, patterns))} leave no weight to train")


def train_mode(model: nn.Module) -> None:
    """Call model.train(), except for BatchNorms whose weights are all frozen: their statistics stay frozen too."""
    model.train()
    for module in model.modules():
        if isinstance(module, NORMS) and not any(weight.requires_grad for weight in module.parameters()):
            module.eval()
