"""Describe a checkpoint of any layout (inspect), or write it in the published layout or as safetensors (convert)."""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import __version__
from common.checkpoint.fields import describe, is_settings
from common.checkpoint.files import DESCRIBED, SAFETENSORS, load_checkpoint, plain, save_copy
from common.checkpoint.weights import WRAPPERS, not_finite
from common.errors import DataError, UsageError, exit_on_user_error, join_problems, listed, printable, shorten
from common.options import add_fields, argument, from_options, option
from common.parser import Parser
from common.precision import apex_loss_scale

SETTINGS = ("config", "data")  # entries that are shown setting by setting
COUNTED = ("bytes", "parameters", "dtypes")  # entries whose numbers are shown with commas
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # BatchNorm's, in a state_dict but not trainable
STATES = (
    "optimizer",
    "scaler",
    "ema_state_dict",
    "ema_updates",
)  # what resuming needs besides weights and random states
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
KINDS = f"checkpoint, .pt or {SAFETENSORS}"


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Words of inspect."""

    file: list[Path] = argument(KINDS, nargs="+", metavar="FILE")
    tensors: bool = option(False, "list every tensor")
    json: bool = option(False, "print everything, tensors included, as one line of JSON per file")


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Words of convert."""

    file: Path = argument(KINDS, metavar="FILE")
    out: Path = argument(f"file to write; the suffix {SAFETENSORS} selects that format", metavar="OUT")
    half: bool = option(False, "store weights in float16: half the size, widened when read")
    weights_only: bool = option(False, "leave out the entries that only resuming needs")
    force: bool = option(False, "replace OUT if it exists")


def inspect(path: Path) -> dict[str, Any]:
    """Read a checkpoint and describe it, with None for what it lacks. Raises DataError as load_checkpoint does.

    `parameters` counts elements without BatchNorm's statistics, `dtypes` all. `entries` are those besides weights and settings:
    plain values, and what others are.
    """
    checkpoint = load_checkpoint(path, resuming=True)
    weights = checkpoint["state_dict"]
    dtypes = Counter[str]()
    for value in weights.values():
        dtypes[_dtype(value)] += value.numel()
    named = FILE_NAME.fullmatch(path.stem)
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "layout": _layout(checkpoint, path),
        "remarks": _remarks(checkpoint),
        "model": named[1] if named else None,
        **{key: checkpoint.get(key) for key in DESCRIBED if key not in SETTINGS},
        "parameters": sum(value.numel() for name, value in weights.items() if not name.endswith(BUFFERS)),
        "dtypes": dict(dtypes),
        "entries": {
            str(key): value if is_settings({"": value}) else describe(value)
            for key, value in checkpoint.items()
            if key not in (*DESCRIBED, "state_dict")
        },
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


def _random_states(checkpoint: Mapping[str, Any]) -> dict[str, int]:
    """Count the states of random generators by key, old names among them: rows of a tensor, items of a list, or a single one."""
    found = {key: value for key, value in checkpoint.items() if "rng_state" in str(key)}
    several = {key for key, value in found.items() if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 1}
    return {key: len(value) if key in several else int(value is not None) for key, value in found.items()}


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
            yield join_problems([f"  {shorten(key):<34} {_shown(item, name)}" for key, item in _flat(value)])
        elif name != "tensors":
            yield f"{name:<18} {_shown(value, name)}"
    if tensors:
        yield f"{'tensors':<18} {len(contents['tensors'])}"
        width = max((len(weight["name"]) for weight in contents["tensors"]), default=0)
        for weight in contents["tensors"]:
            shape = "x".join(map(str, weight["shape"])) or "scalar"
            yield f"  {weight['name']:<{width}}  {shape:<16} {weight['dtype']}{_faults(weight)}"


def _shown(value: Any, entry: str) -> str:
    if entry in SETTINGS:
        return str(value)
    if value is None or value in ([], {}):
        return "none"
    return f"{value:,}" if entry in COUNTED else shorten(str(value))


