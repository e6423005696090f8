"""The output folder of a training run: its lock, its checkpoints, and its log beside those of other runs.

OUT/.MODEL.lock names the host and the process of the run that writes there. The system releases the lock however the process ends,
so a killed run never blocks a later one. A fresh run does not write over another run's checkpoints.

Each run has a log of its own, and OUT/nvlog.json is the log of the newest run:

- A fresh run renames an older nvlog.json to nvlog_1.json, or to the first free number.
- A resumed run continues its own log. If that is nvlog_1.json, the two swap names.
- TensorBoard has one folder a model, OUT/tensorboard/MODEL, which a fresh run of the model renames to MODEL_1 and so on.

A log belongs to the model named by its first PARAMETER record `model_name`; a log without one is moved aside. Of several logs of a
model, a resumed run continues the newest that holds its checkpoint's last step, or else the newest.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from common.checkpoint.files import best_path, find_all, find_final_weights
from common.errors import DataError, UsageError, explain_refusal, listed, printable
from common.files import make_folder, move_aside, parse_json
from common.run.nvlog import PARAMETER, place_of, records
from common.system import BINARY, NO_FOLLOW, lock_for_process, read_start, remove_locked

TAKEN = (BlockingIOError, PermissionError)  # errors of lockf where another process has the lock


@contextmanager
def occupy(folder: Path, model_name: str) -> Iterator[None]:
    """Lock a folder for a run of a model. A folder created for it that stays empty is removed again.

    Raises UsageError that names the process of another run there, and DataError if the folder cannot be written.
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
        remove_locked(path, descriptor)
        with suppress(OSError):  # one that is not empty stays, and so do those above
            for place in absent:
                place.rmdir()


def _unwritable(folder: Path, error: OSError) -> str:
    return f"{folder}: cannot be written ({error.strerror}); choose another --output"


def _write_owner(descriptor: int, folder: Path) -> None:
    record = {"host": socket.gethostname(), "pid": os.getpid()}
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(record).encode())
    except OSError as error:  # a full disk has room for an empty file
        raise DataError(_unwritable(folder, error)) from None


def _lock(path: Path, model_name: str) -> int:
    """Open and lock the file; return its descriptor. Loader processes, which may live on, do not inherit it.

    On a file system without locks, the new file itself is the lock.
    """
    while True:
        descriptor, is_new = _open(path)
        try:
            lock_for_process(descriptor)
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
    flags = os.O_RDWR | NO_FOLLOW | BINARY
    while True:
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
        with suppress(FileNotFoundError):  # its owner has just removed it
            return os.open(path, flags), False


def _owner(descriptor: int) -> dict[str, Any]:
    try:
        record = parse_json(read_start(descriptor, 1000))
    except ValueError:  # not written yet
        return {}
    return record if isinstance(record, dict) else {}


def _may_run(owner: dict[str, Any]) -> bool:
    """Return False if the owner was a process of this host that has ended. An owner without a name has just begun."""
    if owner.get("host") != socket.gethostname() or not isinstance(owner.get("pid"), int):
        return True
    with suppress(OverflowError):
        return psutil.pid_exists(owner["pid"])
    return False


def _in_use(path: Path, model_name: str, owner: dict[str, Any]) -> str:
    process = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown host')}"
    return (
        f"-o {path.parent}: another run of {model_name} writes there, {process}: wait for its end and add --resume-from-last, "
        f"or choose another -o (if it has ended, delete {path})"
    )


def refuse_checkpoints(folder: Path, model_name: str, resume_from_last: bool = False) -> None:
    """Raise UsageError if a folder has checkpoints of a model that a run would replace without resuming from them.

    A run with --resume-from-last that was killed before its first save may have left only its best weights. Their file is renamed,
    and the next run starts over. Raises DataError where the system refuses.
    """
    best = best_path(folder, model_name)
    found = [*find_all(folder, model_name), *([best] if best.exists() else []), *find_final_weights(folder, model_name)]
    if resume_from_last and found == [best]:
        with explain_refusal(f"{best}: cannot be renamed", "choose another --output"):
            moved = move_aside(best)
        print(printable(f"{best} has no optimizer to go on with: it is now {moved}"))
        return
    if found:
        names = listed(path.name for path in found)
        raise UsageError(
            f"-o {folder}: has checkpoints of another run of {model_name} ({names}), which this run would replace: "
            "add --resume-from-last to go on from the newest, or choose another -o"
        )


class LogHead(NamedTuple):
    """When a log's run began and the model it trained, from the first records; empty strings where missing."""

    began: str  # seconds since 1970, in as many digits in every log
    model_name: str


def prepare_log(path: Path, tensorboard: Path, model_name: str, steps_done: int) -> str:
    """Make `path` the file, and `tensorboard` the folder, that this run may append to; return a sentence about renamed logs.

    `steps_done` is the number of optimizer steps in the checkpoint that a run resumes from, 0 for a fresh run. Files are renamed
    one after the other: a process killed in between loses none, and the next run finds its own log. Raises DataError where the
    system refuses a rename.
    """
    logs = find_logs(path, model_name) if steps_done else []
    own = next((log for log in logs if holds_step(log, steps_done)), next(iter(logs), None))
    renames = []
    with explain_refusal(f"{path}: cannot move an older log aside", "choose another --output"):
        if own != path:
            renames.append((path, move_aside(path)))
        if own and own != path:
            own.rename(path)
            renames.append((own, path))
        if not steps_done or (own and own != logs[0]):  # the folder belongs to the model's newest log
            renames.append((tensorboard, move_aside(tensorboard)))
    moved = ", ".join(f"{before} is now {after}" for before, after in renames if after)
    return f"older logs: {moved}" if moved else ""


def find_logs(path: Path, model_name: str) -> list[Path]:
    """List the logs of a model, `path` and those moved aside from it, newest run first."""
    aside = re.compile(rf"{re.escape(path.stem)}_\d+{re.escape(path.suffix)}")
    files = [path, *(file for file in path.parent.glob("*") if aside.fullmatch(file.name))]
    heads = [(read_head(file), file) for file in files if file.is_file()]
    own = [(head.began, file) for head, file in heads if head.model_name == model_name]
    return [file for _, file in sorted(own, reverse=True)]


def read_head(path: Path) -> LogHead:
    """Read a log up to the record that names its model; lines that are no records are passed over."""
    began = None
    with path.open(encoding="utf-8", errors="replace") as file:
        for record in records(file):
            began = str(record.get("timestamp", "")) if began is None else began
            data = record.get("data")
            if record.get("step") == PARAMETER and isinstance(data, dict) and "model_name" in data:
                return LogHead(began, str(data["model_name"]))
    return LogHead(began or "", "")


def holds_step(path: Path, steps_done: int) -> bool:
    """Return True if a log has the record of the optimizer step with this number, counted from 1."""
    with path.open(encoding="utf-8", errors="replace") as file:
        likely = (line for line in file if f'"{steps_done - 1}/' in line)  # the others need not be parsed
        return any((place_of(record) or (0,))[0] == steps_done - 1 for record in records(likely))
