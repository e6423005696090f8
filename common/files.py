"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends well, and leaves no trace when it does not.

    Its folder is made where missing. Raises OSError where the system refuses; what to say of it is the caller's matter.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else the rename may reach the disk before the bytes do
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def move_aside(path: Path) -> Path | None:
    """Rename a file or a folder to NAME_1.EXT, or NAME_2.EXT and so on: the first free number. Returns the new path.

    Returns None where nothing is there. Devices and symbolic links stay as they are. Raises OSError where the system refuses.
    """
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        return None
    numbered = (path.with_name(f"{path.stem}_{number}{path.suffix}") for number in itertools.count(1))
    free = next(place for place in numbered if not (place.exists() or place.is_symlink()))
    path.rename(free)
    return free


def _sync_folder(folder: Path) -> None:
    """Make the renames in `folder` outlive a power cut, on the file systems that can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some network mounts sync files only
            raise
    finally:
        os.close(descriptor)
