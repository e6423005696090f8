"""Atomic writes, and the lines of text files."""

from __future__ import annotations

import codecs
import errno
import itertools
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from common.errors import DataError, explain_refusal, join_problems
from common.system import BINARY, IS_POSIX, NO_FOLLOW, NON_BLOCKING, lock_file

TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # names of files that are being written
LINK_AGE = 60.0  # seconds; a temporary link exists for less than one
MOST_PIPED_MB = 64  # of text read from a pipe or a terminal, which may never end
KINDS = {
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISDIR: "a folder",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a disk",
}


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block succeeds and is removed when the block fails.

    Creates its folder if missing. The temporary file is new and has a random name, so that no link of that name is followed.
    Raises OSError where the system refuses; the message is up to the caller.
    """
    make_folder(path.parent)
    temporary = None
    try:
        temporary, descriptor = _create_temporary(path.parent)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else the rename may reach the disk before the bytes do
            if IS_POSIX:  # the lock ends after the rename; Windows renames closed files only
                os.replace(temporary, path)
        if not IS_POSIX:
            os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        if not error.errno or (error.filename and not TEMPORARY.fullmatch(Path(str(error.filename)).name)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # people know no temporary file
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a UTF-8 text file, as atomic_write does."""
    with atomic_write(path) as file:
        file.write(text.encode())


def writing(path: Path, advice: str = "") -> AbstractContextManager[None]:
    """Context of writing a file, in which a refusal of the system becomes a DataError that ends with advice."""
    return explain_refusal(f"{path}: cannot be written", advice)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, if missing. Raises OSError where the system refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None


def atomic_link(path: Path, target: str) -> None:
    """Replace `path` in one step with a symbolic link to `target`. Raises OSError where the system refuses.

    On Windows, where symbolic links take a privilege, it becomes a second name of the same file.
    """
    temporary = _temporary_name(path.parent)
    try:
        if IS_POSIX:
            temporary.symlink_to(target)  # fails where the name is taken
        else:
            temporary.hardlink_to(path.parent / target)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder: those that no process has locked."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if TEMPORARY.fullmatch(entry.name):
            with suppress(OSError):  # its writer has just finished, or another user owns it
                _remove_leftover(entry)


def _remove_leftover(entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():  # which cannot be locked
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > LINK_AGE:
            os.unlink(entry.path)
        return
    descriptor = os.open(entry.path, os.O_RDONLY | NO_FOLLOW | NON_BLOCKING)
    try:
        lock_file(descriptor, wait=False)
        os.unlink(entry.path)
    finally:
        os.close(descriptor)


def _temporary_name(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}.tmp"


def _create_temporary(folder: Path) -> tuple[Path, int]:
    """Create a new file with a random name, locked until it is closed. Returns its path and descriptor."""
    while True:
        path = _temporary_name(folder)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | BINARY, 0o666)
        except FileExistsError:
            continue
        try:
            lock_file(descriptor)
        except OSError:  # a file system without locks: remove_leftovers leaves its files alone
            return path, descriptor
        if path.exists():  # else remove_leftovers was faster than the lock
            return path, descriptor
        os.close(descriptor)


def move_aside(path: Path) -> Path | None:
    """Rename a file or a folder to NAME_1.EXT, or the first free number. Returns the new path.

    Returns None if nothing is there, and for devices and symbolic links, which stay. Raises OSError where the system refuses.
    """
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        return None
    numbered = (path.with_name(f"{path.stem}_{number}{path.suffix}") for number in itertools.count(1))
    free = next(place for place in numbered if not (place.exists() or place.is_symlink()))
    path.rename(free)
    return free


def is_current(made: Path, *sources: Path) -> bool:
    """True for a file that is there, and no older than those that it was made from."""
    return made.is_file() and all(made.stat().st_mtime_ns >= source.stat().st_mtime_ns for source in sources)


def _sync_folder(folder: Path) -> None:
    """Write the renames in `folder` to the disk, so that they survive a power cut; Windows opens no folders."""
    if not IS_POSIX:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some network mounts sync files only
            raise
    finally:
        os.close(descriptor)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError for anything else, including brackets nested deeper than Python's stack."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets nested too deep") from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a file of one JSON object. Raises ValueError that says what is there instead, OSError where the system refuses."""
    try:
        found = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"no JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}, expected a JSON object")
    return found


def display_path(path: Path) -> str:
    """Return a path, relative to the current folder if it lies in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def kind_of(mode: int) -> str:
    """Name the kind of a file from its stat mode."""
    return next((kind for is_kind, kind in KINDS.items() if is_kind(mode)), "a regular file")


def open_to_append(path: Path) -> BinaryIO:
    """Open a regular file for reading and appending, unbuffered; create it if missing.

    Raises DataError for other kinds of file: a link may lead to a file that belongs to something else, and a pipe without a reader
    blocks. Raises OSError where the system refuses.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | NO_FOLLOW | NON_BLOCKING | BINARY
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError:
        kind = "a symbolic link" if path.is_symlink() else "a socket" if path.is_socket() else ""
        if not kind:
            raise
    else:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(descriptor, "ab+", buffering=0)
        os.close(descriptor)
        kind = kind_of(mode)
    raise DataError(f"{path}: is {kind}, expected a regular file to append to; remove it, or choose another name")


def read_content(path: str | os.PathLike[str]) -> bytes:
    """Read a file, or at most MOST_PIPED_MB of a pipe or a terminal.

    Raises DataError for devices and for longer input, OSError where the system refuses.
    """
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return file.read()
        if not (stat.S_ISFIFO(mode) or file.isatty()):
            raise DataError(f"{os.fspath(path)}: is {kind_of(mode)}, expected a file or a pipe")
        content = file.read(MOST_PIPED_MB * 10**6 + 1)
    if len(content) > MOST_PIPED_MB * 10**6:
        raise DataError(f"{os.fspath(path)}: more than {MOST_PIPED_MB} MB from {kind_of(mode)}; save it as a file")
    return content


class TextLines(NamedTuple):
    """The lines of a text file, and the problems of those that are not text (empty strings here), by index from 0."""

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
        raise DataError(join_problems(locate_problems(path, problems)))
    if not texts:
        raise DataError(f"{name}: empty, expected at least one line")
    return texts


def locate_problems(path: str | os.PathLike[str], problems: Mapping[int, str]) -> list[str]:
    """Format problems, given by the index of their line from 0, as `path:line: problem`, in the order of the lines."""
    return [f"{os.fspath(path)}:{index + 1}: {problem}" for index, problem in sorted(problems.items())]


def decode_lines(
    path: str | os.PathLike[str], expected: str = "expected a UTF-8 text file", *, keep_blank_end: bool = False
) -> TextLines:
    """Read the lines of a UTF-8 file, and list those that are not UTF-8.

    Only LF and CRLF end a line. The byte-order mark, line ends and trailing blank lines are left out.

    Args:
        path: the file.
        expected: end of the message about a file that cannot be read.
        keep_blank_end: keep trailing blank lines, for files in which white space has a meaning.

    Raises:
        DataError: the file is missing, cannot be read, is a device, or begins as UTF-16 does.
    """
    name = os.fspath(path)
    try:
        content = read_content(path)
    except FileNotFoundError:
        raise DataError(f"{name}: no such file; {expected}") from None
    except OSError as error:  # a folder, no permission
        raise DataError(f"{name}: cannot be read ({error.strerror}); {expected}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # else every line would be a problem
        raise DataError(f"{name}: not UTF-8 but UTF-16, as spreadsheets save Unicode text; save it as UTF-8")
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
