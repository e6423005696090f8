"""Describe a checkpoint of any layout (inspect), or write it in the published layout or as safetensors (convert)."""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import __version__
from common.checkpoint.files import DESCRIBED, SAFETENSORS, load_checkpoint, plain, save_copy
from common.checkpoint.weights import WRAPPERS
from common.errors import DataError, UsageError, exit_on_user_error, listed, printable, shorten
from common.parser import Parser
from common.precision import apex_loss_scale

SETTINGS = ("config", "data")  # entries that are shown setting by setting
COUNTED = ("bytes", "parameters", "parts", "dtypes")  # entries whose numbers are shown with commas
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


def inspect(path: Path) -> dict[str, Any]:
    """Read a checkpoint and describe it, with None for what it lacks. Raises DataError as load_checkpoint does.

    `parameters` and `parts` count elements without BatchNorm's statistics, the latter by the first word of the names; `dtypes`
    counts all. `optimizer_states` are weights with averages, `random_states` processes by key.
    """
    checkpoint = load_checkpoint(path, resuming=True)
    weights = checkpoint["state_dict"]
    parts, dtypes = Counter[str](), Counter[str]()
    for name, value in weights.items():
        dtypes[_dtype(value)] += value.numel()
        if not name.endswith(BUFFERS):
            parts[WRAPPERS.sub("", name).partition(".")[0]] += value.numel()
    named = FILE_NAME.fullmatch(path.stem)
    optimizer: Mapping[str, Any] = checkpoint.get("optimizer") or {}
    states = {key: _processes(value) for key, value in _random_states(checkpoint) if value is not None}
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "layout": _layout(checkpoint, path),
        "remarks": _remarks(checkpoint),
        "model": named[1] if named else None,
        "epoch_complete": bool(checkpoint.get("epoch_complete", True)),
        **{key: checkpoint.get(key) for key in DESCRIBED if key not in SETTINGS},
        "parameters": parts.total(),
        "parts": dict(parts),
        "dtypes": dict(dtypes),
        "learning_rates": [group.get("lr") for group in optimizer.get("param_groups", [])] if optimizer else None,
        "optimizer_states": len(optimizer.get("state", {})) if optimizer else None,
        "scaler": _scaler(checkpoint),
        "random_states": {key: count for key, count in states.items() if count},
        "other_keys": _others(checkpoint),
        **{key: checkpoint.get(key) for key in SETTINGS},
        "tensors": [_weight(name, value) for name, value in weights.items()],
    }


def _layout(checkpoint: Mapping[str, Any], path: Path) -> str:
    if path.suffix == SAFETENSORS:
        return "safetensors"
    if set(checkpoint) == {"state_dict"}:
        return "bare state_dict"
    if "epoch_complete" in checkpoint:
        return "this recipe's"
    if checkpoint.get("optimizer") is not None:
        return "the published recipe's"
    return f"weights, with {listed(shorten(str(key)) for key in checkpoint if key != 'state_dict')}"


def _remarks(checkpoint: Mapping[str, Any]) -> list[str]:
    names = list(map(str, checkpoint["state_dict"]))
    wrappers = {match[0] for name in names if (match := WRAPPERS.match(name))}
    remarks = [f"names begin with {wrapper} (DistributedDataParallel)" for wrapper in sorted(wrappers)]
    remarks += [remark for pattern, remark in LAYOUTS.items() if any(map(pattern.search, names))]
    return remarks + (["state of Apex amp"] if checkpoint.get("amp") else [])


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
    run = ("run", "epoch_complete", "epoch_totals", "best", "saved", "time_plan", "launch")
    known = {*DESCRIBED, *run, "state_dict", "optimizer", "scaler", "amp"}
    return [str(key) for key in checkpoint if key not in known and not RANDOM_STATES.search(str(key))]


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _weight(name: str, value: Tensor) -> dict[str, Any]:
    nan, infinite = int(value.isnan().sum()), int(value.isinf().sum())
    return {"name": name, "shape": tuple(value.shape), "dtype": _dtype(value), "nan": nan, "infinite": infinite}


def report(contents: Mapping[str, Any], tensors: bool) -> Iterator[str]:
    """Yield the lines that `inspect` prints: a row for each entry, and for each setting; all tensors on request."""
    for name, value in contents.items():
        if isinstance(value, Mapping) and value:
            yield name
            yield from (f"  {inner:<34} {_shown(item, name)}" for inner, item in _flat(value))
        elif name != "tensors":
            yield f"{name:<18} {_shown(value, name)}"
    if tensors:
        yield f"{'tensors':<18} {len(contents['tensors'])}"
        width = max((len(weight["name"]) for weight in contents["tensors"]), default=0)
        for weight in contents["tensors"]:
            shape = "x".join(map(str, weight["shape"])) or "scalar"
            yield f"  {weight['name']:<{width}}  {shape:<16} {weight['dtype']}{_faults(weight)}"


def _shown(value: Any, entry: str) -> str:
    if entry in SETTINGS and value is not None:
        return str(value)
    if isinstance(value, list):
        return listed(shorten(str(item)) for item in value) or "none"
    if value is None or value == {}:
        return "none"
    return f"{value:,}" if entry in COUNTED else str(value)


def _faults(weight: Mapping[str, Any]) -> str:
    return f"  {weight['nan']} NaN, {weight['infinite']} infinite" if weight["nan"] or weight["infinite"] else ""


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as pairs (a.b, value)."""
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def check_finite(contents: Mapping[str, Any]) -> None:
    """Raise DataError that names the tensors with NaN or infinite elements, if any."""
    if bad := [weight for weight in contents["tensors"] if _faults(weight)]:
        named = [f"{weight['name']} ({_faults(weight).strip()})" for weight in bad]
        count = f"{len(bad)} of {len(contents['tensors'])} tensors"
        raise DataError(
            f"{contents['file']}: {count} hold NaN or infinite weights: {listed(named)}; go back to an older checkpoint"
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
        raise DataError(f"{path}: --half: float16 ends at {limit:g}, which is less than in {listed(beyond)}")
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
        raise DataError(f"{source}: NaN or infinite weights: {listed(broken)}; go back to an older checkpoint")
    if half:
        published["state_dict"] = to_half(published["state_dict"], source)
    save_copy(target, published)
    contents = inspect(target)
    summary = f"{contents['bytes']:,} bytes, {len(contents['tensors'])} tensors of {', '.join(contents['dtypes'])}"
    print(printable(f"{target}: {summary}"))
    for note in _notes(contents, published):
        print(printable(f"note: {note}"))


def _notes(contents: Mapping[str, Any], published: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what readers of the published layout will miss in a file."""
    absent = [key for key in ("config", "optimizer", "scaler") if key not in published]
    empty = [key for key, value in _random_states(published) if value is None or not _processes(value)]
    if absent:
        yield f"without {', '.join(absent)}" + ("; training from it is a warm start" if "optimizer" in absent else "")
    if empty:
        yield f"{', '.join(empty)} is empty, as no GPU was used; the published recipe does not resume from that"
    foreign = [remark for remark in contents["remarks"] if remark in LAYOUTS.values() and remark != WEIGHT_NORM]
    foreign += [f"{key}={value} in its config" for key, value in _flat(contents["config"]) if key in ADDED_CONFIG]
    if foreign:
        yield f"{'; '.join(foreign)}: read here, not by the published recipe"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m common.checkpoint", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
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
            lines = [json.dumps(contents, default=plain)] if as_json else [*report(contents, tensors)]
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
