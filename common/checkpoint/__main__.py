"""Describe a checkpoint of any layout (inspect), or write it in the published layout or as safetensors (convert)."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.checkpoint.files import DESCRIBED, SAFETENSORS, join_first, load_checkpoint, plain, save_copy
from common.checkpoint.weights import WRAPPERS
from common.errors import DataError, UsageError, exit_on_user_error, printable, shorten
from common.parser import Parser
from common.precision import apex_loss_scale

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # BatchNorm's, in a state_dict but not trainable
RANDOM_STATES = re.compile("rng_state")  # two keys today, other names in older files
FILE_NAME = re.compile(r"checkpoint_(.+)_(?:\d+|last|best)")
# Layouts that differ only in the names of tensors; the published recipe reads the first one alone.
WEIGHT_NORM = "weight normalisation as weight_g and weight_v"
LAYOUTS = {
    re.compile(r"\.weight_v$"): WEIGHT_NORM,
    re.compile(r"\.parametrizations\.weight\.original1$"): "weight normalisation as PyTorch's parametrizations",
    re.compile(r"\.in_layers\.\d+\.weight$"): "weight normalisation folded into weight",
    re.compile(r"\.cond_layer\."): "one fused cond_layer where others have cond_layers",
}
# Config keys that the published models lack, with their built-in values.
ADDED_CONFIG = {"hop_length": 256, "upsample_kernel_size": 1024, "upsample_channels": None}


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One tensor of a state_dict, with the number of NaN and infinite elements."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    infinite: int


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Contents of a checkpoint file; missing parts are None."""

    file: str
    bytes: int
    layout: str
    remarks: list[str]  # about tensors' names and states of older libraries
    model: str | None  # in the file's name
    epoch: int | None
    epoch_complete: bool
    iteration: int | None
    seed: int | None
    config: Any
    data: Any
    parameters: int  # elements, without BatchNorm's statistics
    parts: dict[str, int]  # parameters by the first word of the names
    dtypes: dict[str, int]  # elements of each
    learning_rates: list[float] | None
    optimizer_states: int | None  # weights with averages in the optimizer
    scaler: str | None
    random_states: dict[str, int]  # processes, by key
    other_keys: list[str]
    tensors: list[Weight]

    @property
    def not_finite(self) -> list[Weight]:
        """The tensors with a NaN or an infinity."""
        return [weight for weight in self.tensors if weight.nan or weight.infinite]


def inspect(path: Path) -> Contents:
    """Read a checkpoint and describe it. Raises DataError as load_checkpoint does."""
    checkpoint = load_checkpoint(path, resuming=True)
    weights = checkpoint["state_dict"]
    trainable = {WRAPPERS.sub("", name): value.numel() for name, value in weights.items() if not name.endswith(BUFFERS)}
    parts: Counter[str] = Counter()
    for name, count in trainable.items():
        parts[name.partition(".")[0]] += count
    dtypes: Counter[str] = Counter()
    for value in weights.values():
        dtypes[_dtype(value)] += value.numel()
    named = FILE_NAME.fullmatch(path.stem)
    described = {key: checkpoint.get(key) for key in DESCRIBED}
    groups, states = _optimizer(checkpoint)
    return Contents(
        **described,
        file=str(path),
        bytes=path.stat().st_size,
        layout=_layout(checkpoint, path),
        remarks=_remarks(checkpoint),
        model=named[1] if named else None,
        epoch_complete=bool(checkpoint.get("epoch_complete", True)),
        parameters=sum(trainable.values()),
        parts=dict(parts),
        dtypes=dict(dtypes),
        learning_rates=groups,
        optimizer_states=states,
        scaler=_scaler(checkpoint),
        random_states={
            key: _processes(value)
            for key, value in _random_states(checkpoint)
            if value is not None and _processes(value)
        },
        other_keys=_others(checkpoint),
        tensors=[_weight(name, value) for name, value in weights.items()],
    )


