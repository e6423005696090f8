"""Atomic writes, and the lines of text files."""

from __future__ import annotations

import codecs
import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from common.errors import DataError, join_problems


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block succeeds and is removed when the block fails.

    Create its folder where missing. Raises OSError where the system refuses; the caller words the message.
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
    """Write the renames in `folder` to the disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some network mounts sync files only
            raise
    finally:
        os.close(descriptor)


class TextLines(NamedTuple):
    """The lines of a text file, and the problems of those that are no text (empty strings here), by index from 0."""

    texts: list[str]
    problems: dict[int, str]


def read_lines(path: str | os.PathLike[str], expected: str = "expected a UTF-8 text file") -> list[str]:
    """Read the lines of a UTF-8 file, in order, without blank lines at the end; item i is line i + 1.

    Raises:
        DataError: the file is missing or empty, or lines are not UTF-8; all such lines in one message.
    """
    name = os.fspath(path)
    texts, problems = decode_lines(path, expected)
    if problems:
        raise DataError(join_problems([f"{name}:{index + 1}: {problem}" for index, problem in problems.items()]))
    if not texts:
        raise DataError(f"{name}: empty, expected at least one line")
    return texts


def decode_lines(
    path: str | os.PathLike[str], expected: str = "expected a UTF-8 text file", *, keep_blank_end: bool = False
) -> TextLines:
    """Read the lines of a UTF-8 file, and list those that are not UTF-8.

    Only LF and CRLF end a line. The byte-order mark, the ends of lines and blank lines at the end are left out.

    Args:
        path: the file.
        expected: ends the message about a file that cannot be read.
        keep_blank_end: keep blank lines at the end, for files in which white space has a meaning.

    Raises:
        DataError: the file is missing or cannot be read.
    """
    name = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"{name}: no such file; {expected}") from None
    except OSError as error:  # a folder, no permission
        raise DataError(f"{name}: cannot be read ({error.strerror}); {expected}") from None
    content = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").removesuffix(b"\n")
    lines = content.split(b"\n")  # before decoding: to str.splitlines() a form feed or U+2028 ends a line as well
    while not keep_blank_end and lines and not lines[-1].strip():
        lines.pop()
    texts, problems = [], {}
    for index, line in enumerate(lines):
        text, problem = _decode(line)
        texts.append(text)
        if problem:
            problems[index] = problem
    return TextLines(texts, problems)


def _decode(line: bytes) -> tuple[str, str]:
    """Return the text of a line, or "" and its problem."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return "", f"byte 0x{line[error.start]:02x} at column {error.start + 1} is not UTF-8"
    return ("", "holds a NUL character: not a text file, or not UTF-8") if "\0" in text else (text, "")
