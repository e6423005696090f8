"""Checkpoints: written whole or not at all, read without running what is in them, old layouts included.

Files are OUT/checkpoint_{model}_{epoch}.pt, and the link OUT/checkpoint_{model}_last.pt points at the newest. Weights alone
may also lie in a .safetensors file, with what DESCRIBED names as JSON in its metadata.
"""

from __future__ import annotations

import _codecs
import errno
import importlib
import json
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common.errors import DataError, UsageError
from common.files import atomic_write

WRAPPERS = re.compile(r"^(?:module\.(?:1\.)?)+")  # DistributedDataParallel, and the old recipe's wrapper around that
NAMES_SHOWN = 4
SAFETENSORS = ".safetensors"
DESCRIBED = ("epoch", "iteration", "seed", "config", "data")  # the entries that describe its weights


def checkpoint_path(output_dir: Path, model_name: str, epoch: int) -> Path:
    """The checkpoint written after `epoch`."""
    return Path(output_dir) / f"checkpoint_{model_name}_{epoch}.pt"


def last_link(output_dir: Path, model_name: str) -> Path:
    """The link to the newest checkpoint."""
    return Path(output_dir) / f"checkpoint_{model_name}_last.pt"


def best_path(output_dir: Path, model_name: str) -> Path:
    """The weights with the lowest validation loss."""
    return Path(output_dir) / f"checkpoint_{model_name}_best.pt"


def find_last(output_dir: Path, model_name: str) -> Path | None:
    """The newest checkpoint: where the link leads, or else the file of the highest epoch; None where there is none."""
    return next(iter(find_all(output_dir, model_name)), None)


def find_all(output_dir: Path, model_name: str) -> list[Path]:
    """The newest checkpoint, and those of the epochs before it, the newest first."""
    link, epochs = last_link(output_dir, model_name), _epochs(output_dir, model_name)
    if not link.exists():  # follows the link: False where it dangles
        return [checkpoint_path(output_dir, model_name, epoch) for epoch in epochs]
    leads_to = re.fullmatch(r".*_(\d+)\.pt", link.resolve().name)
    before = [epoch for epoch in epochs if not leads_to or epoch < int(leads_to[1])]
    return [link, *(checkpoint_path(output_dir, model_name, epoch) for epoch in before)]


def prune(output_dir: Path, model_name: str, epochs: list[int], keep: int) -> list[int]:
    """Delete the checkpoints of these epochs, in the order they were written in, but for the last `keep`; returns those."""
    for epoch in epochs[:-keep]:
        checkpoint_path(output_dir, model_name, epoch).unlink(missing_ok=True)
    return epochs[-keep:]


def _epochs(output_dir: Path, model_name: str) -> list[int]:
    """The epochs that have a checkpoint, the highest first."""
    name = re.compile(rf"checkpoint_{re.escape(model_name)}_(\d+)\.pt")
    found = (name.fullmatch(path.name) for path in Path(output_dir).glob("*.pt"))
    return sorted((int(match[1]) for match in found if match), reverse=True)


def save_checkpoint(path: Path, checkpoint: Mapping[str, Any], link: Path | None = None) -> None:
    """Write `checkpoint` to `path` and point `link` at it; a failure at any moment leaves the old file and link alone.

    Raises DataError where the system refuses to write (disk full, no permission).
    """
    path = Path(path)
    advice = "older checkpoints are untouched: free the disk or choose another --output, then --resume-from-last"
    with _refusals(path, advice):
        with atomic_write(path) as file:
            torch.save(checkpoint, file)
        if link is not None:
            _point(Path(link), path)