def _layout(checkpoint: Mapping[str, Any], path: Path) -> str:
    if path.suffix == SAFETENSORS:
        return "safetensors"
    if set(checkpoint) == {"state_dict"}:
        return "bare state_dict"
    if "epoch_complete" in checkpoint:
        return "this recipe's"
    if checkpoint.get("optimizer") is not None:
        return "the published recipe's"
    return f"weights, with {join_first(shorten(str(key)) for key in checkpoint if key != 'state_dict')}"


def _remarks(checkpoint: Mapping[str, Any]) -> list[str]:
    names = list(map(str, checkpoint["state_dict"]))
    wrappers = {match[0] for name in names if (match := WRAPPERS.match(name))}
    remarks = [f"names begin with {wrapper} (DistributedDataParallel)" for wrapper in sorted(wrappers)]
    remarks += [remark for pattern, remark in LAYOUTS.items() if any(map(pattern.search, names))]
    return remarks + (["state of Apex amp"] if checkpoint.get("amp") else [])


def _optimizer(checkpoint: Mapping[str, Any]) -> tuple[list[float] | None, int | None]:
    """Return the learning rates of the optimizer's groups, and the number of weights with averages."""
    optimizer = checkpoint.get("optimizer")
    if not isinstance(optimizer, Mapping):
        return None, None
    groups = optimizer.get("param_groups", [])
    return [group.get("lr") for group in groups], len(optimizer.get("state", {}))


def _scaler(checkpoint: Mapping[str, Any]) -> str | None:
    scaler, amp = checkpoint.get("scaler"), checkpoint.get("amp")
    if isinstance(scaler, Mapping):
        return f"loss scale {scaler['scale']:g}" if "scale" in scaler else "off"
    scale = apex_loss_scale(amp) if isinstance(amp, dict) else None
    return None if scale is None else f"loss scale {scale:g}, of Apex amp"


