"""MPEG audio, such as mp3, where libsndfile and its decoder libmpg123 need help.

libmpg123 writes warnings about odd files to standard error itself. They are dropped: what makes a file unusable is an error of
libsndfile's, too. And files without a header about the whole stream do not state their length.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MPEG_ENDINGS = (".mp3", ".mp2", ".mpga")
TAG_HEADER = 10  # bytes of ID3v2's
FIRST_FRAME = 256  # bytes, in which the header of a stream lies
_lock = threading.Lock()
_open: list[int] = []  # the real standard error, once for each reader: the last one puts it back


def is_mpeg(path: str | os.PathLike[str]) -> bool:
    """Return True for a file that is MPEG audio by its name, or by its first bytes: a tag, or a frame's."""
    if os.fspath(path).lower().endswith(MPEG_ENDINGS):
        return True
    try:
        with open(path, "rb") as file:
            start = file.read(3)
    except OSError:
        return False
    return start == b"ID3" or (len(start) > 1 and start[0] == 0xFF and start[1] >= 0xE0)


@contextmanager
def quiet_decoder(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context in which nothing reaches standard error while a file of MPEG audio is read; other files change nothing."""
    if not is_mpeg(path):
        yield
        return
    with _lock:
        if not _open:
            _open.append(os.dup(2))
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
        else:
            _open.append(_open[0])
    try:
        yield
    finally:
        with _lock:
            original = _open.pop()
            if not _open:
                os.dup2(original, 2)
                os.close(original)


def estimates_length(path: str | os.PathLike[str]) -> bool:
    """Return True for MPEG audio without a Xing or VBRI header in its first frame: libsndfile guesses its length."""
    if not is_mpeg(path):
        return False
    with open(path, "rb") as file:
        start = file.read(TAG_HEADER)
        if start.startswith(b"ID3") and len(start) == TAG_HEADER:
            file.seek(
                sum((byte & 0x7F) << shift for byte, shift in zip(start[6:], (21, 14, 7, 0), strict=True)), os.SEEK_CUR
            )
        start += file.read(FIRST_FRAME)
    return not any(name in start for name in (b"Xing", b"Info", b"VBRI"))