def save_copy(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Write a checkpoint that was made from another; to a .safetensors file only its weights and what DESCRIBED names.

    Raises DataError where the system refuses to write, UsageError where the package safetensors is missing.
    """
    path = Path(path)
    with _refusals(path, "free the disk or choose another place"):
        if path.suffix != SAFETENSORS:
            with atomic_write(path) as file:
                torch.save(dict(checkpoint), file)
            return
        package = _safetensors(path, ".torch")
        described = {key: json.dumps(checkpoint[key], default=plain) for key in DESCRIBED if key in checkpoint}
        weights = {  # names that share memory, or views of other tensors, are refused there
            name: value.clone(memory_format=torch.contiguous_format) for name, value in checkpoint["state_dict"].items()
        }
        content = package.save(weights, metadata={"format": "pt", **described})
        with atomic_write(path) as file:
            file.write(content)


def load_checkpoint(path: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """Read a checkpoint without running code from it. A bare state_dict, all tensors, comes back as {"state_dict": …}.

    Raises DataError where the file is missing, cut short, no checkpoint, or pickles anything but plain data; UsageError where a
    .safetensors file is given and the package safetensors is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(_missing(path))
    if not os.access(path, os.R_OK):
        raise DataError(f"{path}: no permission to read the checkpoint")
    if path.suffix == SAFETENSORS:
        return _load_safetensors(path, map_location)
    try:
        with torch.serialization.safe_globals(_plain_data()):
            checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # bytes that are no pickle raise whatever they happen to spell
        raise DataError(_unreadable(path, error)) from error
    if not isinstance(checkpoint, dict):
        raise DataError(f"{path}: holds a {type(checkpoint).__name__}, wanted a dict with a state_dict")
    if isinstance(checkpoint.get("state_dict"), dict):
        return checkpoint
    if checkpoint and all(isinstance(value, Tensor) for value in checkpoint.values()):
        return {"state_dict": checkpoint}
    keys = some(map(str, checkpoint)) or "none"
    raise DataError(f"{path}: wanted a state_dict among the keys, got {keys}; is it a model's checkpoint?")


def clean_state_dict(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The weights under the model's own names (no leading `module.` or `module.1.`), half precision as float32."""
    return {WRAPPERS.sub("", name): _widen(value) for name, value in state_dict.items()}


def current_layout(
    checkpoint: Mapping[str, Any], upgrade: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """A checkpoint's weights in today's names and float32, whichever published layout they came in."""
    return upgrade(clean_state_dict(checkpoint["state_dict"]))


def load_weights(
    model: nn.Module, state_dict: Mapping[str, Any], path: Path, load: Callable[..., Any] = nn.Module.load_state_dict
) -> None:
    """Load `state_dict`, read from `path`, into `model`: every weight, and no other; by load(model, state_dict).

    Raises DataError with the names that are missing or unknown and the shapes that differ, all at once.
    """
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(getattr(value, "shape", ())) for name, value in state_dict.items()}
    missing = [name for name in wanted if name not in found]
    unexpected = [name for name in found if name not in wanted]
    differing = [
        f"{name}: {found[name]} in file, {shape} in model"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    counts = {"missing": missing, "unexpected": unexpected, "of another shape": differing}
    faults = [f"{len(names)} {kind} ({some(names)})" for kind, names in counts.items() if names]
    if faults:
        raise DataError(f"{path}: not this model's weights: {'; '.join(faults)}; check the model's name and config")
    load(model, dict(state_dict))


def some(items: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    names = list(items)
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def plain(value: Any) -> Any:
    """json's `default`: NumPy's numbers, arrays and tensors as Python's numbers and lists, anything else as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _safetensors(path: Path, part: str = "") -> ModuleType:
    """An optional package: nothing but files of its kind needs it."""
    try:
        return importlib.import_module(f"safetensors{part}")
    except ImportError:
        raise UsageError(
            f"{path}: {SAFETENSORS} files need a package that is not here: pip install safetensors"
        ) from None


def _load_safetensors(path: Path, map_location: str | torch.device) -> dict[str, Any]:
    package = _safetensors(path)
    try:
        with package.safe_open(path, framework="pt", device=str(map_location)) as file:
            metadata = file.metadata() or {}
            # copies, because products round otherwise where numbers begin at odd addresses, as they do in the file
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (it is no dict)
        described = {key: json.loads(metadata[key]) for key in DESCRIBED if key in metadata}
    except Exception as error:  # the package has errors of its own, and old versions raise plain ones
        raise DataError(_unreadable(path, error)) from error
    return {**described, "state_dict": weights}


@contextmanager
def _refusals(path: Path, advice: str) -> Iterator[None]:
    """Turn the system's refusal to write `path` into a DataError that ends in advice."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch.save, closing its archive on a full disk, covers the system's error with one of its own.
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise DataError(f"{path}: cannot write the checkpoint ({cause.strerror}); {advice}") from error


def _point(link: Path, target: Path) -> None:
    """Make `link` a relative link to `target` in one step, or a copy of it where the file system has no links."""
    temporary = link.with_name(f"{link.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        try:
            temporary.symlink_to(os.path.relpath(target, link.parent))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            shutil.copyfile(target, temporary)
        os.replace(temporary, link)
    finally:
        temporary.unlink(missing_ok=True)


def _plain_data() -> list[Any]:
    """The classes, all inert, that old checkpoints hold besides tensors: containers, NumPy's arrays and numbers."""
    containers = [OrderedDict, dict, list, tuple, set, int, float, _codecs.encode]
    dtypes = {type(np.dtype(code)) for code in "?bBhHiIlLqQefd"}
    array = np.empty(0).__reduce__()[0]
    number = np.float64(0).__reduce__()[0]
    # NumPy 2 moved its core: a file names whichever place its writer had.
    moved = [
        (function, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for function, name in ((array, "_reconstruct"), (number, "scalar"))
    ]
    return [*containers, (_default_dict, "collections.defaultdict"), np.ndarray, np.dtype, *dtypes, *moved]


def _default_dict(*_factory: type) -> dict[Any, Any]:
    """An old file's defaultdict as a dict, since the weights-only reader fills no other kind."""
    return {}


def _missing(path: Path) -> str:
    if path.is_dir():
        return f"{path}: is a folder, wanted a checkpoint file; in it: {_checkpoints(path)}"
    if not path.parent.is_dir():
        return f"{path}: no such checkpoint, nor a folder {path.parent}"
    beside = _checkpoints(path.parent)
    if path.is_symlink():
        return f"{path}: links to {os.readlink(path)}, which is gone; beside it: {beside}"
    return f"{path}: no such checkpoint; beside it: {beside}"


def _checkpoints(folder: Path) -> str:
    files = (entry.name for entry in folder.iterdir() if entry.suffix in (".pt", SAFETENSORS) and entry.is_file())
    return some(sorted(files)) or "no .pt file"


def _unreadable(path: Path, error: Exception) -> str:
    refused = re.search(r"GLOBAL ([\w.]*\w)\s", str(error))
    if refused:
        return (
            f"{path}: refused: it pickles {refused[1]}, and unpickling anything but tensors and plain data can run "
            "code from the file; where you trust it, load it in Python and save its state_dict() alone"
        )
    detail = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    reason = f"{type(error).__name__}: {detail}".splitlines()[0][:120]
    return f"{path}: no checkpoint, or one cut short ({path.stat().st_size} bytes; {reason}); copy or save it again"


def _widen(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value
