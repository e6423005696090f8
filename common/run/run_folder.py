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

from common.checkpoint.files import best_path, find_all, find_final_weights, join_first
from common.errors import DataError, UsageError, printable
from common.files import make_folder, move_aside, parse_json

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
        raise DataError(_unwritable(folder, error)) from None
    try:
        _write_owner(descriptor, folder)
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock ends, so that no other run has locked this file
        os.close(descriptor)
        with suppress(OSError):  # one that is not empty stays, and so do those above
            for place in absent:
                place.rmdir()


def _unwritable(folder: Path, error: OSError) -> str:
    return f"{folder}: cannot be written ({error.strerror}); choose another --output"


def _write_owner(descriptor: int, folder: Path) -> None:
    record = {"host": socket.gethostname(), "pid": os.getpid()}
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode(), 0)
    except OSError as error:  # a full disk has room for an empty file
        raise DataError(_unwritable(folder, error)) from None


def _lock(path: Path, model_name: str) -> int:
    """Open and lock the file; returns its descriptor. lockf's lock does not pass to loader processes, which may live on.

    Where the file system has no locks, the new file itself is the lock.
    """
    while True:
        descriptor, is_new = _open(path)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if is_new and not isinstance(error, TAKEN):
                return descriptor
            owner = _owner(descriptor)
            os.close(descriptor)
            if isinstance(error, TAKEN) or _may_run(owner):
                raise UsageError(_in_use(path, model_name, owner)) from None
            path.unlink(missing_ok=True)  # its owner has ended
            continue
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)  # its owner has just removed it


def _open(path: Path) -> tuple[int, bool]:
    """Open the file of a lock. Returns its descriptor, and True if it is new."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
        with suppress(FileNotFoundError):  # its owner has just removed it
            return os.open(path, flags), False


def _owner(descriptor: int) -> dict[str, Any]:
    try:
        record = parse_json(os.pread(descriptor, 1000, 0))
    except ValueError:  # not written yet
        return {}
    return record if isinstance(record, dict) else {}


def _may_run(owner: dict[str, Any]) -> bool:
    """Return False if the owner is a process of this host that has ended. One without a name has just begun."""
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("pid"), int):
        return True
    try:
        os.kill(owner["pid"], 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's process: it runs
        return True
    return True


def _in_use(path: Path, model_name: str, owner: dict[str, Any]) -> str:
    process = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown host')}"
    return (
        f"-o {path.parent}: another run of {model_name} writes there, {process}: wait for its end and add --resume-from-last, "
        f"or choose another -o (if it has ended, delete {path})"
    )


def refuse_checkpoints(folder: Path, model_name: str, resume_from_last: bool = False) -> None:
    """Raise UsageError if a folder has checkpoints of a model, which a run that does not go on from them would replace.

    A run with --resume-from-last that was killed before its first save may have left its best weights alone. Such a file is renamed
    and the next run begins anew. Raises DataError where the system refuses.
    """
    best = best_path(folder, model_name)
    found = [*find_all(folder, model_name), *([best] if best.exists() else []), *find_final_weights(folder, model_name)]
    if resume_from_last and found == [best]:
        try:
            moved = move_aside(best)
        except OSError as error:
            raise DataError(f"{best}: cannot be renamed ({error.strerror}); choose another --output") from None
        print(printable(f"{best} has no optimizer to go on with: it is now {moved}"))
        return
    if found:
        names = join_first(path.name for path in found)
        raise UsageError(
            f"-o {folder}: has checkpoints of another run of {model_name} ({names}), which this run would replace: "
            "add --resume-from-last to go on from the newest, or choose another -o"
        )
