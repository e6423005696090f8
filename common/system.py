"""What differs between Linux, macOS and Windows: locks of files, cores, limits, signals. Only here are fcntl and resource imported.

Windows has neither module, no SIGHUP, no descriptors of folders, and does not rename or remove a file that is open.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

IS_POSIX = find_spec("fcntl") is not None
# Flags of os.open that Windows lacks, and one without which it would translate line ends.
NO_FOLLOW, NON_BLOCKING, BINARY = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
FAR = 2**40  # offset of the byte that is locked on Windows, where a lock keeps others from reading
RETRY = 0.05  # seconds between two tries of a lock on Windows


def lock_file(descriptor: int, wait: bool = True) -> None:
    """Lock an open file until it is closed; child processes inherit the lock. Raises OSError if another has it, unless `wait`."""
    if IS_POSIX:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    else:
        _lock_byte(descriptor, wait)


def lock_for_process(descriptor: int) -> None:
    """Lock a file that is open for writing, for this process without its children. Raises OSError if another has it."""
    if IS_POSIX:
        import fcntl

        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        _lock_byte(descriptor, wait=False)


def _lock_byte(descriptor: int, wait: bool) -> None:
    import msvcrt

    windows: Any = msvcrt
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, FAR, os.SEEK_SET)
    try:
        while True:
            try:
                return windows.locking(descriptor, windows.LK_NBLCK, 1)
            except PermissionError:
                if not wait:
                    raise
                time.sleep(RETRY)
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Let one process or thread at a time proceed. POSIX locks the folder itself, so that no file appears in it. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY) if IS_POSIX else os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        lock_file(descriptor)
        yield
    finally:
        os.close(descriptor)


def remove_locked(path: Path, descriptor: int) -> None:
    """Remove a locked file and close it: before the lock ends, so that no other process has locked it, where the system allows."""
    if IS_POSIX:
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if not IS_POSIX:
        path.unlink(missing_ok=True)


def read_start(descriptor: int, size: int) -> bytes:
    """Read up to `size` bytes from the start of an open file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, size)


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def memory_limit() -> int | None:
    """Return the limit of this process's address space in bytes; None without one."""
    return _limit("RLIMIT_AS")


def open_files_limit() -> int | None:
    """Return how many files and connections this process may open; None without a limit."""
    return _limit("RLIMIT_NOFILE")


def _limit(name: str) -> int | None:
    if not IS_POSIX:
        return None
    import resource

    limit, _ = resource.getrlimit(getattr(resource, name))
    return None if limit == resource.RLIM_INFINITY else limit


def signals(*names: str) -> tuple[signal.Signals, ...]:
    """Return those of the named signals that this system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def c_function(name: str) -> Any:
    """Return a function of the C library that this process runs on; None without it."""
    return getattr(ctypes.CDLL(None), name, None) if IS_POSIX else None