def _random_states(checkpoint: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((key, value) for key, value in checkpoint.items() if RANDOM_STATES.search(str(key)))


def _processes(states: Any) -> int:
    """Count the generators' states: rows of a tensor, items of a list, or a single one."""
    several = isinstance(states, (list, tuple)) or (isinstance(states, Tensor) and states.dim() > 1)
    return len(states) if several else 1


def _others(checkpoint: Mapping[str, Any]) -> list[str]:
    run = ("epoch_complete", "epoch_totals", "best", "saved", "time_plan", "launch")
    known = {*DESCRIBED, *run, "state_dict", "optimizer", "scaler", "amp"}
    return [str(key) for key in checkpoint if key not in known and not RANDOM_STATES.search(str(key))]


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _weight(name: str, value: Tensor) -> Weight:
    nan, infinite = int(value.isnan().sum()), int(value.isinf().sum())
    return Weight(name=name, shape=tuple(value.shape), dtype=_dtype(value), nan=nan, infinite=infinite)


def report(contents: Contents, tensors: bool) -> Iterator[str]:
    """Yield the lines that `inspect` prints, with a table of all tensors on request."""
    c = contents
    unfinished = "" if c.epoch_complete else " (not finished)"
    parts = ", ".join(f"{part} {count:,}" for part, count in c.parts.items())
    states = f"learning rate {', '.join(map(str, c.learning_rates or []))}; averages of {c.optimizer_states} weights"
    rows = {
        "file": c.file,
        "size": f"{c.bytes:,} bytes",
        "layout": "; ".join([c.layout, *c.remarks]),
        "model": c.model or "not in the file's name",
        "epoch": "none" if c.epoch is None else f"{c.epoch}{unfinished}",
        "iteration": c.iteration,
        "seed": c.seed,
        "parameters": f"{c.parameters:,}: {parts}",
        "dtypes": ", ".join(f"{dtype} {count:,}" for dtype, count in c.dtypes.items()),
        "optimizer": None if c.learning_rates is None else states,
        "scaler": c.scaler,
        "random states": ", ".join(f"{key} (processes: {count})" for key, count in c.random_states.items()) or None,
        "other keys": join_first(map(shorten, c.other_keys)) or None,
    }
    yield from (f"{label:<14} {'none' if value is None else value}" for label, value in rows.items())
    for label, settings in (("config", c.config), ("data options", c.data)):
        yield f"{label:<14} {'none' if settings is None else ''}".rstrip()
        yield from (f"  {name:<34} {value}" for name, value in _flat(settings))
    if tensors:
        yield f"tensors        {len(c.tensors)}"
        width = max((len(weight.name) for weight in c.tensors), default=0)
        for weight in c.tensors:
            shape = "x".join(map(str, weight.shape)) or "scalar"
            yield f"  {weight.name:<{width}}  {shape:<16} {weight.dtype}{_faults(weight)}"


def _faults(weight: Weight) -> str:
    return f"  {weight.nan} NaN, {weight.infinite} infinite" if weight.nan or weight.infinite else ""


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as pairs (a.b, value)."""
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def check_finite(contents: Contents) -> None:
    """Raise DataError that names the tensors with NaN or infinite elements, if any."""
    bad = contents.not_finite
    if bad:
        named = [f"{weight.name} ({_faults(weight).strip()})" for weight in bad]
        count = f"{len(bad)} of {len(contents.tensors)} tensors"
        raise DataError(
            f"{contents.file}: {count} hold NaN or infinite weights: {join_first(named)}; go back to an older checkpoint"
        )


def to_published(checkpoint: Mapping[str, Any], weights_only: bool) -> dict[str, Any]:
    """Convert a checkpoint to the published recipe's keys, plus `data` for inference and the counters of training.

    Removes `module.` from names and converts Apex's loss scale to a scaler's state and a single random state to a row.
    """
    entries = {key: checkpoint[key] for key in DESCRIBED if key in checkpoint}
    if isinstance(entries.get("config"), Mapping):
        items = entries["config"].items()
        entries["config"] = {key: value for key, value in items if (key, value) not in ADDED_CONFIG.items()}
    average = checkpoint.get("ema_state_dict")
    weights = average if average and weights_only else checkpoint["state_dict"]  # as inference chooses
    entries["state_dict"] = {WRAPPERS.sub("", name): value for name, value in weights.items()}
    return entries if weights_only else entries | _training_state(checkpoint)


def _training_state(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that resuming needs besides weights, without the counts of an unfinished epoch."""
    states = ("optimizer", "scaler", "ema_state_dict", "ema_updates")
    entries = {key: checkpoint[key] for key in states if checkpoint.get(key) is not None}
    amp = checkpoint.get("amp")
    scale = apex_loss_scale(amp) if isinstance(amp, dict) and "scaler" not in entries else None
    if scale is not None:
        entries["scaler"] = torch.amp.GradScaler("cpu", init_scale=scale).state_dict()
    entries |= dict(_random_states(checkpoint))
    alone = entries.pop("random_rng_state", None)
    if alone is not None:
        entries.setdefault("random_rng_states_all", alone[None])
    if not checkpoint.get("epoch_complete", True):
        entries["epoch"] = checkpoint["epoch"] - 1
        entries["iteration"] = checkpoint["iteration"] - checkpoint["epoch_totals"]["iterations"]
    return entries


def to_half(state_dict: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Convert floating-point tensors to float16. Raises DataError that names tensors beyond float16's range."""
    half = {name: value.half() if value.is_floating_point() else value for name, value in state_dict.items()}
    beyond = [
        f"{name} (up to {state_dict[name].abs().max():.4g})"
        for name, value in half.items()
        if value.isinf().sum() > state_dict[name].isinf().sum()
    ]
    if beyond:
        limit = torch.finfo(torch.float16).max
        raise DataError(f"{path}: --half: float16 ends at {limit:g}, which is less than in {join_first(beyond)}")
    return half


def convert(source: Path, target: Path, half: bool = False, weights_only: bool = False, force: bool = False) -> None:
    """Write `source` to `target` in the published layout, or as safetensors by its suffix, and list what is missing."""
    if target.is_dir():
        raise UsageError(f"OUT: {target} is a folder, expected a file, .pt or {SAFETENSORS}")
    if target.exists() and not force:
        raise UsageError(f"OUT: {target} is there already; choose another name, or replace it with --force")
    checkpoint = load_checkpoint(source, resuming=True)
    published = to_published(checkpoint, weights_only or target.suffix == SAFETENSORS)
    averages = published.get("ema_state_dict") or {}
    weights = [
        *published["state_dict"].items(),
        *((f"ema_state_dict.{name}", value) for name, value in averages.items()),
    ]
    if broken := [name for name, value in weights if not value.isfinite().all()]:
        raise DataError(f"{source}: NaN or infinite weights: {join_first(broken)}; go back to an older checkpoint")
    if half:
        published["state_dict"] = to_half(published["state_dict"], source)
    save_copy(target, published)
    contents = inspect(target)
    summary = f"{contents.bytes:,} bytes, {len(contents.tensors)} tensors of {', '.join(contents.dtypes)}"
    print(printable(f"{target}: {summary}"))
    for note in _notes(contents, published):
        print(printable(f"note: {note}"))


def _notes(contents: Contents, published: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what readers of the published layout will miss in a file."""
    absent = [key for key in ("config", "optimizer", "scaler") if key not in published]
    empty = [key for key, value in _random_states(published) if value is None or not _processes(value)]
    if absent:
        yield f"without {', '.join(absent)}" + ("; training from it is a warm start" if "optimizer" in absent else "")
    if empty:
        yield f"{', '.join(empty)} is empty, as no GPU was used; the published recipe does not resume from that"
    foreign = [remark for remark in contents.remarks if remark in LAYOUTS.values() and remark != WEIGHT_NORM]
    foreign += [f"{key}={value} in its config" for key, value in _flat(contents.config) if key in ADDED_CONFIG]
    if foreign:
        yield f"{'; '.join(foreign)}: read here, not by the published recipe"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(prog="python -m common.checkpoint", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, does: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=does, description=does)

    kinds = f"checkpoint, .pt or {SAFETENSORS}"
    look = command("inspect", "describe checkpoints; fails if weights are NaN or infinite")
    look.add_argument("file", type=Path, nargs="+", metavar="FILE", help=kinds)
    look.add_argument("--tensors", action="store_true", help="list every tensor")
    look.add_argument(
        "--json", action="store_true", help="print everything, tensors included, as one line of JSON per file"
    )
    rewrite = command("convert", f"write a checkpoint in the published layout, or only its weights as {SAFETENSORS}")
    rewrite.add_argument("file", type=Path, metavar="FILE", help=kinds)
    target = f"file to write; the suffix {SAFETENSORS} selects that format"
    rewrite.add_argument("out", type=Path, metavar="OUT", help=target)
    rewrite.add_argument(
        "--half", action="store_true", help="store weights in float16: half the size, widened when read"
    )
    rewrite.add_argument("--weights-only", action="store_true", help="leave out the entries that only resuming needs")
    rewrite.add_argument("--force", action="store_true", help="replace OUT if it exists")
    return parser.parse_args(argv)


def inspect_all(paths: list[Path], tensors: bool, as_json: bool) -> None:
    """Print the contents of each file as text or as one line of JSON. Raises one DataError for all bad files."""
    problems = []
    for path in paths:
        try:
            contents = inspect(path)
            lines = [json.dumps(asdict(contents), default=plain)] if as_json else [*report(contents, tensors)]
            print(printable("\n".join(lines)), flush=True)
            check_finite(contents)
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))


def main(argv: list[str] | None = None) -> None:
    """Inspect checkpoints or convert one."""
    args = parse_args(argv)
    if args.command == "convert":
        convert(args.file, args.out, args.half, args.weights_only, args.force)
    else:
        inspect_all(args.file, args.tensors, args.json)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
