"""Checkpoints, old layouts included: written whole or not at all, and read without running code from them.

Files are OUT/checkpoint_{model}_{epoch}.pt; the link OUT/checkpoint_{model}_last.pt points to the newest. A .safetensors file
contains only weights, with the entries of DESCRIBED as JSON in its metadata.
"""

from __future__ import annotations

import _codecs
import errno
import json
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from common.checkpoint import fields as checkpoint_fields
from common.checkpoint.tensors import DamagedFileError, checksum, load_tensors, save_tensors
from common.errors import DataError, explain_refusal, listed
from common.files import atomic_link, atomic_write, remove_leftovers

FAULTS_SHOWN = 8
SAFETENSORS = ".safetensors"
# The entries that describe its weights.
DESCRIBED = ("version", "epoch", "iteration", "seed", "config", "data", checkpoint_fields.SHARPENED)
CHECKSUM = "checksum"  # in the metadata of a .safetensors file: of its weights and the entries of DESCRIBED
PUBLISHED = "the published ones: `bash scripts/download_checkpoints.sh`"


def checkpoint_path(output_dir: Path, model_name: str, epoch: int) -> Path:
    """Return the path of the checkpoint written after `epoch`."""
    return Path(output_dir) / f"checkpoint_{model_name}_{epoch}.pt"


def last_link(output_dir: Path, model_name: str) -> Path:
    """Return the path of the link to the newest checkpoint."""
    return Path(output_dir) / f"checkpoint_{model_name}_last.pt"


def best_path(output_dir: Path, model_name: str) -> Path:
    """Return the path of the weights with the lowest validation loss, or with the best value of --best-by."""
    return Path(output_dir) / f"checkpoint_{model_name}_best.pt"


def final_weights_path(output_dir: Path, model_name: str, epoch: int) -> Path:
    """Return the path of the weights for inference, written at the end of a run beside its last checkpoint."""
    return checkpoint_path(output_dir, model_name, epoch).with_suffix(SAFETENSORS)


def find_last(output_dir: Path, model_name: str) -> Path | None:
    """Find the newest checkpoint: the link's target, or else the file of the highest epoch; None without any."""
    return next(iter(find_all(output_dir, model_name)), None)


def find_all(output_dir: Path, model_name: str) -> list[Path]:
    """List the newest checkpoint and those of earlier epochs, newest first."""
    link, epochs = last_link(output_dir, model_name), _epochs(output_dir, model_name)
    if not link.exists():  # follows the link: False where it dangles
        return [checkpoint_path(output_dir, model_name, epoch) for epoch in epochs]
    linked = re.fullmatch(r".*_(\d+)\.pt", link.resolve().name)
    before = [epoch for epoch in epochs if not linked or epoch < int(linked[1])]
    return [link, *(checkpoint_path(output_dir, model_name, epoch) for epoch in before)]


def prune(output_dir: Path, model_name: str, epochs: list[int], keep: int) -> list[int]:
    """Delete the checkpoints of these epochs, listed in the order they were saved, except the last `keep`; return the rest."""
    for epoch in epochs[:-keep]:
        checkpoint_path(output_dir, model_name, epoch).unlink(missing_ok=True)
        final_weights_path(output_dir, model_name, epoch).unlink(missing_ok=True)
    return epochs[-keep:]


def find_final_weights(output_dir: Path, model_name: str) -> list[Path]:
    """List the files of final_weights_path, the highest epoch first."""
    return [final_weights_path(output_dir, model_name, epoch) for epoch in _epochs(output_dir, model_name, SAFETENSORS)]


def _epochs(output_dir: Path, model_name: str, suffix: str = ".pt") -> list[int]:
    """List the epochs that have a checkpoint, the highest first."""
    name = re.compile(rf"checkpoint_{re.escape(model_name)}_(\d+){re.escape(suffix)}")
    found = (name.fullmatch(path.name) for path in Path(output_dir).glob(f"*{suffix}"))
    return sorted((int(match[1]) for match in found if match), reverse=True)


def save_checkpoint(path: Path, checkpoint: Mapping[str, Any], link: Path | None = None) -> None:
    """Write `checkpoint` to `path` and point `link` to it; a failure at any moment leaves the old file and link unchanged.

    Raises DataError where the system refuses to write (disk full, no permission).
    """
    path = Path(path)
    advice = "older checkpoints are untouched: free the disk or choose another --output, then --resume-from-last"
    with explain_refusal(f"{path}: cannot write the checkpoint", advice):
        remove_leftovers(path.parent)
        with atomic_write(path) as file:
            save_tensors(checkpoint, file)
        if link is not None:
            _update_link(Path(link), path)


