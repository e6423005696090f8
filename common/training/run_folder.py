"""The output folder of a training run: one run of a model at a time, and no fresh run over another run's checkpoints.

OUT/.MODEL.lock names the host and the process of the run that writes there. The system releases the lock of a process that ends in
any way, so that the file of a killed run stops no later one.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from common.errors import DataError, UsageError
from common.files import make_folder, parse_json
from common.training.checkpoint import best_path, find_all, find_final_weights, some

TAKEN = (BlockingIOError, PermissionError)  # errors of lockf where another process has the lock


@contextmanager
def occupy(folder: Path, model_name: str) -> Iterator[None]:
    """Lock a folder for a run of a model. A folder that is made for it and stays empty is removed.

    Raises UsageError that names the process of another run there, DataError where the folder cannot be written.
    """
    path = folder / f".{model_name}.lock"
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        make_folder(folder)
        descriptor = _lock(path, model_name)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror}); choose another --output") from None
    try:
        record = {"host": socket.gethostname(), "pid": os.getpid()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock ends, so that no other run has locked this file
        os.close(descriptor)
        with suppress(OSError):  # one that is not empty stays, and so do those above
            for place in absent:
                place.rmdir()


def _lock(path: Path, model_name: str) -> int:
    """Open and lock the file; returns its descriptor. lockf's lock does not pass to loader processes, which may live on."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(descriptor)
            os.close(descriptor)
            if isinstance(error, TAKEN) or _may_run(owner):
                raise UsageError(_in_use(path, model_name, owner)) from None
            path.unlink(missing_ok=True)  # no locks on this file system, and the owner has ended
            continue
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)  # its owner has just removed it


def _owner(descriptor: int) -> dict[str, Any]:
    try:
        record = parse_json(os.pread(descriptor, 1000, 0))
    except ValueError:  # not written yet
        return {}
    return record if isinstance(record, dict) else {}


def _may_run(owner: dict[str, Any]) -> bool:
    """Return False if the owner is a process of this host that has ended."""
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("pid"), int):
        return bool(owner)
    try:
        os.kill(owner["pid"], 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _in_use(path: Path, model_name: str, owner: dict[str, Any]) -> str:
    process = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown host')}"
    return (
        f"-o {path.parent}: another run of {model_name} writes there, {process}: wait for its end and add --resume-from-last, "
        f"or choose another -o (if it has ended, delete {path})"
    )


def refuse_checkpoints(folder: Path, model_name: str) -> None:
    """Raise UsageError if a folder has checkpoints of a model, which a run that does not go on from them would replace."""
    best = best_path(folder, model_name)
    found = [*find_all(folder, model_name), *([best] if best.exists() else []), *find_final_weights(folder, model_name)]
    if found:
        names = some(path.name for path in found)
        raise UsageError(
            f"-o {folder}: has checkpoints of another run of {model_name} ({names}), which this run would replace: "
            "add --resume-from-last to go on from the newest, or choose another -o"
        )