def _faults(weight: Mapping[str, Any]) -> str:
    return f"  {weight['nan']} NaN, {weight['infinite']} infinite" if weight["nan"] or weight["infinite"] else ""


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as pairs (a.b, value)."""
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
    entries = {key: checkpoint[key] for key in STATES if checkpoint.get(key) is not None}
    scale = apex_loss_scale(checkpoint)
    if scale is not None and "scaler" not in entries:
        entries["scaler"] = torch.amp.GradScaler("cpu", init_scale=scale).state_dict()
    entries |= {key: checkpoint[key] for key in _random_states(checkpoint)}
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
    if beyond := [f"{name} (up to {state_dict[name].abs().max():.4g})" for name in not_finite(half)]:
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
    broken = not_finite(published["state_dict"])
    broken += [f"ema_state_dict.{name}" for name in not_finite(published.get("ema_state_dict", {}))]
    if broken:
        raise DataError(f"{source}: NaN or infinite weights: {listed(broken)}; go back to an older checkpoint")
    if half:
        published["state_dict"] = to_half(published["state_dict"], source)
    save_copy(target, published)
    contents = inspect(target)
    summary = f"{contents['bytes']:,} bytes, {len(contents['tensors'])} tensors of {', '.join(contents['dtypes'])}"
    print(printable("\n".join([f"{target}: {summary}", *(f"note: {note}" for note in _notes(contents, published))])))


def _notes(contents: Mapping[str, Any], published: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes on what readers of the published layout will miss in a file."""
    if absent := [key for key in ("config", "optimizer", "scaler") if key not in published]:
        yield f"without {', '.join(absent)}" + ("; training from it is a warm start" if "optimizer" in absent else "")
    if empty := [key for key, count in _random_states(published).items() if not count]:
        yield f"{', '.join(empty)} is empty, as no GPU was used; the published recipe does not resume from that"
    foreign = [remark for remark in contents["remarks"] if remark in LAYOUTS.values() and remark != WEIGHT_NORM]
    foreign += [f"{key}={value} in its config" for key, value in _flat(contents["config"]) if key in ADDED_CONFIG]
    if foreign:
        yield f"{'; '.join(foreign)}: read here, not by the published recipe"


def inspect_all(options: InspectOptions) -> None:
    """Print the contents of each file as text or as one line of JSON. Raises one DataError for all bad files."""
    problems = []
    for path in options.file:
        try:
            contents = inspect(path)
        except DataError as error:
            problems.append(str(error))
            continue
        lines = [json.dumps(contents, default=plain)] if options.json else report(contents, options.tensors)
        print(printable("\n".join(lines)), flush=True)
        tensors = contents["tensors"]
        if bad := [f"{weight['name']} ({_faults(weight).strip()})" for weight in tensors if _faults(weight)]:
            count = f"{len(bad)} of {len(tensors)} tensors"
            problems.append(
                f"{path}: {count} hold NaN or infinite weights: {listed(bad)}; go back to an older checkpoint"
            )
    if problems:
        raise DataError("\n".join(problems))


def parse_args(argv: list[str] | None = None) -> InspectOptions | ConvertOptions:
    parser = Parser(prog="python -m common.checkpoint", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    described: dict[str, tuple[type, str]] = {
        "inspect": (InspectOptions, "describe checkpoints; fails if weights are NaN or infinite"),
        "convert": (
            ConvertOptions,
            f"write a checkpoint in the published layout, or only its weights as {SAFETENSORS}",
        ),
    }
    for name, (options, does) in described.items():
        add_fields(commands.add_parser(name, help=does, description=does), options)
    values = vars(parser.parse_args(argv))
    return from_options(described[values["command"]][0], values)


def main(argv: list[str] | None = None) -> None:
    """Inspect checkpoints or convert one."""
    options = parse_args(argv)
    if isinstance(options, ConvertOptions):
        convert(options.file, options.out, options.half, options.weights_only, options.force)
    else:
        inspect_all(options)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