def save_copy(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Write a converted checkpoint; a .safetensors file gets only the weights and the entries of DESCRIBED.

    Raises DataError where the system refuses to write.
    """
    path = Path(path)
    with explain_refusal(f"{path}: cannot write the checkpoint", "free the disk or choose another place"):
        if path.suffix != SAFETENSORS:
            with atomic_write(path) as file:
                save_tensors(dict(checkpoint), file)
            return
        described = {key: json.dumps(checkpoint[key], default=plain) for key in DESCRIBED if key in checkpoint}
        weights = {  # safetensors refuses tensors that share memory, and views
            name: value.clone(memory_format=torch.contiguous_format) for name, value in checkpoint["state_dict"].items()
        }
        content = safetensors.torch.save(
            weights, metadata={"format": "pt", **described, CHECKSUM: checksum(weights, described)}
        )
        with atomic_write(path) as file:
            file.write(content)


def load_checkpoint(path: Path, *, resuming: bool = False) -> dict[str, Any]:
    """Read a checkpoint onto the CPU, without running code from it. A bare state_dict is returned as {"state_dict": …}.

    Malformed entries that only resuming needs are an error with `resuming`, and left out otherwise.

    Raises DataError if the file is missing, damaged, truncated, not a checkpoint, or pickles anything but plain data.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(_missing(path))
    if not os.access(path, os.R_OK):
        raise DataError(f"{path}: no permission to read the checkpoint")
    if path.suffix == SAFETENSORS:
        return _load_safetensors(path, resuming)
    try:
        checkpoint = load_tensors(path, _plain_data())
    except Exception as error:  # bytes that are no pickle raise any kind of error
        raise DataError(_unreadable(path, error)) from error
    if not isinstance(checkpoint, dict):
        raise DataError(f"{path}: holds a {type(checkpoint).__name__}, wanted a dict with a state_dict")
    if isinstance(checkpoint.get("state_dict"), dict):
        return _check_fields(checkpoint, path, resuming)
    if checkpoint and all(isinstance(value, Tensor) for value in checkpoint.values()):
        return {"state_dict": checkpoint}
    keys = listed(map(str, checkpoint)) or "none"
    raise DataError(f"{path}: wanted a state_dict among the keys, got {keys}; is it a model's checkpoint?")


def plain(value: Any) -> Any:
    """The `default` of json: convert NumPy's numbers, arrays and tensors to numbers and lists, other values to strings."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _load_safetensors(path: Path, resuming: bool) -> dict[str, Any]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # copies, since products round differently with the unaligned addresses of the file
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
        texts = {key: metadata[key] for key in DESCRIBED if key in metadata}
        if CHECKSUM in metadata and metadata[CHECKSUM] != checksum(weights, texts):
            raise DamagedFileError("damaged: the weights differ from the file's checksum")
        described = {key: json.loads(text) for key, text in texts.items()}
    except Exception as error:  # the package's own errors, or plain ones in old versions
        raise DataError(_unreadable(path, error)) from error
    return _check_fields({**described, "state_dict": weights}, path, resuming)


def _check_fields(checkpoint: dict[str, Any], path: Path, resuming: bool) -> dict[str, Any]:
    """Return a checkpoint without its empty entries. Raises one DataError for all malformed ones that are needed."""
    if faults := list(checkpoint_fields.problems(checkpoint, resuming)):
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise DataError(f"{path}: malformed: {'; '.join(faults[:FAULTS_SHOWN])}{more}")
    return checkpoint_fields.without_empty(checkpoint if resuming else checkpoint_fields.without_training(checkpoint))


def _update_link(link: Path, target: Path) -> None:
    """Replace `link` in one step by a relative link to `target`, or by a copy on file systems without links."""
    try:
        atomic_link(link, os.path.relpath(target, link.parent))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        with atomic_write(link) as copy, target.open("rb") as original:
            shutil.copyfileobj(original, copy)


def _plain_data() -> list[Any]:
    """List the classes that old checkpoints contain besides tensors: containers, NumPy's arrays and numbers. None runs code."""
    containers = [OrderedDict, dict, list, tuple, set, int, float, _codecs.encode]
    dtypes = {type(np.dtype(code)) for code in "?bBhHiIlLqQefd"}
    array = np.empty(0).__reduce__()[0]
    number = np.float64(0).__reduce__()[0]
    # NumPy 2 renamed its core; a file has the name in its writer's version.
    moved = [
        (function, f"numpy.{core}.multiarray.{name}")
        for core in ("core", "_core")
        for function, name in ((array, "_reconstruct"), (number, "scalar"))
    ]
    return [*containers, (_default_dict, "collections.defaultdict"), np.ndarray, np.dtype, *dtypes, *moved]


def _default_dict(*_factory: type) -> dict[Any, Any]:
    """Replace an old file's defaultdict by a dict, the only mapping that the weights-only reader fills."""
    return {}


def _missing(path: Path) -> str:
    if path.is_dir():
        return f"{path}: is a folder, wanted a checkpoint file; in it: {_checkpoints(path)}"
    if not path.parent.is_dir():
        return f"{path}: no such checkpoint, nor a folder {path.parent}; {PUBLISHED}"
    beside = _checkpoints(path.parent)
    if path.is_symlink():
        return f"{path}: links to {os.readlink(path)}, which is gone; beside it: {beside}"
    return f"{path}: no such checkpoint; beside it: {beside}"


def _checkpoints(folder: Path) -> str:
    files = (entry.name for entry in folder.iterdir() if entry.suffix in (".pt", SAFETENSORS) and entry.is_file())
    return listed(sorted(files)) or f"no .pt file; {PUBLISHED}"


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, DamagedFileError):
        return f"{path}: {error}; copy or save it again"
    refused = re.search(r"GLOBAL ([\w.]*\w)\s", str(error))
    if refused:
        return (
            f"{path}: refused: it pickles {refused[1]}, and unpickling anything but tensors and plain data can run "
            "code from the file; where you trust it, load it in Python and save its state_dict() alone"
        )
    detail = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    reason = f"{type(error).__name__}: {detail}".splitlines()[0][:120]
    return f"{path}: no checkpoint, or one cut short ({path.stat().st_size} bytes; {reason}); copy or save it again"
